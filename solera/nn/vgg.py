"""VGG for small images (Simonyan & Zisserman, 2015), with batch norm and dropout as in the EnD² paper's appendix A."""

from collections.abc import Sequence

from torch import nn

_STAGES = {  # convolutions before each pooling
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


class VGG(nn.Sequential):
    """VGG-16 (or 11, 13, 19): 3×3 convolutions in five stages of 64 to 512 channels, then two hidden layers.

    Of a 32×32 image the stages leave 512 numbers, so the hidden layers have 512 units, not 4096: 15.3 million
    parameters. `dropout`, after each hidden layer, is the probability of dropping a unit; the paper's Table 6 quotes
    that of keeping it. `feature_dropout` comes after each convolution. Its prior networks have no batch norm:
    `norm=False`.
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        depth: int = 16,
        dropout: float = 0.5,
        feature_dropout: float = 0.0,
        norm: bool = True,
        channels: int = 64,
    ) -> None:
        if depth not in _STAGES:
            raise ValueError(f"depth must be one of {', '.join(map(str, _STAGES))}, got {depth}")
        if min(shape[1:]) < 32:
            raise ValueError(f"five poolings leave nothing of a {shape[1]}×{shape[2]} image: pad it to 32×32 or more")
        features: list[nn.Module] = []
        before, hidden = shape[0], 8 * channels
        for stage, count in enumerate(_STAGES[depth]):
            after = min(channels << stage, hidden)
            for _ in range(count):
                features += [nn.Conv2d(before, after, 3, padding=1), *([nn.BatchNorm2d(after)] if norm else [])]
                features += [nn.ReLU(inplace=True), *([nn.Dropout(feature_dropout)] if feature_dropout else [])]
                before = after
            features.append(nn.MaxPool2d(2))
        classifier = [
            *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout)),
            *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(dropout)),
            nn.Linear(hidden, outputs),
        ]
        super().__init__()
        self.features, self.pool = nn.Sequential(*features), nn.AdaptiveAvgPool2d(1)
        self.flatten, self.classifier = nn.Flatten(), nn.Sequential(*classifier)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        self.settings = {
            "shape": list(shape),
            "outputs": outputs,
            "depth": depth,
            "dropout": dropout,
            "feature_dropout": feature_dropout,
            "norm": norm,
            "channels": channels,
        }
