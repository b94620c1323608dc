"""What all ways of making members share: first weights of their own, a look at the data, and the name of a training."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from solera.core.batch import Batches, tensors_in
from solera.core.seeds import seed_everything
from solera.teachers.base import fingerprint
from solera.training.fit import check_labelled


def fresh(make: Callable[[], nn.Module], batches: Batches, seeds: Sequence[int]) -> list[nn.Module]:
    """One network per seed, once inputs and labels are found to be in order."""
    networks: list[nn.Module] = []
    for seed in seeds:
        seed_everything(seed)
        networks.append(make())
    with torch.no_grad():
        classes = make().eval()(batches.all.take(slice(0, 1)).inputs).shape[-1]
    check_labelled(batches, classes)
    return networks


def name_of_data(batches: Batches) -> str:
    """A fingerprint of every example: which it is, what goes in, its label and its weight."""
    whole = batches.all
    tensors = {"index": whole.index, "target": whole.target, "weight": whole.weight}
    tensors |= {f"inputs/{number}": tensor for number, tensor in enumerate(tensors_in(whole.inputs))}
    return fingerprint({name: tensor for name, tensor in tensors.items() if tensor is not None})


def name_of_network(network: nn.Module) -> str:
    """A fingerprint of its architecture's name and its weights."""
    return fingerprint(dict(network.state_dict()), type(network).__name__)
