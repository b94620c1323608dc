"""Seeds: one function for all random numbers, with independent named streams."""

import hashlib
import random

import numpy as np
import torch


def stream(seed: int, *names: object) -> int:
    """A seed for one purpose, such as `stream(seed, "member", 3)`: the same on every machine and in every process."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def seed_everything(seed: int) -> None:
    """Python, NumPy and torch, from one number."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the same numbers; torch.manual_seed writes down the call stack for each kind of GPU there might be
        torch.default_generator.manual_seed(seed)


def generator(seed: int, *names: object) -> torch.Generator:
    """A torch generator of its own for this stream."""
    return torch.Generator().manual_seed(stream(seed, *names))


def sample(size: int, most: int, *names: object) -> np.ndarray:
    """At most so many places out of `size`, in their order, the same ones every time."""
    if size <= most:
        return np.arange(size)
    return np.sort(np.random.default_rng(stream(0, "points", *names)).choice(size, most, replace=False))
