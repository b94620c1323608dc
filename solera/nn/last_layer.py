"""The linear layer that a network ends with, found by looking at what it does, and left out on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.nn.call import call


@dataclass(frozen=True)
class Unfinished:
    """What a network says but for its last layer."""

    hidden: Float[Tensor, "*batch H"]
    layer: nn.Linear


def last_linear(network: nn.Module, inputs: Any) -> tuple[nn.Linear | None, Any]:
    """The layer whose output is the network's own, and that output; None where something comes after it.

    Tied weights (a transformer's embedding) are no obstacle, nor is a Hugging Face model whose `logits` are the output
    of its `lm_head`. A layer with hooks, parametrizations or more than one call is left alone.
    """
    said: list[tuple[nn.Linear, Any]] = []

    def listen(layer: Any, _: Any, output: Any) -> None:
        said.append((layer, output))

    layers = [
        m for m in network.modules() if type(m) is nn.Linear and not m._forward_hooks and not m._forward_pre_hooks
    ]
    handles = [layer.register_forward_hook(listen) for layer in layers]
    training = network.training
    try:
        with torch.no_grad():
            output = call(network.eval(), inputs)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    last = [layer for layer, own in said if own is output]
    once = len(last) == 1 and sum(layer is last[0] for layer, _ in said) == 1
    return (last[0] if once else None), output


@contextmanager
def _left_out(layer: nn.Linear) -> Iterator[None]:
    layer.forward = lambda input: input  # type: ignore[method-assign]
    try:
        yield
    finally:
        del layer.forward


def call_unfinished(layer: nn.Linear, network: nn.Module, inputs: Any, wrapped: nn.Module | None = None) -> Unfinished:
    """`call`, that leaves out the last layer."""
    with _left_out(layer):
        return Unfinished(call(network, inputs, wrapped), layer)
