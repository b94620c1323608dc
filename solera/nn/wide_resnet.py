"""Wide residual networks for small images (Zagoruyko & Komodakis, 2016): WRN-d-w."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import relu


class _Block(nn.Module):
    """Norm, ReLU and convolution, twice, beside a skip connection; a change of size comes after the first ReLU."""

    def __init__(self, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(before), nn.BatchNorm2d(after)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.skip = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inputs = relu(self.norm1(images), inplace=True)
        outputs = self.conv2(self.dropout(relu(self.norm2(self.conv1(inputs)), inplace=True)))
        return outputs + (images if self.skip is None else self.skip(inputs))


class WideResNet(nn.Sequential):
    """WRN-d-w, pre-activation: three groups of (d − 4)/6 blocks with 16·w, 32·w and 64·w channels.

    WRN-28-10 has 36.5 million parameters, WRN-16-1 0.17 million. With network and images
    `.to(memory_format=torch.channels_last)` a training step of WRN-16-1 (16 images, one CPU thread) took 55 ms instead
    of 82; Solera lays the images out so by itself. `stride` is the first convolution's; with 2 all others see a quarter
    of the pixels.
    """

    def __init__(
        self, depth: int, width: int, shape: Sequence[int], outputs: int, dropout: float = 0.0, stride: int = 1
    ) -> None:
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(f"a WRN has 6·n + 4 layers (10, 16, 22, 28, 40), got depth={depth}")
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 16, 3, stride, padding=1, bias=False)
        before = 16
        for group, channels in enumerate((16 * width, 32 * width, 64 * width)):
            strides = [1 if group == 0 else 2] + [1] * (blocks - 1)
            layers = [_Block(before if b == 0 else channels, channels, s, dropout) for b, s in enumerate(strides)]
            self.add_module(f"group{group + 1}", nn.Sequential(*layers))
            before = channels
        self.norm, self.relu = nn.BatchNorm2d(before), nn.ReLU(inplace=True)
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.classifier = nn.Linear(before, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.settings = {
            "depth": depth,
            "width": width,
            "shape": list(shape),
            "outputs": outputs,
            "dropout": dropout,
            "stride": stride,
        }
