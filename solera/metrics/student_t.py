"""The Student-t that a Normal-Wishart predicts: its CRPS, distribution function and quantiles, in plain arithmetic."""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from solera.metrics.inputs import Elements, Values
from solera.metrics.regression import Column, bisect, cells, check_level, require, standard


def _log_half_step(x: Column) -> Column:
    """ln Γ(x + ½) − ln Γ(x); from x = 30 on by its series, where the two logarithms would cancel."""
    first, second = (torch.lgamma(torch.from_numpy(v)).numpy() for v in (x + 0.5, x))
    u = 1 / np.maximum(x, 30.0)
    series = -0.5 * np.log(u) - u / 8 + u**3 / 192 - u**5 / 640 + 17 * u**7 / 14336
    return np.where(x < 30, first - second, series)


@cache
def _quadrature(count: int) -> list[tuple[float, float]]:
    """Gauss and Legendre's nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return list(zip((0.5 * nodes + 0.5).tolist(), (0.5 * weights).tolist(), strict=True))


def _log_ratio(freedom: Column) -> Column:
    """ln R = ln Γ(ν − ½) − ln Γ(ν) + ln Γ((ν+1)/2) − ln Γ(ν/2) = h(ν/2) − h(ν − ½), with the half step h.

    It vanishes at ν = 1. Below ν = 3 it is −∫ h′ = −∫ (ψ(x + ½) − ψ(x)) dx over the (ν − 1)/2 between the two.
    """
    length = (np.minimum(freedom, 3.0) - 1) / 2
    slope = np.zeros_like(freedom)
    for node, w in _quadrature(16):
        x = torch.from_numpy(0.5 + (1 + node) * length)
        slope += w * (torch.digamma(x + 0.5) - torch.digamma(x)).numpy()
    return np.where(freedom < 3, -length * slope, _log_half_step(freedom / 2) - _log_half_step(freedom - 0.5))


def _arc(log_cosh: Column) -> Column:
    """The s ≥ 0 with ln cosh s = log_cosh."""
    return log_cosh + np.log1p(np.sqrt(-np.expm1(-2 * log_cosh)))


def _log_density(s: Column, freedom: Column) -> Column:
    """Of s, where T = √ν·sinh s: ln Γ((ν+1)/2) − ln Γ(ν/2) − ½ ln π − ν ln cosh s."""
    return _log_half_step(freedom / 2) - 0.5 * math.log(math.pi) - 0.5 * freedom * np.log1p(np.sinh(s) ** 2)


def _inside(s: Column, freedom: Column, nodes: int = 64) -> Column:
    """P(|T| ≤ √ν·sinh s), s ≥ 0, ν > 1: the density of s is ∝ cosh(s)^−ν, smooth enough for one quadrature."""
    last = _arc(40 / freedom)  # cosh(last)^−ν = e^−40: what lies beyond does not count
    end = np.minimum(s, last)
    peak = _log_density(np.zeros_like(s), freedom)
    area = sum(w * np.exp(peak - 0.5 * freedom * np.log1p(np.sinh(x * end) ** 2)) for x, w in _quadrature(nodes))
    return np.where(s < last, np.minimum(2 * end * area, 1.0), 1.0)


def _centre(z: Column, freedom: Column) -> Column:
    """P(|T| ≤ z), z ≥ 0, ν > 1."""
    return _inside(np.arcsinh(z / np.sqrt(freedom)), freedom)


def _checked(
    mean: Values, scale: Values, freedom: Values, weight: Values | None, y: Values | None = None
) -> tuple[Elements, list[Column]]:
    """Checked columns: y (where there is one), location, scale and degrees of freedom."""
    named = ({} if y is None else {"y": y}) | {"mean": mean, "scale": scale, "freedom": freedom}
    layout, found = cells(named, weight)
    for name, column in zip(named, found, strict=True):
        if name == "freedom":
            remedy = "pass more than 1 degree of freedom, at 1 and below a Student-t has no mean"
            require(column > 1, column, name, layout, remedy)
        else:
            remedy = "scales must be finite and at least 0" if name == "scale" else "pass finite numbers"
            require(np.isfinite(column) & ((column >= 0) | (name != "scale")), column, name, layout, remedy)
    found[-1] = np.minimum(found[-1], 1e30)  # ∞ is the Gaussian, and so is this, to the last digit
    return layout, found


def _crps(target: Column, centre: Column, s: Column, v: Column) -> Column:
    """s·{z(2F(z) − 1) + 2νf(0)/(ν − 1)·[(1 + z²/ν)^−(ν−1)/2 − R]}, z = (y − μ)/s, R = B(½, ν−½)/B(½, ν/2).

    Both terms in brackets are 1 at ν = 1, so each is taken less 1.
    """
    away = np.abs(target - centre)
    z = standard(away, s)
    half = (v - 1) / 2
    t = z / np.sqrt(v)
    log_tail = np.where(t < 1e8, np.log1p(np.minimum(t, 1e8) ** 2), 2 * np.log(np.maximum(t, 1.0)))
    peak = np.exp(_log_half_step(v / 2) + 0.5 * np.log(v / math.pi))  # ν·f(0)
    bracket = np.expm1(-half * log_tail) - np.expm1(_log_ratio(v))
    return away * _centre(z, v) + s * peak * bracket / half


def crps_student_t(y: Values, mean: Values, scale: Values, freedom: Values, weight: Values | None = None) -> float:
    """Mean CRPS of μ + s·T_ν, ν > 1 (Jordan et al. 2019), in a form that neither ν → 1 nor ν → ∞ spoils."""
    layout, found = _checked(mean, scale, freedom, weight, y)
    return layout.average(_crps(*found))


def crps_student_t_column(y: Values, mean: Values, scale: Values, freedom: Values) -> Column:
    """The CRPS of every target, in the shape of y."""
    layout, found = _checked(mean, scale, freedom, None, y)
    return _crps(*found).reshape(layout.shape)


def student_t_cdf(y: Values, mean: Values, scale: Values, freedom: Values) -> Column:
    """u = F((y − μ)/s) of a Student-t with ν > 1 degrees of freedom, in the shape of y, to 1e-14."""
    layout, (target, centre, s, v) = _checked(mean, scale, freedom, None, y)
    z = standard(target - centre, s)
    return (0.5 + 0.5 * np.sign(z) * _centre(np.abs(z), v)).reshape(layout.shape)


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


def _quantile(inside: float, freedom: Column) -> Column:
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
    z[far] = bisect(np.zeros_like(v), np.full_like(v, np.finfo(np.float64).max), lambda z: _centre(z, v) >= inside)
    return z


def student_t_quantile(p: float, mean: Values, scale: Values, freedom: Values) -> Column:
    """The x with F(x) = p of a Student-t with ν > 1 degrees of freedom, in the shape of mean."""
    check_level(p, "p")
    layout, (centre, s, v) = _checked(mean, scale, freedom, None)
    return (centre + math.copysign(1, p - 0.5) * s * _quantile(abs(2 * p - 1), v)).reshape(layout.shape)
