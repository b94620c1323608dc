"""Readers of the public data sets that the recipes use; a missing file is named before any work starts."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera.core.array_files import array_names, read_npz
from solera.core.seeds import generator


def require_files(folder: str, names: list[str]) -> None:
    """Says which file is not there, and what to do."""
    for name in names:
        if not (Path(folder) / name).is_file():
            raise FileNotFoundError(f"there is no {Path(folder) / name}: pass the folder with the data sets as --data")


def load_npz(folder: str, name: str) -> dict[str, np.ndarray]:
    """Every array of a file."""
    path = Path(folder) / name
    return {key: read_npz(path, key) for key in array_names(path)}


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


def colour(images: np.ndarray) -> Tensor:
    """Bytes `(N, H, W, 3)` as channels first in [0, 1]."""
    return torch.from_numpy(images).movedim(-1, 1).float() / 255


def _full_cifar(folder: str, classes: int, part: str) -> list[Path]:
    """The files of the full set's binary version, as its authors offer it, where they are all there."""
    names = {
        (10, "train"): [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)],
        (10, "test"): ["cifar-10-batches-bin/test_batch.bin"],
        (100, "train"): ["cifar-100-binary/train.bin"],
        (100, "test"): ["cifar-100-binary/test.bin"],
    }[classes, part]
    paths = [Path(folder) / name for name in names]
    return paths if all(path.is_file() for path in paths) else []


CIFAR = {
    (10, "train"): "images/cifar10_train20k.npz",
    (10, "test"): "images/cifar10_test.npz",
    (100, "train"): "images/cifar100_train20k.npz",
    (100, "test"): "images/cifar100_test5k.npz",
}


def require_cifar(folder: str, classes: int) -> None:
    """Says which file is not there, unless the full set is."""
    require_files(
        folder, [CIFAR[classes, part] for part in ("train", "test") if not _full_cifar(folder, classes, part)]
    )


def load_cifar(folder: str, classes: int, part: str) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10 or CIFAR-100, images `(N, 32, 32, 3)` and labels: the full set where it is there, else our part of it.

    The full set is the binary version, unpacked in the folder: `cifar-10-batches-bin/` or `cifar-100-binary/`.
    """
    files = _full_cifar(folder, classes, part)
    if not files:
        return load_colour(folder, CIFAR[classes, part])
    before = 1 if classes == 10 else 2  # bytes before an image: its class; of CIFAR-100 the coarse class first
    rows = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, before + 3 * 32 * 32)
    images = rows[:, before:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(np.moveaxis(images, 1, -1)), rows[:, before - 1].astype(np.int64)


def shrunk(images: np.ndarray) -> Tensor:
    """Colour images as grey ones of 28 × 28, by averaging."""
    grey_images = torch.from_numpy(images.astype(np.float32) / 255).mean(-1, keepdim=True).movedim(-1, 1)
    return torch.nn.functional.interpolate(grey_images, (28, 28), mode="area")
