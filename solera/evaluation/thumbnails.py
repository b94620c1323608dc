"""An input as a person can look at it: an image, a row of names and values, or else its shape."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from solera.evaluation.json_values import significant
from solera.evaluation.png import data_uri

SIDE = 64  # pixels: larger images are shrunk
VALUES = 60  # of a row; longer rows are cut
Range = tuple[float, float]


def channels_first(image: Num[Tensor, "..."]) -> Tensor | None:
    """Grey or colour `[C, H, W]` of either order of axes; None for what is no image."""
    if image.ndim != 3:
        return None
    if image.shape[0] in (1, 3):
        return image
    return image.permute(2, 0, 1) if image.shape[2] in (1, 3) else None


def value_range(inputs: Num[Tensor, "..."]) -> Range:
    """What black and white are: 0 and 1, or 0 and 255, or the least and the greatest value there is."""
    low, high = float(inputs.min()), float(inputs.max())
    if low >= 0 and high <= 255:
        return 0.0, 1.0 if high <= 1 else 255.0
    return low, high if high > low else low + 1


def picture(image: Num[Tensor, "C H W"], span: Range) -> str:
    """An image as a data URI, at most 64 pixels wide and high."""
    low, high = span
    shown = ((image.float() - low) / (high - low)).clamp(0, 1)
    shrink = -(-max(image.shape[1:]) // SIDE)  # rounded up
    if shrink > 1:
        shown = torch.nn.functional.avg_pool2d(shown.unsqueeze(0), shrink, ceil_mode=True).squeeze(0)
    pixels = (255 * shown).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return data_uri(np.squeeze(pixels, 2) if pixels.shape[2] == 1 else pixels)


def shown(example: Num[Tensor, "..."], span: Range, features: Sequence[str] | None) -> dict[str, Any]:
    """One input: `image`, `row` or `text`."""
    example = example.detach().cpu()
    image = channels_first(example)
    if image is not None:
        return {"image": picture(image, span)}
    if example.ndim != 1:
        return {"text": f"an input of shape {tuple(example.shape)}"}
    names = features or [f"x{number}" for number in range(len(example))]
    row: list[list[Any]] = [[name, significant(value)] for name, value in zip(names, example.tolist(), strict=True)]
    return {"row": row if len(row) <= VALUES else [*row[:VALUES], ["…", f"{len(row) - VALUES} more"]]}
