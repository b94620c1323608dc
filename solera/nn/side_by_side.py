"""Small fully connected networks of one architecture, asked about the same inputs as one computation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from solera.nn.heads import LAST_AXIS, chain, fan_out, side_by_side
from solera.nn.standardize import Standardize
from solera.nn.units import Units

LARGEST = 200_000  # parameters of a member: in larger ones the products outweigh the calls that are saved
PLAIN = (nn.Linear, nn.Flatten, Standardize, *LAST_AXIS)


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _alike(layers: Sequence[nn.Module]) -> bool:
    """Whether one layer of each network can run as one: a known kind, the same settings, nothing attached."""
    first = layers[0]
    if type(first) not in PLAIN or any(_hooked(layer) or repr(layer) != repr(first) for layer in layers):
        return False
    if any(
        type(layer) is not type(first) or (layer.training and "Dropout" in type(layer).__name__) for layer in layers
    ):
        return False
    if isinstance(first, nn.Flatten):
        return (first.start_dim, first.end_dim) == (1, -1)
    return not isinstance(first, (Standardize, Units)) or all(
        torch.equal(mine, theirs)
        for layer in layers[1:]
        for mine, theirs in zip(first.buffers(), layer.buffers(), strict=True)
    )


Layer = tuple[nn.Module, Tensor | None, Tensor | None]  # with the stacked weight and bias of a linear one


def _stack(networks: Sequence[nn.Module]) -> list[Layer] | None:
    """The layers that all networks have in common; None where they differ, or are of another kind."""
    chains = [chain(network) for network in networks]
    if len(chains) < 2 or len({len(layers) for layers in chains}) > 1 or any(map(_hooked, networks)):
        return None
    if max(sum(p.numel() for p in network.parameters()) for network in networks) > LARGEST:
        return None
    found: list[Layer] = []
    for layers in zip(*chains, strict=True):
        if not _alike(layers):
            return None
        weights = [layer._parameters.get("weight") for layer in layers]
        biases = [layer._parameters.get("bias") for layer in layers]
        stacks = (None if tensors[0] is None else torch.stack(tensors) for tensors in (weights, biases))  # type: ignore[arg-type]
        found.append((layers[0], *stacks))  # type: ignore[arg-type]
    return found if any(weight is not None for _, weight, _ in found) else None


class SideBySide:
    """M networks as one chain of matrix products, where they are small chains of linear and pointwise layers alike.

    Whether they are is decided by their layers and shapes alone, never by a clock: a run that is repeated, or goes on
    after a kill, computes the same numbers. Weights are stacked once, and again after any of them has changed.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self._networks = tuple(networks)
        every = [part for network in networks for part in network.modules()]
        self._stores = [(store, key) for part in every for store in (part._parameters, part._buffers) for key in store]
        self._parents = [part for part in every if part._modules]
        self._dropouts = [part for part in every if "Dropout" in type(part).__name__]
        self._seen: object = None
        self._layers: list[Layer] | None = None
        self._never = _stack(networks) is None

    def __call__(self, inputs: Tensor) -> Tensor | None:
        """`[*batch, M, K]`; None where the networks must be asked one by one."""
        layers = None if self._never else self._current()
        if layers is None or any(weight is not None and weight.dtype != inputs.dtype for _, weight, _ in layers):
            return None
        batch: torch.Size | None = None
        for layer, weight, bias in layers:
            if weight is None:
                inputs = layer(inputs)
            elif batch is None:
                batch = inputs.shape[:-1]
                inputs = fan_out(inputs.reshape(-1, inputs.shape[-1]), weight, bias).transpose(0, 1)
            else:
                inputs = side_by_side(inputs, weight, bias)
        assert batch is not None
        return inputs.transpose(0, 1).reshape(*batch, len(self._networks), inputs.shape[-1])

    def _current(self) -> list[Layer] | None:
        """The stacked layers as the networks are now; None while they are being trained."""
        tensors = [tensor for store, key in self._stores if (tensor := store[key]) is not None]
        if any(tensor.requires_grad or tensor.is_inference() for tensor in tensors):
            return None
        seen = (
            [(tensor.data_ptr(), tensor._version) for tensor in tensors],
            [id(child) for parent in self._parents for child in parent._modules.values()],
            [part.training for part in self._dropouts],
        )
        if seen != self._seen:
            with torch.inference_mode(False), torch.no_grad():  # a cache that a later gradient may pass through
                self._seen, self._layers = seen, _stack(self._networks)
        return self._layers
