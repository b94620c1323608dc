"""The Student-t that a Normal-Wishart predicts: its CRPS, distribution function and quantiles."""

import math

import numpy as np
import torch

from solera.distributions.quantiles import Column, check_level, standard
from solera.distributions.student_t import central, central_quantile, log_half_step, quadrature
from solera.metrics.inputs import Elements, Values
from solera.metrics.regression import cells, require


def _log_ratio(freedom: Column) -> Column:
    """ln R = ln Γ(ν − ½) − ln Γ(ν) + ln Γ((ν+1)/2) − ln Γ(ν/2) = h(ν/2) − h(ν − ½), with the half step h.

    It vanishes at ν = 1. Below ν = 3 it is −∫ h′ = −∫ (ψ(x + ½) − ψ(x)) dx over the (ν − 1)/2 between the two.
    """
    length = (np.minimum(freedom, 3.0) - 1) / 2
    slope = np.zeros_like(freedom)
    for node, w in quadrature(16):
        x = torch.from_numpy(0.5 + (1 + node) * length)
        slope += w * (torch.digamma(x + 0.5) - torch.digamma(x)).numpy()
    return np.where(freedom < 3, -length * slope, log_half_step(freedom / 2) - log_half_step(freedom - 0.5))


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
    peak = np.exp(log_half_step(v / 2) + 0.5 * np.log(v / math.pi))  # ν·f(0)
    bracket = np.expm1(-half * log_tail) - np.expm1(_log_ratio(v))
    return away * central(z, v) + s * peak * bracket / half


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
    return (0.5 + 0.5 * np.sign(z) * central(np.abs(z), v)).reshape(layout.shape)


def student_t_quantile(p: float, mean: Values, scale: Values, freedom: Values) -> Column:
    """The x with F(x) = p of a Student-t with ν > 1 degrees of freedom, in the shape of mean."""
    check_level(p, "p")
    layout, (centre, s, v) = _checked(mean, scale, freedom, None)
    return (centre + math.copysign(1, p - 0.5) * s * central_quantile(abs(2 * p - 1), v)).reshape(layout.shape)
