"""What all ways of making members share: first weights of their own, and a look at the data."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from solera.core.seeds import seed_everything
from solera.data import Batches
from solera.tasks import task_of
from solera.teachers.ensemble import Ensemble
from solera.training.fit import check_labelled


def fresh(make: Callable[[], nn.Module], batches: Batches, seeds: Sequence[int]) -> list[nn.Module]:
    """One network per seed, once inputs and labels are found to be in order."""
    networks: list[nn.Module] = []
    for seed in seeds:
        seed_everything(seed)
        networks.append(make())
    with torch.no_grad():
        outputs = make().eval()(batches.all.take(slice(0, 1)).inputs).shape[-1]
    check_labelled(batches, outputs)
    return networks


def together(networks: Sequence[nn.Module], batches: Batches, saw: Any = None) -> Ensemble:
    """The trained networks as an ensemble for targets such as theirs."""
    assert batches.all.target is not None
    return Ensemble(networks, saw=saw, family=task_of(batches.all.target).family)
