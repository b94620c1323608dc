"""The Student-t with more than one degree of freedom, in plain arithmetic: what a Normal-Wishart predicts."""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from solera.distributions.quantiles import Column, bisect


def log_half_step(x: Column) -> Column:
    """ln Γ(x + ½) − ln Γ(x); from x = 30 on by its series, where the two logarithms would cancel."""
    first, second = (torch.lgamma(torch.from_numpy(v)).numpy() for v in (x + 0.5, x))
    u = 1 / np.maximum(x, 30.0)
    series = -0.5 * np.log(u) - u / 8 + u**3 / 192 - u**5 / 640 + 17 * u**7 / 14336
    return np.where(x < 30, first - second, series)


@cache
def quadrature(count: int) -> list[tuple[float, float]]:
    """Gauss and Legendre's nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return list(zip((0.5 * nodes + 0.5).tolist(), (0.5 * weights).tolist(), strict=True))


def _arc(log_cosh: Column) -> Column:
    """The s ≥ 0 with ln cosh s = log_cosh."""
    return log_cosh + np.log1p(np.sqrt(-np.expm1(-2 * log_cosh)))


def _log_density(s: Column, freedom: Column) -> Column:
    """Of s, where T = √ν·sinh s: ln Γ((ν+1)/2) − ln Γ(ν/2) − ½ ln π − ν ln cosh s."""
    return log_half_step(freedom / 2) - 0.5 * math.log(math.pi) - 0.5 * freedom * np.log1p(np.sinh(s) ** 2)


def _inside(s: Column, freedom: Column, nodes: int = 64) -> Column:
    """P(|T| ≤ √ν·sinh s), s ≥ 0, ν > 1: the density of s is ∝ cosh(s)^−ν, smooth enough for one quadrature."""
    last = _arc(40 / freedom)  # cosh(last)^−ν = e^−40: what lies beyond does not count
    end = np.minimum(s, last)
    peak = _log_density(np.zeros_like(s), freedom)
    area = sum(w * np.exp(peak - 0.5 * freedom * np.log1p(np.sinh(x * end) ** 2)) for x, w in quadrature(nodes))
    return np.where(s < last, np.minimum(2 * end * area, 1.0), 1.0)


def central(z: Column, freedom: Column) -> Column:
    """P(|T| ≤ z), z ≥ 0, ν > 1."""
    return _inside(np.arcsinh(z / np.sqrt(freedom)), freedom)


def _halley(s: Column, freedom: Column, inside: float, nodes: int) -> tuple[Column, NDArray[np.bool_]]:
    """One step of Halley's method towards P(|T| ≤ √ν·sinh s) = inside, and where it is small enough to be the last.

    The density f of s is known, and f′/f = −ν tanh s. An error of δ times the length on which f changes becomes ~ δ³.
    """
    newton = 0.5 * (inside - _inside(s, freedom, nodes)) * np.exp(-_log_density(s, freedom))
    bend = freedom * np.tanh(s)
    step = newton / np.maximum(1 - 0.5 * newton * bend, 0.5)
    better = np.where(np.isfinite(step), np.maximum(s + step, 0.5 * s), s)
    return better, np.abs(step) * (1 + s * bend) <= 1e-5 * s


def _guess(inside: float, freedom: Column) -> Column:
    """Wallace's (1959) s from the normal quantile, or the end of the tail 2^ν·e^−νs ≥ cosh(s)^−ν if that is nearer."""
    normal = float(torch.special.ndtri(torch.tensor(0.5 + 0.5 * inside, dtype=torch.float64)))
    wallace = _arc((normal * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / (2 * freedom))
    log_ratio = _log_density(np.zeros_like(freedom), freedom) + np.log(2 / (freedom * (1 - inside)))
    return np.minimum(wallace, math.log(2) + log_ratio / freedom)


def central_quantile(inside: float, freedom: Column) -> Column:
    """The z ≥ 0 with P(|T| ≤ z) = inside, by Halley's method, first on few nodes.

    Where its last step is not small, the least float64 that reaches `inside`.
    """
    with np.errstate(all="ignore"):
        s = _guess(inside, freedom)
        for nodes in (16, 16, 64):
            s, settled = _halley(s, freedom, inside, nodes)
        z = np.sqrt(freedom) * np.sinh(s)
    far = np.flatnonzero(~settled)
    v = freedom[far]
    z[far] = bisect(np.zeros_like(v), np.full_like(v, np.finfo(np.float64).max), lambda z: central(z, v) >= inside)
    return z
