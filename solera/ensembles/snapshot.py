"""Snapshot ensembles (Huang et al., 2017): one training with warm restarts (SGDR), one member per cycle."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn

from solera.ensembles.cycles import train_cycles
from solera.ensembles.members import prepared, together
from solera.tasks import Task
from solera.teachers.ensemble import Ensemble
from solera.training.settings import Training


def train_snapshots(
    make: Callable[[], nn.Module],
    data: Any,
    members: int = 5,
    training: Training | None = None,
    *,
    task: Task | None = None,
    folder: str | Path | None = None,
) -> Ensemble:
    """Trains one network for `training.epochs` in all, in `members` cycles, and keeps a copy at the end of each.

    The first cycle makes a member too, so `training.epochs / members` must be enough to learn the task from nothing.
    In a cycle of S steps the rate falls as lr·(1 + cos(π·s/(S − 1)))/2, whatever `training.schedule` says. The next one
    starts at `lr` again, from these weights and with a new optimiser: SGDR restarts the rate alone, but so a cycle
    depends on nothing but the weights before it. With a folder, a killed run goes on where it was.
    """
    training = training or Training()
    if not 1 <= members <= training.fixed_epochs:
        raise ValueError(
            f"every snapshot takes at least one epoch: members must lie between 1 and epochs={training.fixed_epochs}, "
            f"got {members}: train longer, or ask for fewer"
        )
    ends = [training.fixed_epochs * number // members for number in range(members + 1)]
    cycles = [replace(training, epochs=b - a, schedule="cosine") for a, b in pairwise(ends)]
    batches, task = prepared(data, task)
    networks = train_cycles(make, batches, cycles, task, Path(folder) if folder else None)
    return together(networks, batches, task)
