"""Distillation: a student learns to stand in for its teacher."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from solera.core.checks import require_several_classes
from solera.core.errors import DivergedError
from solera.core.progress import tell
from solera.data import Augment, Batch, Batches, ManyBatches, Sequences, as_batches, require_sound
from solera.distributions.base import Targets
from solera.distributions.families import family_named
from solera.methods.base import Method, require_family
from solera.nn.call import naming_inputs
from solera.perturbations import Perturbation
from solera.tasks import Task, task_of, task_of_family
from solera.teachers.base import Teacher, require_vocabulary
from solera.training.card import Notes, Preprocessing
from solera.training.fit import first_of, outputs_of
from solera.training.lesson import Lesson, likeness, shortcoming
from solera.training.loop import REMEDY, Admit, Watch
from solera.training.patience import FIRST, patiently
from solera.training.settings import PATIENT, Training
from solera.training.size import fitted_method
from solera.training.student import Student
from solera.training.views import fingerprint_of_views, with_views

HELD_OUT = 0.1  # of the examples, by which a patient training knows when to stop, where no others are given


def distill(
    teacher: Teacher,
    model: nn.Module,
    data: Any,
    method: Method,
    training: Training = PATIENT,
    *,
    task: Task | None = None,
    perturbation: Perturbation | None = None,
    views: str | Augment | None = None,
    validation: Any = None,
    unlabelled: Any = None,
    start: Student | str | Path | Method | None = None,
    watch: Watch | None = None,
    folder: str | Path | None = None,
) -> Student:
    """Trains `model` to stand in for `teacher` and returns it ready to serve.

    `data` are arrays, batches, a `DataLoader` or a data set; targets are needed only where labels are mixed in. A
    `task` says what targets mean, where a guess by their kind of number would be wrong.

    By default the training is patient: it goes on in rounds of 30, 60 and 120 epochs as long as held-out examples say
    that it helps, and where there are labels it chooses their share in the loss (`solera.training.patience`). A tenth
    of the examples is held out for that, if there are no `validation` data; data that cannot be split are gone through
    30 times. `Training(epochs=30)` has a fixed length. Validation data also pick the best epoch, and the size of the
    student's uncertainty is fitted on them (`solera.calibrate` does that later, too).

    `unlabelled` inputs (arrays, beside arrays or `Batches`) are learned from as well: the teacher speaks for them.
    `views` change every batch at random, and the live teacher is asked about what the student sees: "auto" takes the
    default for this kind of input (`solera.data.default_views`), or pass any function (inputs, generator) → inputs.
    A `perturbation` moves every batch's inputs to where the live teacher's members differ, and asks them there.
    `start` goes on from an earlier student (itself, or its folder), or first distils by another method, from whose
    student this one grows: `start=EnD()` before `Hydra()` or `EnD2()`. `watch(epoch, network)` is called after every
    epoch, with the network as it is in training: subnetworks, heads. With a `folder` the run can be killed at any
    moment: the same call goes on from there and ends in the same bits.
    """
    if perturbation is not None:
        perturbation.check(teacher)
    plain = with_unlabelled(batches_for(teacher, data, task), unlabelled)
    held = None if validation is None else batches_for(teacher, validation, task)
    if held is None and training.epochs == "patient" and isinstance(plain, Batches | Sequences):
        plain, held = plain.split(HELD_OUT, training.seed)
    place = Path(folder) if folder else None
    if isinstance(start, Method):
        first_place = None if place is None else place / "start"
        start = distill(
            teacher, model, plain, start, training, task=task, views=views, validation=held, folder=first_place
        )
    batches, seen = with_views(plain, teacher, views, method, training.seed)
    first, said, admit = admit_taught(teacher, model, batches, method, training, task)
    if held is not None:
        outputs_of(model, admit(first_of(held), True))
    student = started(method, model, teacher.members, start)
    if start is None:
        method.begin(student, said)
    changes = [*([] if perturbation is None else [perturbation])]
    changes += [] if seen is None or folder is None else [fingerprint_of_views(seen)]
    its = task or (task_of_family(said.family) if first.target is None else task_of(first.target))
    changes += ["judged by the mean"] if held is not None and method.judged_by_mean else []
    identity = repr((teacher.fingerprints, method, *changes, task))
    lesson = Lesson(teacher, student, method, its, batches, held, admit, perturbation, watch, identity)
    if training.epochs == "patient" and held is not None:
        facts = patiently(lesson, training, place)
    else:
        epochs = FIRST if training.epochs == "patient" else training.epochs
        fixed = replace(training, epochs=epochs, label_weight=training.label_share)
        lesson.train(fixed, place)
        facts = {"epochs": fixed.fixed_epochs, "label weight": fixed.label_share}
    served = method.finalize(student).eval()
    sized, size = fitted_method(served, method, teacher, held, task)
    found = {
        name: likeness(served, sized, teacher, some, its)
        for name, some in {"transfer": plain, "held out": held}.items()
        if some is not None
    }
    for name, row in found.items():
        facts |= {f"{key}, {name}": value for key, value in row.items() if value is not None}
    if lost := [key for key, value in facts.items() if math.isnan(value)]:
        raise DivergedError(f"the student's answers are no numbers any more ({lost[0]} is NaN): {REMEDY}")
    tell(f"distil {type(method).__name__}: " + ", ".join(f"{key} {value:.4g}" for key, value in facts.items()))
    if (why := shortcoming(its, found["transfer"], found.get("held out"))) is not None:
        tell(f"distil {type(method).__name__}: {why}")
    return Student(
        served,
        sized,
        getattr(teacher, "class_names", None) or getattr(batches, "names", None),
        Preprocessing.of(first.inputs, sequences=first.masks is not None),
        Notes(teachers=teacher.fingerprints, fit={**facts, **size}),
        getattr(batches, "tokenizer", None),
    )


def with_unlabelled(batches: ManyBatches, inputs: Any) -> ManyBatches:
    """The batches and, without labels, these inputs."""
    if inputs is None:
        return batches
    if not isinstance(batches, Batches):
        raise ValueError(
            f"unlabelled inputs are put beside arrays or Batches, not beside {type(batches).__name__}: "
            "give their examples among the data, labelled -100"
        )
    return batches.with_unlabelled(inputs)


def started(method: Method, model: nn.Module, members: int, start: Student | str | Path | None) -> nn.Module:
    """The network to train: `model` with the method's head, or all that with the weights of an earlier student."""
    if start is None:
        return method.student(model, members)
    earlier = start if isinstance(start, Student) else Student.load(start, None)
    weights = earlier.model.state_dict()

    def fits(network: nn.Module) -> bool:
        own = network.state_dict()
        return own.keys() == weights.keys() and all(own[name].shape == weights[name].shape for name in own)

    if fits(model):
        model.load_state_dict(weights)
        return method.student(model, members)
    student = method.student(model, members)
    if not fits(student):
        raise ValueError(
            f"start is a {type(earlier.model).__name__} with other weights than this {type(model).__name__}, with or "
            f"without the head of {type(method).__name__}: pass a model of the earlier student's shape"
        )
    student.load_state_dict(weights)
    return student


def batches_for(teacher: Teacher, data: Any, task: Task | None) -> ManyBatches:
    """The data as batches, their classes numbered as the teacher numbers them, where both have names."""
    batches = as_batches(data, read=None if task is None else task.batch)
    require_vocabulary(teacher, batches)
    names = getattr(teacher, "class_names", None)
    return batches.renumbered(names) if names and isinstance(batches, Batches) else batches


def admit_taught(
    teacher: Teacher, model: nn.Module, batches: ManyBatches, method: Method, training: Training, task: Task | None
) -> tuple[Batch, Targets, Admit]:
    """Looks at the first batch, before any work starts, and then at every one as it comes.

    Returns the first batch, what the teacher says about it, and what looks at the others.
    """
    first = first_of(batches)
    if training.label_share and first.target is None:
        raise ValueError(
            f"label_weight={training.label_share} mixes in labels, but the batches carry none: pass target"
        )
    its = task or (task_of(first.target) if first.target is not None else None)
    require_sound(first)
    teacher.check(first)
    with torch.no_grad():
        with naming_inputs("the teacher", first.inputs):
            said = teacher(first)
        outputs = outputs_of(model, first)
    require_family(method, said)
    if its is not None and its.family != said.family:
        raise ValueError(
            f"the targets are for {its.name}, the teacher speaks of {family_named(said.family).sizes}: "
            "pass whole numbers as classes (-100 where there is none), floating-point ones as continuous targets"
        )
    size = said.mean.shape[-1]
    if said.family == "categorical":
        require_several_classes(size)
    if outputs != method.outputs(size):
        what = family_named(said.family).sizes
        raise ValueError(
            f"the teacher knows {size} {what}, the student's network gives {outputs} outputs: "
            f"{type(method).__name__} needs {method.outputs(size)} of them"
        )

    def admit(batch: Batch, new: bool) -> Batch:
        if its is None:
            require_sound(batch)
        else:
            its.check(batch, size)
        if new:
            known = batch if teacher.live or batch.plain is None else replace(batch, inputs=batch.plain)
            teacher.check(known)
        return replace(batch, plain=None)

    admit(first, True)
    return first, said, admit
