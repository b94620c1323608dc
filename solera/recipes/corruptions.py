"""Corruptions of images in the manner of CIFAR-C (Hendrycks, Dietterich, 2019), in plain torch.

Images are `[N, C, H, W]` in [0, 1], grey or in colour, of any size; lengths grow with those above 32 pixels.
"""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from solera.core.seeds import generator
from solera.recipes.images import Images
from solera.recipes.page import pyplot, save_figure


def _normal(images: Tensor, random: torch.Generator) -> Tensor:
    return torch.randn(images.shape, generator=random).to(images)


def _filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Every channel with one kernel, whose sum is one; the edges are repeated."""
    channels, (height, width) = images.shape[1], kernel.shape
    padded = functional.pad(images, (width // 2, width // 2, height // 2, height // 2), mode="replicate")
    return functional.conv2d(padded, (kernel / kernel.sum()).to(images).expand(channels, 1, -1, -1), groups=channels)


def _offsets(radius: float) -> tuple[Tensor, Tensor]:
    side = torch.arange(-math.ceil(radius), math.ceil(radius) + 1, dtype=torch.float32)
    return side.unsqueeze(1), side.unsqueeze(0)


def _smoothed(images: Tensor, sigma: float) -> Tensor:
    y, _ = _offsets(min(3 * sigma, max(images.shape[-2:])))
    bell = (-y.square() / (2 * sigma**2)).exp()
    return _filtered(_filtered(images, bell), bell.mT)


def _at(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """What lies so many pixels further down and right of each pixel, bilinearly; the edges are repeated."""
    height, width = images.shape[-2:]
    y, x = (torch.arange(size, device=images.device, dtype=images.dtype) for size in (height, width))
    y, x = ((2 * (at + by) + 1) / size - 1 for at, by, size in ((y[:, None], down, height), (x, right, width)))
    grid = torch.stack(torch.broadcast_tensors(x, y), -1).expand(len(images), height, width, 2)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _unit(images: Tensor) -> float:
    """How many pixels one pixel of an image 32 high is here; at least one."""
    return max(1.0, min(images.shape[-2:]) / 32)


def _clouds(images: Tensor, random: torch.Generator, roughness: float = 0.6) -> Tensor:
    """Fractal noise [N, 1, H, W] in [0, 1]: random fields of every octave, the finer the fainter."""
    size, total, strength = list(images.shape[-2:]), torch.zeros_like(images[:, :1]), 1.0
    for octave in range(1, max(2, math.ceil(math.log2(max(size))) + 1)):
        coarse = torch.rand(len(images), 1, 2**octave, 2**octave, generator=random).to(images)
        total = total + strength * functional.interpolate(coarse, size, mode="bilinear", align_corners=True)
        strength *= roughness
    low, high = total.amin((-2, -1), keepdim=True), total.amax((-2, -1), keepdim=True)
    return (total - low) / torch.where(high > low, high - low, 1.0)


def _line(length: float, angle: float) -> Tensor:
    """A blunt line through the middle of a kernel."""
    y, x = _offsets(length)
    along, beside = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    return (length + 0.5 - along.abs()).clamp(0, 1) * (1 - beside.abs()).clamp(min=0)


def gaussian_noise(images: Images, severity: int, random: torch.Generator) -> Images:
    """Of a sensor in little light."""
    return images + (0.04, 0.06, 0.08, 0.10, 0.13)[severity - 1] * _normal(images, random)


def shot_noise(images: Images, severity: int, random: torch.Generator) -> Images:
    """Light comes in grains: the more of it, the more noise. (Normal for Poisson, so that it grows with severity.)"""
    grains = (300, 150, 80, 50, 30)[severity - 1]
    return images + (images.clamp(min=0) / grains).sqrt() * _normal(images, random)


def impulse_noise(images: Images, severity: int, random: torch.Generator) -> Images:
    """Salt and pepper."""
    chance, salt = torch.rand(2, *images.shape, generator=random).to(images)
    return torch.where(chance < (0.01, 0.02, 0.04, 0.06, 0.09)[severity - 1], (salt > 0.5).to(images), images)


def speckle_noise(images: Images, severity: int, random: torch.Generator) -> Images:
    """In proportion to the light."""
    return images * (1 + (0.08, 0.12, 0.16, 0.22, 0.30)[severity - 1] * _normal(images, random))


def defocus_blur(images: Images, severity: int, random: torch.Generator) -> Images:
    """Every point becomes a disc."""
    radius = (0.7, 0.95, 1.2, 1.6, 2.1)[severity - 1] * _unit(images)
    y, x = _offsets(radius + 0.5)
    return _filtered(images, (radius + 0.5 - (y.square() + x.square()).sqrt()).clamp(0, 1))


def gaussian_blur(images: Images, severity: int, random: torch.Generator) -> Images:
    """Every point becomes a bell."""
    return _smoothed(images, (0.45, 0.6, 0.8, 1.05, 1.4)[severity - 1] * _unit(images))


def glass_blur(images: Images, severity: int, random: torch.Generator) -> Images:
    """Seen through frosted glass: every pixel is taken from somewhere near."""
    reach = (0.35, 0.5, 0.7, 0.95, 1.3)[severity - 1] * _unit(images)
    down, right = (2 * torch.rand(2, len(images), *images.shape[-2:], generator=random) - 1).to(images)
    return _smoothed(_at(images, reach * down, reach * right), 0.4 * _unit(images))


def motion_blur(images: Images, severity: int, random: torch.Generator) -> Images:
    """The camera moved, in each image another way."""
    length = (0.9, 1.3, 1.8, 2.4, 3.2)[severity - 1] * _unit(images)
    angles = math.pi * torch.rand(len(images), generator=random)
    kernels = torch.stack([_line(length, float(angle)) for angle in angles]).to(images)
    kernels = kernels / kernels.sum((-2, -1), keepdim=True)
    reach = kernels.shape[-1] // 2
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    each = kernels.repeat_interleave(images.shape[1], 0).unsqueeze(1)
    return functional.conv2d(padded.flatten(0, 1).unsqueeze(0), each, groups=len(each)).view(images.shape)


def zoom_blur(images: Images, severity: int, random: torch.Generator) -> Images:
    """The lens zoomed in during the exposure: the mean of views up to so much closer."""
    height, width = images.shape[-2:]
    y = torch.arange(height, device=images.device, dtype=images.dtype).unsqueeze(1) - (height - 1) / 2
    x = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    closest = (0.08, 0.12, 0.17, 0.23, 0.31)[severity - 1]
    shrunk = [1 / (1 + closest * step / 7) - 1 for step in range(8)]
    return torch.stack([_at(images, by * y, by * x) for by in shrunk]).mean(0)


def fog(images: Images, severity: int, random: torch.Generator) -> Images:
    """White clouds in front, and contrast lost in them."""
    density = (0.2, 0.32, 0.44, 0.56, 0.68)[severity - 1]
    veil = density * (0.5 + 0.5 * _clouds(images, random))
    return images * (1 - veil) + 0.95 * veil


def frost(images: Images, severity: int, random: torch.Generator) -> Images:
    """Bright crystals on the glass: ridges of fractal noise, bluish in colour images."""
    strength = (0.25, 0.38, 0.52, 0.66, 0.8)[severity - 1]
    ridges = 1 - (2 * _clouds(images, random, roughness=0.5) - 1).abs()
    tint = images.new_tensor([0.85, 0.93, 1.0] if images.shape[1] == 3 else [0.93]).view(1, -1, 1, 1)
    cover = strength * ridges**3
    return images * (1 - cover) + tint * cover


def snow(images: Images, severity: int, random: torch.Generator) -> Images:
    """Flakes, blurred along their fall, in a paler scene."""
    amount, pale = (0.02, 0.04, 0.06, 0.085, 0.115)[severity - 1], 0.06 * severity
    chance, size = torch.rand(2, len(images), 1, *images.shape[-2:], generator=random).to(images)
    flakes = _filtered((chance < amount) * size, _line(1.2 * _unit(images), math.radians(60)))
    paler = images + pale * (0.5 + 0.5 * images.mean(1, keepdim=True) - images)
    return paler + (1 - paler) * (2.5 * flakes).clamp(max=0.9)


def brightness(images: Images, severity: int, random: torch.Generator) -> Images:
    """Too long an exposure."""
    return images + (0.06, 0.12, 0.18, 0.25, 0.33)[severity - 1]


def contrast(images: Images, severity: int, random: torch.Generator) -> Images:
    """Drawn towards the mean."""
    mean = images.mean((-3, -2, -1), keepdim=True)
    return mean + (0.75, 0.55, 0.42, 0.3, 0.18)[severity - 1] * (images - mean)


def elastic(images: Images, severity: int, random: torch.Generator) -> Images:
    """Printed on rubber, and stretched here and there."""
    strength = (0.5, 0.7, 0.95, 1.25, 1.6)[severity - 1] * _unit(images)
    field = _smoothed(torch.randn(len(images), 2, *images.shape[-2:], generator=random).to(images), 2 * _unit(images))
    field = strength * field / field.square().mean((-2, -1), keepdim=True).sqrt()
    return _at(images, field[:, 0], field[:, 1])


def _boxes(size: int, wanted: int, like: Tensor) -> Tensor:
    """[wanted, size]: how much each old pixel has of each new one; rows sum to one."""
    new, old = (torch.arange(n + 1, dtype=torch.float64) / n for n in (wanted, size))
    overlap = torch.minimum(new[1:, None], old[1:]) - torch.maximum(new[:-1, None], old[:-1])
    return (overlap.clamp(min=0) * wanted).to(like)


def pixelate(images: Images, severity: int, random: torch.Generator) -> Images:
    """Reduced to fewer pixels, and shown at the old size."""
    share = (0.9, 0.75, 0.6, 0.45, 0.33)[severity - 1] / math.sqrt(_unit(images))
    for axis in (-2, -1):
        size = images.shape[axis]
        small = max(1, round(share * size))
        through = _boxes(small, size, images) @ _boxes(size, small, images)
        images = (images.movedim(axis, -1) @ through.mT).movedim(-1, axis)
    return images


# fmt: off
_LUMINANCE = torch.tensor([  # quantization steps of the JPEG standard, Annex K
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55], [14, 13, 16, 24, 40, 57, 69, 56],
    [14, 17, 22, 29, 51, 87, 80, 62], [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99]])
_CHROMA = torch.tensor([
    [17, 18, 24, 47, 99, 99, 99, 99], [18, 21, 26, 66, 99, 99, 99, 99], [24, 26, 56, 99, 99, 99, 99, 99],
    [47, 66, 99, 99, 99, 99, 99, 99], *[[99] * 8] * 4])
# fmt: on
_YCBCR = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])


def jpeg(images: Images, severity: int, random: torch.Generator) -> Images:
    """Blocks of eight by eight whose cosine transform is rounded, coarsely where the eye does not look."""
    quality = (80, 60, 40, 25, 15)[severity - 1]
    scale = (5000 / quality if quality < 50 else 200 - 2 * quality) / 100
    channels, (height, width) = images.shape[1], images.shape[-2:]
    mix = (_YCBCR if channels == 3 else torch.eye(channels)).to(images)
    tables = torch.stack([_LUMINANCE if channels != 3 or c == 0 else _CHROMA for c in range(channels)]).to(images)
    steps = (tables * scale).round().clamp(min=1)
    padded = functional.pad(images, (0, -width % 8, 0, -height % 8), mode="replicate")
    planes = torch.einsum("dc,nchw->ndhw", mix, 255 * padded - 128)
    blocks = planes.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)  # [..., 8, 8]
    k = torch.arange(8, device=images.device, dtype=images.dtype)
    cosine = ((2 * k + 1) * k.unsqueeze(1) * math.pi / 16).cos() * torch.where(k == 0, 0.125, 0.25).sqrt().unsqueeze(1)
    steps = steps[:, None, None]
    kept = (cosine @ blocks @ cosine.mT / steps).round() * steps
    planes = (cosine.mT @ kept @ cosine).transpose(-3, -2).flatten(-2).flatten(-3, -2)
    return (torch.einsum("cd,ndhw->nchw", mix.inverse(), planes)[..., :height, :width] + 128) / 255


Corruption = Callable[[Images, int, torch.Generator], Images]

FAMILIES: dict[str, tuple[Corruption, ...]] = {
    "noise": (gaussian_noise, shot_noise, impulse_noise, speckle_noise),
    "blur": (defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur),
    "weather": (fog, frost, snow, brightness),
    "digital": (contrast, elastic, pixelate, jpeg),
}
CORRUPTIONS = tuple(corruption for family in FAMILIES.values() for corruption in family)
SEVERITIES = (1, 2, 3, 4, 5)


def corrupted(images: Images, corruption: Corruption, severity: int, seed: int = 0) -> Images:
    """The images after one corruption, in [0, 1]: of the same images and seed always the same.

    All severities of a corruption use the same random numbers, so that only their strength differs.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity}")
    if not images.is_floating_point() or (len(images) and (images.min() < 0 or images.max() > 1)):
        raise ValueError("corruptions take images in [0, 1]: divide bytes by 255, and standardize only afterwards")
    return corruption(images, severity, generator(seed, corruption.__name__)).clamp(0, 1)


def contact_sheet(images: Images, path: str | Path, seed: int = 0) -> None:
    """A picture of every corruption at every severity, of the images in turn, to look at."""
    plt = pyplot()
    figure, axes = plt.subplots(len(CORRUPTIONS), 6, figsize=(6.6, 1.1 * len(CORRUPTIONS)), layout="constrained")
    for number, (row, corruption) in enumerate(zip(axes, CORRUPTIONS, strict=True)):
        image = images[number % len(images)].unsqueeze(0)
        shown = [image, *(corrupted(image, corruption, severity, seed) for severity in SEVERITIES)]
        for cell, panel in zip(row, shown, strict=True):
            pixels = panel[0].movedim(0, -1).expand(-1, -1, 3).cpu().numpy()
            cell.imshow(pixels, interpolation="nearest", vmin=0, vmax=1)
            cell.set(xticks=[], yticks=[])
        row[0].set_ylabel(corruption.__name__.replace("_", "\n"), fontsize=7)
    for cell, title in zip(axes[0], ["as it is", *map(str, SEVERITIES)], strict=True):
        cell.set_title(title, fontsize=8)
    save_figure(figure, Path(path))
    plt.close(figure)
