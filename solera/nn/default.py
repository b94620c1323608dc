"""A sensible student for inputs of a given shape."""

from torch import Tensor, nn

from solera.nn.convnet import ConvNet
from solera.nn.mlp import MLP


def network_for(inputs: Tensor, classes: int) -> nn.Module:
    """Rows `[N, D]` get a standardising MLP, images `[N, C, H, W]` a small convnet."""
    if inputs.ndim == 2:
        return MLP.for_inputs(inputs, classes, hidden=(128, 128))
    if inputs.ndim == 4 and inputs.shape[1] <= 4:
        size = min(inputs.shape[2:])
        channels = tuple(16 << step for step in range(4) if size >> (step + 1) >= 2) or (16,)
        return ConvNet(tuple(inputs.shape[1:]), classes, channels=channels, hidden=128)
    raise ValueError(
        f"there is no default student for inputs of shape {tuple(inputs.shape[1:])}: pass rows (N, D), images "
        "(N, channels, height, width), or a network of your own"
    )
