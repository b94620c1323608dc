"""Views of images `(examples, channels, height, width)`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.data.draws import Draws
from solera.data.view import View, per_example


def _require_images(view: View, inputs: Tensor) -> None:
    if inputs.ndim != 4:
        raise ValueError(
            f"{type(view).__name__} takes images (examples, channels, height, width), got inputs of shape "
            f"{tuple(inputs.shape)}: for rows there are Resample, Jitter and Blend"
        )


def _moved(images: Tensor, pixels: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """x′[h, w] = x[h + a, w + b] with a, b uniform in −pixels … pixels, edges repeated; and where that is inside."""
    by = draws.below(2 * pixels + 1, len(images), 2).to(images.device) - pixels
    height, width = images.shape[-2:]
    down = torch.arange(height, device=images.device) + by[:, :1]
    right = torch.arange(width, device=images.device) + by[:, 1:]
    inside = ((down >= 0) & (down < height))[:, None, :, None] & ((right >= 0) & (right < width))[:, None, None, :]
    down = down.clamp(0, height - 1)[:, None, :, None].expand(-1, images.shape[1], -1, width)
    right = right.clamp(0, width - 1)[:, None, None, :].expand(-1, images.shape[1], height, -1)
    return images.gather(2, down).gather(3, right), inside


@dataclass(frozen=True, eq=False)
class _Moved(View):
    """Moved up, down and sideways by at most so many pixels."""

    pixels: int = 2

    def __post_init__(self) -> None:
        require_positive("pixels", self.pixels)


@dataclass(frozen=True, eq=False)
class Shift(_Moved):
    """x′[h, w] = x[h + a, w + b] with a and b uniform in −pixels … pixels, 0 where that is outside."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        moved, inside = _moved(inputs, self.pixels, draws)
        return torch.where(inside, moved, torch.zeros((), dtype=inputs.dtype, device=inputs.device))


@dataclass(frozen=True, eq=False)
class Crop(_Moved):
    """Padded by `pixels` on all sides, the edges repeated, and cut to the old size at a random place."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        return _moved(inputs, self.pixels, draws)[0]


@dataclass(frozen=True, eq=False)
class Flip(View):
    """Left and right exchanged in every second image, at random: not for digits or letters."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        return torch.where(per_example(draws.uniform(len(inputs)), inputs) < 0.5, inputs.flip(-1), inputs)
