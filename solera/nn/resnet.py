"""Residual networks for small images (He et al., 2016, V1), as the Hydra paper has them: ResNet-20, 32, 44, ..."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu


class _Block(nn.Module):
    """Two convolutions with norms beside a skip connection, and a ReLU after their sum."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, padding=1), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after)
        self.skip = None if before == after else nn.Conv2d(before, after, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.norm2(self.conv2(relu(self.norm1(self.conv1(images)), inplace=True)))
        return relu(outputs + (images if self.skip is None else self.skip(images)), inplace=True)


class ResNet(nn.Sequential):
    """ResNet-d: three groups of (d − 2)/6 blocks with 16, 32 and 64 channels, skips of 1×1 convolutions between them.

    Convolutions have biases, as in the Hydra paper's count: ResNet-20 has 273,066 parameters and 1,376 running
    statistics, 274,442 together. Its last block, Hydra's head there, is `group3.2`. Channels-last images are faster on
    a CPU, as for `WideResNet`.
    """

    def __init__(self, depth: int, shape: Sequence[int], outputs: int, channels: int = 16) -> None:
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"a ResNet for small images has 6·n + 2 layers (20, 32, 44, 56), got depth={depth}")
        super().__init__()
        self.conv, self.norm = nn.Conv2d(shape[0], channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        before = channels
        for group in range(3):
            after, strides = channels << group, [1 if group == 0 else 2] + [1] * (blocks - 1)
            layers = [_Block(before if b == 0 else after, after, s) for b, s in enumerate(strides)]
            self.add_module(f"group{group + 1}", nn.Sequential(*layers))
            before = after
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.classifier = nn.Linear(before, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        self.settings = {"depth": depth, "shape": list(shape), "outputs": outputs, "channels": channels}
