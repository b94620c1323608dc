"""Readers of the public data sets that the recipes use; a missing file is named before any work starts."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera.core.seeds import generator


def require_files(folder: str, names: list[str]) -> None:
    """Says which file is not there, and what to do."""
    for name in names:
        if not (Path(folder) / name).is_file():
            raise FileNotFoundError(f"there is no {Path(folder) / name}: pass the folder with the data sets as --data")


def load_npz(folder: str, name: str) -> dict[str, np.ndarray]:
    """Every array of a file."""
    with np.load(Path(folder) / name, allow_pickle=False) as file:
        return {key: file[key] for key in file}


def load_colour(folder: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Colour images `(N, 32, 32, 3)` and labels: planes are stored as differences to green and to their neighbours."""
    arrays = load_npz(folder, name)
    planes = arrays["planes"]
    for axis in (2, 3):
        planes = np.cumsum(planes, axis=axis, dtype=np.uint8)
    planes[[0, 2]] += planes[1]
    return np.moveaxis(planes, 0, -1), arrays["y"].astype(np.int64)


def grey(images: np.ndarray) -> Tensor:
    """Bytes `(N, H, W)` as one channel in [0, 1]."""
    return torch.from_numpy(images.astype(np.float32) / 255).unsqueeze(1)


def blends(images: Tensor, count: int, seed: int) -> Tensor:
    """Random mixtures a·x_i + (1 − a)·x_j: unlabelled inputs made from the training images, on which members differ."""
    draw = generator(seed, "blends")
    first, second = (images[torch.randint(len(images), (count,), generator=draw)] for _ in range(2))
    share = torch.rand(count, 1, 1, 1, generator=draw)
    return share * first + (1 - share) * second


def rotated(images: Tensor, degrees: float) -> Tensor:
    """Turned counter-clockwise about their middle, bilinearly, with black corners."""
    angle = torch.tensor(degrees).deg2rad()
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
    matrix = torch.cat([turn, torch.zeros(2, 1)], 1).expand(len(images), 2, 3)
    grid = torch.nn.functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)


def translated(images: Tensor, pixels: int) -> Tensor:
    """Moved to the right; what comes in from the left is black."""
    return torch.nn.functional.pad(images, (pixels, 0))[..., : images.shape[-1]]
