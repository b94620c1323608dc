"""Distillation: a student learns to stand in for its teacher."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.checks import require_finite
from solera.data import Batch, ManyBatches, tensors_in
from solera.distributions.base import Targets
from solera.methods.base import Method, require_family
from solera.perturbations import Perturbation
from solera.tasks import task_of
from solera.teachers.base import Teacher
from solera.training.card import Notes, Preprocessing
from solera.training.loop import Watch, train
from solera.training.settings import Training
from solera.training.size import fitted_method
from solera.training.student import Student

DEFAULTS = Training()


def distill(
    teacher: Teacher,
    model: nn.Module,
    batches: ManyBatches,
    method: Method,
    training: Training = DEFAULTS,
    *,
    perturbation: Perturbation | None = None,
    validation: Iterable[Batch] | None = None,
    watch: Watch | None = None,
    folder: str | Path | None = None,
) -> Student:
    """Trains `model` to stand in for `teacher` and returns it ready to serve.

    A `perturbation` moves every batch's inputs to where the live teacher's members differ, and asks them there.
    `validation` batches pick the best epoch (and stop early, with `training.patience`), and the size of the student's
    uncertainty is fitted on them (`solera.calibration.calibrate` does that later, too). `watch(epoch, network)` is
    called after every epoch, with the network as it is in training: subnetworks, heads. With a `folder` the run can be
    killed at any moment: the same call goes on from there and ends in the same bits.
    """
    if perturbation is not None:
        perturbation.check(teacher)
    first, said = check(teacher, model, batches, method, training)
    if validation is not None:
        check(teacher, model, validation, method, training)
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
        task = task_of(batch.target)
        labelled = task.labelled(batch.target, loss.ndim)
        label_loss = -method.predict_in_training(output).log_prob(task.filled(batch.target))
        return torch.where(labelled, (1 - training.label_weight) * loss + training.label_weight * label_loss, loss)

    train(
        student,
        batches,
        objective,
        training,
        groups=method.parameter_groups(student, training.lr, training.weight_decay),
        prepare=None if perturbation is None else moved,
        validation=validation,
        watch=watch,
        folder=Path(folder) if folder else None,
        identity=repr((teacher.fingerprints, method, *([] if perturbation is None else [perturbation]))),
        title=f"distil {type(method).__name__}",
    )
    served = method.finalize(student).eval()
    return Student(
        served,
        fitted_method(served, method, teacher, validation),
        getattr(teacher, "labels", None),
        Preprocessing.of(first.inputs),
        Notes(teachers=teacher.fingerprints),
    )


def check(
    teacher: Teacher, model: nn.Module, batches: Iterable[Batch], method: Method, training: Training
) -> tuple[Batch, Targets]:
    """Everything that can be wrong with the data, before any work starts; returns the first batch and its targets."""
    first, size = None, 0
    for batch in batches:
        if first is None:
            with torch.no_grad():
                targets, outputs = teacher(batch), model.eval()(batch.inputs).shape[-1]
            first = batch, targets
            require_family(method, targets)
            size = targets.mean.shape[-1]
            if outputs != method.outputs(size):
                what = "classes" if targets.family == "categorical" else "target dimensions"
                raise ValueError(
                    f"the teacher knows {size} {what}, the student's network gives {outputs} outputs: "
                    f"{type(method).__name__} needs {method.outputs(size)} of them"
                )
        for tensor in tensors_in(batch.inputs):
            require_finite("inputs", tensor)
        teacher.check(batch)
        if batch.target is not None:
            task_of(batch.target).check(batch.target, size)
        elif training.label_weight:
            raise ValueError(
                f"label_weight={training.label_weight} mixes in labels, but the batches carry none: pass target"
            )
    if first is None:
        raise ValueError("there are no batches to distil on")
    return first
