"""Train one ordinary model on labels: how an ensemble's members are made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.checks import require_several_classes
from solera.data import Batch, ManyBatches, as_batches
from solera.distributions.families import family_named
from solera.nn.call import call, naming_inputs
from solera.tasks import Task, task_of
from solera.training.loop import Admit, Objective, train
from solera.training.settings import Training

NO_TARGETS = "a model learns from labels, but the batches carry none: pass target"


def first_of(batches: ManyBatches) -> Batch:
    """The first batch, to look at before any work."""
    first = next(iter(batches), None)
    if first is None:
        raise ValueError("there are no batches: the data are empty")
    return first


@torch.no_grad()
def outputs_of(network: nn.Module, batch: Batch) -> int:
    """How many outputs the network gives, by its answer about one example; inputs that it does not take are refused."""
    inputs = batch.take(slice(0, 1)).inputs
    with naming_inputs(f"the network ({type(network).__name__})", inputs):
        return call(network.eval(), inputs).shape[-1]


def labelled(task: Task, batch: Batch) -> Batch:
    """The batch with weight 0 where there is no target: there nothing can be learned from labels."""
    if batch.target is None:
        raise ValueError(NO_TARGETS)
    known = task.labelled(batch)
    if bool(known.all()):
        return batch
    return replace(batch, weight=known.float() if batch.weight is None else batch.weight * known)


def task_for(task: Task | None, first: Batch) -> Task:
    """The task, or a guess from the first batch's targets."""
    if task is not None:
        return task
    if first.target is None:
        raise ValueError(NO_TARGETS)
    return task_of(first.target)


def label_loss(task: Task, network: nn.Module, training: Training) -> Objective:
    """The likelihood of the labels, as the task has it."""

    def objective(output: Any, batch: Batch, progress: float) -> Tensor:
        return task.label_loss(network, task.of_member(output), batch, training.label_smoothing)

    return objective


def admit_labelled(task: Task, make: Callable[[], nn.Module], batches: ManyBatches) -> Admit:
    """Looks at the first batch, before any work starts, and then at every one as it comes."""
    first = first_of(batches)
    if first.target is None:
        raise ValueError(NO_TARGETS)
    outputs = outputs_of(make(), first)
    wanted = task.outputs(first.target, outputs)
    if outputs != wanted:
        raise ValueError(
            f"{task.name} with such targets takes {wanted} outputs (continuous targets: means and then log-variances); "
            f"this network gives {outputs}"
        )

    size = outputs // family_named(task.family).outputs(1)
    if task.family == "categorical":
        require_several_classes(size)

    def admit(batch: Batch, new: bool) -> Batch:
        task.check(batch, size)
        return labelled(task, batch)

    admit(first, True)
    return admit


def fit(
    model: nn.Module,
    data: Any,
    training: Training,
    *,
    task: Task | None = None,
    validation: Any = None,
    folder: Path | None = None,
    title: str = "fit",
) -> nn.Module:
    """Maximum likelihood of the labels, classes or (floating-point) continuous targets; resumable like every training.

    `data`: batches, a `DataLoader`, a data set, a pair of arrays is `Batches(x, y)`. Unlabelled examples are passed by.
    """
    read = None if task is None else task.batch
    batches = as_batches(data, read=read)
    task = task_for(task, first_of(batches))
    held = None if validation is None else as_batches(validation, read=read)
    admit = admit_labelled(task, lambda: model, batches)
    if held is not None:
        outputs_of(model, first_of(held))
    return train(
        model,
        batches,
        label_loss(task, model, training),
        training,
        admit=admit,
        validation=held,
        folder=folder,
        identity=repr(task),
        title=title,
    )
