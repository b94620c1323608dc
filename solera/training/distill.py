"""Distillation: a student learns to stand in for its teacher."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.batch import UNLABELLED, Batch, ManyBatches, tensors_in
from solera.core.checks import require_finite, require_labels
from solera.methods.base import Method
from solera.teachers.base import Teacher
from solera.training.loop import train
from solera.training.settings import Training
from solera.training.student import Student

DEFAULTS = Training()


def distill(
    teacher: Teacher,
    model: nn.Module,
    batches: ManyBatches,
    method: Method,
    training: Training = DEFAULTS,
    *,
    validation: Iterable[Batch] | None = None,
    folder: str | Path | None = None,
) -> Student:
    """Trains `model` to stand in for `teacher` and returns it ready to serve.

    `validation` batches pick the best epoch (and stop early, with `training.patience`). With a `folder` the run can be
    killed at any moment: the same call goes on from there and ends in the same bits.
    """
    check(teacher, model, batches, training)
    if validation is not None:
        check(teacher, model, validation, training)
    student = method.student(model, teacher.members)

    def objective(output: Any, batch: Batch, progress: float) -> Tensor:
        with torch.no_grad():
            targets = teacher(batch)
        loss = method.loss(output, targets, progress)
        if training.label_weight == 0 or batch.target is None:
            return loss
        labelled = batch.target != UNLABELLED
        label_loss = -method.predict(output).log_prob(batch.target.masked_fill(~labelled, 0))
        return torch.where(labelled, (1 - training.label_weight) * loss + training.label_weight * label_loss, loss)

    train(
        student,
        batches,
        objective,
        training,
        groups=method.parameter_groups(student, training.lr, training.weight_decay),
        validation=validation,
        folder=Path(folder) if folder else None,
        identity=repr((teacher.fingerprints, method)),
        title=f"distil {type(method).__name__}",
    )
    return Student(method.finalize(student).eval(), method)


def check(teacher: Teacher, model: nn.Module, batches: Iterable[Batch], training: Training) -> None:
    """Everything that can be wrong with the data, before any work starts."""
    classes = None
    for batch in batches:
        if classes is None:
            with torch.no_grad():
                classes, outputs = teacher(batch).mean.shape[-1], model.eval()(batch.inputs).shape[-1]
            if classes != outputs:
                raise ValueError(
                    f"the teacher knows {classes} classes, the student's network gives {outputs} outputs: "
                    "give the network as many outputs as there are classes"
                )
        for tensor in tensors_in(batch.inputs):
            require_finite("inputs", tensor)
        teacher.check(batch)
        if batch.target is not None:
            require_labels("labels", batch.target[batch.target != UNLABELLED], classes)
        elif training.label_weight:
            raise ValueError(
                f"label_weight={training.label_weight} mixes in labels, but the batches carry none: pass target"
            )
    if classes is None:
        raise ValueError("there are no batches to distil on")
