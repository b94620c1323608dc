"""A small convolutional network for small images."""

from collections.abc import Sequence

from torch import nn


class ConvNet(nn.Sequential):
    """3×3 convolutions with ReLU, each followed by 2×2 max pooling, then one hidden layer."""

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        channels: Sequence[int] = (16, 32),
        hidden: int = 64,
        dropout: float = 0.0,
    ) -> None:
        depth, height, width = shape
        if min(height, width) >> len(channels) < 1:
            raise ValueError(f"{len(channels)} poolings leave nothing of a {height}×{width} image: pass fewer channels")
        layers: list[nn.Module] = []
        for before, after in zip([depth, *channels], channels, strict=False):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        flat = channels[-1] * (height >> len(channels)) * (width >> len(channels))
        layers += [nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        super().__init__(*layers, nn.Linear(hidden, outputs))
        self.settings = {
            "shape": list(shape),
            "outputs": outputs,
            "channels": list(channels),
            "hidden": hidden,
            "dropout": dropout,
        }
