"""Seeded augmentation of images in plain torch: `[N, C, H, W]` in [0, 1], grey or in colour, of any size."""

import math
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "N C H W"]
Network = TypeVar("Network", bound=torch.nn.Module)


def channels_last(network: Network) -> Network:
    """The same network with its weights in the order in memory that is the faster one for small images."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  (torch's stubs lack this form)


def flipped(images: Images, random: torch.Generator, chance: float = 0.5) -> Images:
    """Left and right exchanged, in some of them."""
    chosen = torch.rand(len(images), 1, 1, 1, generator=random).to(images.device) < chance
    return torch.where(chosen, images.flip(-1), images)


def shifted(images: Images, random: torch.Generator, pixels: int = 4) -> Images:
    """Each moved by up to so many pixels along both axes; what comes in is black (padding and a random crop)."""
    height, width = images.shape[-2:]
    padded = functional.pad(images, (pixels,) * 4)
    down, right = torch.randint(2 * pixels + 1, (2, len(images), 1), generator=random).to(images.device)
    rows, columns = (
        torch.arange(size, device=images.device) + start for size, start in ((height, down), (width, right))
    )
    every = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.movedim(1, -1)[every, rows.unsqueeze(-1), columns.unsqueeze(-2)].movedim(-1, 1)


def turned(images: Images, random: torch.Generator, degrees: float = 15.0) -> Images:
    """Each turned about its middle by up to so many degrees either way, bilinearly, with black corners."""
    angle = math.radians(degrees) * (2 * torch.rand(len(images), generator=random) - 1).to(images)
    height, width = images.shape[-2:]
    zero, slant = torch.zeros_like(angle), angle.sin()
    matrix = torch.stack([angle.cos(), -slant * height / width, zero, slant * width / height, angle.cos(), zero], -1)
    grid = functional.affine_grid(matrix.view(-1, 2, 3), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def augmented(
    images: Float[Tensor, "*N C H W"],
    random: torch.Generator,
    flip: bool = True,
    pixels: int = 4,
    degrees: float = 15.0,
) -> Float[Tensor, "*N C H W"]:
    """Turned, shifted and, unless left and right mean something, flipped: a batch, or one image (for `Views`)."""
    batch = images if images.ndim == 4 else images.unsqueeze(0)
    if degrees:
        batch = turned(batch, random, degrees)
    if pixels:
        batch = shifted(batch, random, pixels)
    if flip:
        batch = flipped(batch, random)
    return batch if images.ndim == 4 else batch.squeeze(0)
