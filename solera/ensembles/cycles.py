"""One network, trained in several cycles: each is a training that starts from the weights of the one before."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from solera.core.seeds import stream
from solera.data import ManyBatches
from solera.ensembles.members import fresh
from solera.tasks import Task
from solera.training.fit import fit
from solera.training.settings import Training


def train_cycles(
    make: Callable[[], nn.Module], batches: ManyBatches, cycles: Sequence[Training], task: Task, folder: Path | None
) -> list[nn.Module]:
    """The network at the end of every cycle.

    A cycle keeps the weights and nothing else: its optimiser starts afresh and its order of the data is its own (its
    seed is drawn from `seed` and its number). So a cycle can be resumed, or run again, from the weights before it.
    """
    seed = cycles[0].seed
    (network,) = fresh(make, [stream(seed, "member", 0)])
    ends: list[nn.Module] = []
    for number, cycle in enumerate(cycles):
        network = fit(
            copy.deepcopy(network),
            batches,
            replace(cycle, seed=stream(seed, "cycle", number)),
            task=task,
            folder=folder / f"cycle-{number}" if folder else None,
            title=f"train cycle {number + 1} of {len(cycles)}",
        )
        ends.append(network)
    return ends
