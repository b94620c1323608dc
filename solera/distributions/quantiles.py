"""Quantiles of mixtures of Gaussians: ends of intervals, to the last digits of a float64."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

Column = NDArray[np.float64]


def standard(away: Column, deviation: Column) -> Column:
    """away / deviation: ±∞ for a point elsewhere, 0 for a point right there."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.divide(away, deviation, out=np.zeros_like(away), where=away != 0)


def normal_cdf(z: Column) -> Column:
    """Φ(z) = ½ erfc(−z/√2): torch's own, ½ + ½ erf(z/√2), has no digits left in the lower tail."""
    return 0.5 * torch.special.erfc(torch.from_numpy(z * -math.sqrt(0.5))).numpy()


def bisect(low: Column, high: Column, enough: Callable[[Column], NDArray[np.bool_]]) -> Column:
    """The least float64 in [low, high] that is enough, else high; exact at any scale: it halves the floats between."""
    lowest = np.iinfo(np.int64).min

    def flip(bits: NDArray[np.int64]) -> NDArray[np.int64]:  # floats in order <-> whole numbers in order
        return np.where(bits < 0, lowest - bits, bits)

    left, right = flip((low + 0.0).view(np.int64)), flip((high + 0.0).view(np.int64))
    while (left < right).any():
        middle = (left & right) + ((left ^ right) >> 1)
        found = enough(flip(middle).view(np.float64))
        left, right = np.where(found, left, np.minimum(middle + 1, right)), np.where(found, middle, right)
    return flip(right).view(np.float64)


def check_level(level: float, name: str) -> None:
    """For quantiles and intervals."""
    if not 0 < level < 1:
        raise ValueError(f"{name} is {level}: pass a number between 0 and 1")


def _reached(x: Column, p: float, rest: float, mean: Column, deviation: Column, weights: Column) -> NDArray[np.bool_]:
    """Whether F(x) ≥ p = 1 − rest, by the smaller of the two: that one has all its digits."""
    away = x[:, None] - mean
    z = np.where((away == 0) & (deviation == 0), np.inf, standard(away, deviation))
    if p > 0.5:
        return (weights * normal_cdf(-z)).sum(-1) <= rest
    return (weights * normal_cdf(z)).sum(-1) >= p


def mixture_quantile(p: float, rest: float, mean: Column, deviation: Column, weights: Column) -> Column:
    """The least x with F(x) ≥ p = 1 − rest, of mixtures [N, M] whose weights sum to 1.

    It lies between the least and the greatest of the members' own quantiles. Rows are taken in blocks small enough for
    the processor's cache.
    """
    tail = float(torch.special.ndtri(torch.tensor(min(p, rest), dtype=torch.float64)))
    normal, step = tail if p < rest else -tail, max(1, 2**18 // mean.shape[-1])
    found = []
    for start in range(0, len(mean), step):
        centre, width, share = (column[start : start + step] for column in (mean, deviation, weights))
        own = centre + width * normal
        low, high = np.where(share > 0, own, np.inf).min(-1), np.where(share > 0, own, -np.inf).max(-1)
        reached = partial(_reached, p=p, rest=rest, mean=centre, deviation=width, weights=share)
        found.append(bisect(low, high, reached))
    return np.concatenate(found) if found else np.zeros(0)
