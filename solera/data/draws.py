"""Random numbers for the examples of a batch: from one generator, or each example's own."""

from abc import ABC, abstractmethod
from functools import cache
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.seeds import stream

LEVELS = 1 << 16  # of the normal distribution's quantiles


@cache
def normal_quantiles() -> Float[Tensor, " levels"]:
    """Φ⁻¹((k + ½) / 2¹⁶): looked up, a normal number has the same bits wherever it stands in a batch."""
    return torch.special.ndtri((torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS).float()


class Draws(ABC):
    """Uniform numbers, and whatever is made of them, for every example of a batch."""

    @abstractmethod
    def uniform(self, examples: int, *shape: int) -> Float[Tensor, "..."]:
        """float64 in [0, 1), of the shape `(examples, *shape)`."""

    def below(self, count: int, examples: int, *shape: int) -> Int[Tensor, "..."]:
        """Whole numbers from 0 to count − 1: ⌊count·u⌋."""
        return (self.uniform(examples, *shape) * count).long()

    def normal(self, examples: int, *shape: int) -> Float[Tensor, "..."]:
        """Standard normal numbers: Φ⁻¹(u), with u rounded to the middle of one of 2¹⁶ equal steps."""
        return normal_quantiles()[self.below(LEVELS, examples, *shape)]


class Fresh(Draws):
    """One generator's numbers, one after another."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def uniform(self, examples: int, *shape: int) -> Float[Tensor, "..."]:
        return torch.rand((examples, *shape), generator=self.generator, dtype=torch.float64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The output function of splitmix64 (Steele, Lea and Flood, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Keyed(Draws):
    """Numbers that the seed and an example's key alone decide, whatever batch it is in: splitmix64 per example.

    The n-th number of key k is mix(mix(k·γ + seed) + n·γ), γ = 2⁶⁴ / golden ratio.
    """

    STEP = np.uint64(0x9E3779B97F4A7C15)

    def __init__(self, seed: int, key: Int[Tensor, " B"]) -> None:
        start = np.uint64(stream(seed, "view"))
        self.state = _mixed(key.cpu().numpy().astype(np.uint64) * self.STEP + start)
        self.used = 0

    def uniform(self, examples: int, *shape: int) -> Float[Tensor, "..."]:
        assert examples == len(self.state), (examples, len(self.state))
        numbers = np.arange(self.used + 1, self.used + 1 + prod(shape), dtype=np.uint64) * self.STEP
        self.used += prod(shape)
        bits = _mixed(self.state[:, None] + numbers)
        return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(examples, *shape)
