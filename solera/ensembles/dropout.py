"""MC dropout as a teacher (Gal and Ghahramani, 2016): one network, M fixed masks of the units that are dropped.

f_m(x) = f(x; z_m) with z_m drawn once per member: every unit of a dropout layer is multiplied by 0, with the layer's
probability p, or by 1/(1 − p). For any one input the M answers are independent draws of MC dropout; across inputs a
member stays the same function, so what it says depends neither on the batch nor on when it is asked.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from solera.core.seeds import stream
from solera.distributions.families import Family
from solera.teachers.ensemble import Ensemble

UNITS = (nn.Dropout,)
CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def _uniform(key: int, shape: Sequence[int]) -> np.ndarray:
    """A number in [0, 1) per unit, hashed from the key and the unit's coordinates (SplitMix64 along each axis).

    A unit's number does not depend on how long the axes are: padding a sequence changes nothing for its tokens.
    """
    bits = np.array(key, dtype=np.uint64)
    for size in shape:
        bits = bits[..., None] + np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)) * 2.0**-53


class _Member(nn.Module):
    """The network with one choice of silent units. Copies share their weights."""

    def __init__(self, network: nn.Module, key: int) -> None:
        super().__init__()
        shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
        self.network, self.key, self.calls = copy.deepcopy(network, shared), key, 0
        layers = dropout_layers(self.network)
        self.register_buffer("choice", torch.tensor(key))  # the fingerprint must know
        self.register_buffer("rates", torch.tensor([layer.p for layer in layers], dtype=torch.double))
        for layer in layers:
            layer.register_forward_hook(self._silence)
        for module in self.network.modules():
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False  # its fast path passes dropout layers by

    def _silence(self, layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        assert isinstance(layer, _DropoutNd)
        shape = output.shape[1:] if isinstance(layer, UNITS) else (output.shape[1], *[1] * (output.ndim - 2))
        heard = torch.from_numpy(_uniform(stream(self.key, self.calls), shape) >= layer.p)
        self.calls += 1  # a layer used twice makes two choices
        return output * heard.to(output) * (1 / (1 - layer.p) if layer.p < 1 else 0.0)

    def forward(self, inputs: Any) -> Any:
        self.calls = 0
        return self.network(inputs)


def dropout_layers(model: nn.Module) -> list[_DropoutNd]:
    """The layers that drop anything; one whose noise is not a mask is refused."""
    layers = [module for module in model.modules() if isinstance(module, _DropoutNd) and module.p > 0]
    for layer in layers:
        if not isinstance(layer, UNITS + CHANNELS):
            raise ValueError(f"{type(layer).__name__} is not supported: use nn.Dropout, or nn.Dropout1d to Dropout3d")
    return layers


class DropoutEnsemble(Ensemble):
    """`members` fixed dropout choices of one trained network; everything but its dropout layers is as in evaluation.

    The first axis of what a dropout layer is given must be the examples. The dropout inside `nn.MultiheadAttention`,
    recurrent layers and `functional.dropout` is not a layer of its own and stays off.
    """

    def __init__(self, model: nn.Module, members: int = 10, seed: int = 0, family: Family = "categorical") -> None:
        if members < 1:
            raise ValueError(f"an ensemble needs at least one member, got members={members}")
        if not dropout_layers(model):
            raise ValueError(
                f"this {type(model).__name__} has no dropout layer with p > 0, so all members would be alike: train it "
                "with nn.Dropout layers (MLP and ConvNet have dropout=0.2, say), or make another kind of ensemble"
            )
        network = copy.deepcopy(model)
        super().__init__(
            [_Member(network, stream(seed, "dropout", number)) for number in range(members)], family=family
        )
