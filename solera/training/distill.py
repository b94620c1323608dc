"""Distillation: a student learns to stand in for its teacher."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.data import Augment, Batch, Batches, ManyBatches, as_batches, require_finite_inputs
from solera.distributions.base import Targets
from solera.distributions.families import family_named
from solera.methods.base import Method, require_family
from solera.nn.call import call
from solera.perturbations import Perturbation
from solera.tasks import Task, task_of
from solera.teachers.base import Teacher, require_vocabulary
from solera.training.card import Notes, Preprocessing
from solera.training.fit import first_of
from solera.training.loop import Admit, Watch, train
from solera.training.settings import Training
from solera.training.size import fitted_method
from solera.training.student import Student
from solera.training.views import fingerprint_of_views, with_views

DEFAULTS = Training()


def distill(
    teacher: Teacher,
    model: nn.Module,
    data: Any,
    method: Method,
    training: Training = DEFAULTS,
    *,
    task: Task | None = None,
    perturbation: Perturbation | None = None,
    views: str | Augment | None = None,
    validation: Any = None,
    watch: Watch | None = None,
    folder: str | Path | None = None,
) -> Student:
    """Trains `model` to stand in for `teacher` and returns it ready to serve.

    `data` are arrays, batches, a `DataLoader` or a data set; targets are needed only where `training.label_weight`
    mixes them in. A `task` says what targets mean, where a guess by their kind of number would be wrong.
    `views` change every batch at random, and the live teacher is asked about what the student sees: "auto" takes the
    default for this kind of input (`solera.data.default_views`), or pass any function (inputs, generator) → inputs.
    A `perturbation` moves every batch's inputs to where the live teacher's members differ, and asks them there.
    `validation` data pick the best epoch (and stop early, with `training.patience`), and the size of the student's
    uncertainty is fitted on them (`solera.calibration.calibrate` does that later, too). `watch(epoch, network)` is
    called after every epoch, with the network as it is in training: subnetworks, heads. With a `folder` the run can be
    killed at any moment: the same call goes on from there and ends in the same bits.
    """
    if perturbation is not None:
        perturbation.check(teacher)
    batches, seen = with_views(batches_for(teacher, data, task), teacher, views, training.seed)
    first, said, admit = admit_taught(teacher, model, batches, method, training, task)
    held = None if validation is None else batches_for(teacher, validation, task)
    if held is not None:
        admit(first_of(held), True)
    student = method.student(model, teacher.members)
    method.begin(student, said)

    def moved(batch: Batch, draw: torch.Generator) -> Batch:
        assert perturbation is not None
        return replace(batch, inputs=perturbation(batch.inputs, teacher, student, draw))

    def objective(output: Any, batch: Batch, progress: float) -> Tensor:
        with torch.no_grad():
            targets = teacher(batch)
        loss = method.batch_loss(output, targets, batch, progress)
        if training.label_weight == 0 or batch.target is None:
            return loss
        its = task or task_of(batch.target)
        of_labels = its.label_loss(student, method.predict_in_training(output), batch, training.label_smoothing)
        share = training.label_weight
        return torch.where(its.labelled(batch, loss.ndim), (1 - share) * loss + share * of_labels, loss)

    changes = [*([] if perturbation is None else [perturbation])]
    changes += [] if seen is None or folder is None else [fingerprint_of_views(seen)]
    train(
        student,
        batches,
        objective,
        training,
        groups=method.parameter_groups(student, training.lr, training.weight_decay),
        admit=admit,
        prepare=None if perturbation is None else moved,
        validation=held,
        watch=watch,
        folder=Path(folder) if folder else None,
        identity=repr((teacher.fingerprints, method, *changes, task)),
        title=f"distil {type(method).__name__}",
    )
    served = method.finalize(student).eval()
    return Student(
        served,
        fitted_method(served, method, teacher, held, task),
        getattr(teacher, "labels", None) or getattr(batches, "names", None),
        Preprocessing.of(first.inputs, sequences=first.masks is not None),
        Notes(teachers=teacher.fingerprints),
        getattr(batches, "tokenizer", None),
    )


def batches_for(teacher: Teacher, data: Any, task: Task | None) -> ManyBatches:
    """The data as batches, their classes numbered as the teacher numbers them, where both have names."""
    batches = as_batches(data, read=None if task is None else task.batch)
    require_vocabulary(teacher, batches)
    names = getattr(teacher, "labels", None)
    return batches.renumbered(names) if names and isinstance(batches, Batches) else batches


def admit_taught(
    teacher: Teacher, model: nn.Module, batches: ManyBatches, method: Method, training: Training, task: Task | None
) -> tuple[Batch, Targets, Admit]:
    """Looks at the first batch, before any work starts, and then at every one as it comes.

    Returns the first batch, what the teacher says about it, and what looks at the others.
    """
    first = first_of(batches)
    if training.label_weight and first.target is None:
        raise ValueError(
            f"label_weight={training.label_weight} mixes in labels, but the batches carry none: pass target"
        )
    its = task or (task_of(first.target) if first.target is not None else None)
    require_finite_inputs(first)
    teacher.check(first)
    with torch.no_grad():
        said = teacher(first)
        outputs = call(model.eval(), first.inputs).shape[-1]
    require_family(method, said)
    size = said.mean.shape[-1]
    if outputs != method.outputs(size):
        what = family_named(said.family).sizes
        raise ValueError(
            f"the teacher knows {size} {what}, the student's network gives {outputs} outputs: "
            f"{type(method).__name__} needs {method.outputs(size)} of them"
        )

    def admit(batch: Batch, new: bool) -> Batch:
        if its is None:
            require_finite_inputs(batch)
        else:
            its.check(batch, size)
        if new:
            known = batch if teacher.live or batch.plain is None else replace(batch, inputs=batch.plain)
            teacher.check(known)
        return replace(batch, plain=None)

    admit(first, True)
    return first, said, admit
