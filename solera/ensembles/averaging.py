"""Stochastic weight averaging: one network from the last checkpoints of its training (SWA, Izmailov et al., 2018)."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from solera.core.checks import require_positive
from solera.data import ManyBatches, one_epoch
from solera.ensembles.cycles import train_cycles
from solera.ensembles.members import prepared
from solera.nn.call import call
from solera.tasks import Task
from solera.training.settings import Training


@torch.no_grad()
def average_weights(models: Sequence[nn.Module]) -> nn.Module:
    """A new network with w = (1/M) Σ_m w_m, float buffers alike; whole-number buffers are the last model's.

    The average of batch-norm statistics is not the statistics of the average: call `update_batch_norm` on the result.
    """
    if not models:
        raise ValueError("there is nothing to average: pass at least one model")
    states = [model.state_dict() for model in models]
    for number, state in enumerate(states):
        for name in {**states[-1], **state}:
            shapes = [tuple(s[name].shape) if name in s else None for s in (states[-1], state)]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"weights can only be averaged over one architecture: {name} is {shapes[1]} in model {number} and "
                    f"{shapes[0]} in the last one"
                )

    def mean(name: str, last: Tensor) -> Tensor:
        if not last.is_floating_point():
            return last
        return torch.stack([state[name].to(last.device).double() for state in states]).mean(0).to(last.dtype)

    average = copy.deepcopy(models[-1])
    average.load_state_dict({name: mean(name, last) for name, last in states[-1].items()})
    return average


@torch.no_grad()
def update_batch_norm(model: nn.Module, batches: ManyBatches) -> nn.Module:
    """Estimates every batch-norm layer's mean and variance again, in one pass over (shuffled) data; returns the model.

    Each batch is normalised by itself, as in training, and counts by its size; dropout is off, as in evaluation.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    model.eval()
    if not norms:
        return model
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    momenta, seen = [norm.momentum for norm in norms], 0
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    for batch in one_epoch(batches, 0, 0):
        seen += len(batch)
        for norm in norms:
            norm.momentum = len(batch) / seen  # makes the running statistics a mean over all examples so far
        call(model, batch.to(device).inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    if not seen:
        raise ValueError("batch norm cannot be estimated from no data: the batches are empty")
    return model.eval()


def train_averaged(
    make: Callable[[], nn.Module],
    data: Any,
    checkpoints: int = 5,
    training: Training | None = None,
    *,
    task: Task | None = None,
    rate: float = 0.5,
    folder: str | Path | None = None,
) -> nn.Module:
    """Trains one network for `training.epochs` in all and returns the average of its last `checkpoints` epochs.

    Before those it follows the training's own schedule; during them the rate stays at `rate`·lr, so that the weights
    wander around the minimum and their average lies inside. With a folder, a killed run goes on where it was.
    """
    training = training or Training()
    require_positive("rate", rate)
    if not 1 <= checkpoints < training.fixed_epochs:
        raise ValueError(
            f"checkpoints are the last epochs of a training: they must lie between 1 and {training.fixed_epochs - 1} "
            f"(epochs − 1), got {checkpoints}: train longer, or average fewer"
        )
    first = replace(training, epochs=training.fixed_epochs - checkpoints)
    wander = replace(training, epochs=1, lr=rate * training.lr, schedule="constant")
    batches, task = prepared(data, task)
    networks = train_cycles(make, batches, [first, *[wander] * checkpoints], task, Path(folder) if folder else None)
    return update_batch_norm(average_weights(networks[1:]), batches)
