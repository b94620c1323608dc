"""A sensible student for inputs of a given shape."""

from torch import Tensor, nn

from solera.nn.convnet import ConvNet
from solera.nn.mlp import MLP


def network_for(inputs: Tensor, outputs: int, targets: Tensor | None = None) -> nn.Module:
    """Rows `[N, D]` get a standardising MLP, images `[N, C, H, W]` a small convnet.

    For regression, `targets` are some of the numbers to expect: rows only, and in their units.
    """
    if inputs.ndim == 2:
        return MLP.for_inputs(inputs, outputs, hidden=(128, 128), targets=targets)
    if inputs.ndim == 4 and inputs.shape[1] <= 4 and targets is None:
        size = min(inputs.shape[2:])
        channels = tuple(16 << step for step in range(4) if size >> (step + 1) >= 2) or (16,)
        return ConvNet(tuple(inputs.shape[1:]), outputs, channels=channels, hidden=128)
    raise ValueError(
        f"there is no default student for inputs of shape {tuple(inputs.shape[1:])}: pass rows (N, D), images "
        "(N, channels, height, width), or a network of your own"
    )
