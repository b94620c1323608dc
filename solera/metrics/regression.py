"""How good a predicted distribution over continuous targets is: errors, CRPS, coverage, the value of its uncertainty.

Targets and predictions are [*batch] or [*batch, D]; every one of the D cells counts, and `weight` has one entry per
example or per cell. A mixture of Gaussians has its members on the last axis, behind those of y: [*batch, M].
Coverage at every level follows from one column, u = F(y): `mixture_cdf` and `student_t_cdf` make it.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solera.distributions import quantiles
from solera.distributions.quantiles import Column, check_level, normal_cdf, standard
from solera.metrics.fidelity import rank_correlation
from solera.metrics.inputs import Elements, Values, columns, elements, to_numpy, unit_interval
from solera.metrics.rows import checked_blocks
from solera.metrics.ties import average_over_ties

LEVELS = tuple(percent / 100 for percent in range(5, 100, 5))


def cells(named: dict[str, Values], weight: Values | None) -> tuple[Elements, list[Column]]:
    """Same-shaped float64 columns; a D of 1 may be left out, and a weight per example is that of its cells."""
    arrays: dict[str, Values] = {name: to_numpy(values, name).astype(np.float64) for name, values in named.items()}
    shape = max((np.shape(array) for array in arrays.values()), key=len)
    for name, array in arrays.items():
        if shape[-1:] == (1,) and np.shape(array) == shape[:-1]:
            arrays[name] = np.reshape(array, shape)
    if weight is not None and len(shape) > 1 and np.shape(weights := to_numpy(weight, "weight")) == shape[:-1]:
        weight = np.broadcast_to(weights[..., None], shape)
    return columns(arrays, weight)


def require(good: NDArray[np.bool_], column: NDArray, name: str, layout: Elements, remedy: str) -> None:
    """Name the first element (or row) that is not good."""
    bad = ~good
    if not bad.any():
        return
    first = np.unravel_index(bad.argmax(), bad.shape)
    where, says = layout.position(first[0]), "is" if column.ndim == 1 else "contains"
    raise ValueError(f"{name}[{where}] {says} {column[first]}: {remedy}")


def rmse(predicted: Values, y: Values, weight: Values | None = None) -> float:
    """√ of the mean (predicted − y)²."""
    layout, (left, right) = cells({"predicted": predicted, "y": y}, weight)
    return math.sqrt(layout.average((left - right) ** 2))


def mae(predicted: Values, y: Values, weight: Values | None = None) -> float:
    """Mean |predicted − y|."""
    layout, (left, right) = cells({"predicted": predicted, "y": y}, weight)
    return layout.average(np.abs(left - right))


def mean_nll(log_prob: Values, weight: Values | None = None) -> float:
    """Mean −ln p(y) in nats, from what Prediction.log_prob says; a density's may be negative."""
    layout, (column,) = cells({"log_prob": log_prob}, weight)
    return layout.average(-column)


class _Members(NamedTuple):
    """Gaussian members [N, M]; one of weight 0 is standard normal, because what it says must not be read."""

    mean: Column
    deviation: Column
    weights: Column

    def blocks(self) -> Iterator[tuple[slice, "_Members"]]:
        """Blocks of rows small enough for the processor's cache."""
        step = max(1, 2**18 // self.mean.shape[-1])
        for start in range(0, len(self.mean), step):
            block = slice(start, start + step)
            yield block, _Members(self.mean[block], self.deviation[block], self.weights[block])


def _members(mean: Values, variance: Values, weights: Values | None, layout: Elements) -> _Members:
    """Checked means, standard deviations and weights of the members, without padding."""
    of_mean, of_variance = to_numpy(mean, "mean").astype(np.float64), to_numpy(variance, "variance").astype(np.float64)
    if of_mean.shape != of_variance.shape:
        raise ValueError(f"mean has shape {of_mean.shape} but variance has {of_variance.shape}: they must be the same")
    if of_mean.shape != layout.shape and (of_mean.shape[:-1] != layout.shape or of_mean.ndim == 0):
        raise ValueError(
            f"mean has shape {of_mean.shape} but y has {layout.shape}: pass one Gaussian per target, or one per target "
            "and member, members last"
        )
    of_weights = None if weights is None else to_numpy(weights, "weights").astype(np.float64)
    if of_weights is not None and (of_weights.shape != of_mean.shape or of_mean.shape == layout.shape):
        raise ValueError(
            f"weights has shape {of_weights.shape} but mean has {of_mean.shape}: pass one weight per target and member"
        )
    shape = (*layout.shape, -1)
    if of_mean.size == 0:
        raise ValueError(f"mean is empty (shape {of_mean.shape}): pass at least one member")
    of_mean, of_variance = layout.pick(of_mean.reshape(shape)), layout.pick(of_variance.reshape(shape))
    if of_weights is None:
        of_weights = np.full_like(of_mean, 1 / of_mean.shape[-1])
    else:
        of_weights = np.concatenate([b for _, b in checked_blocks(layout.pick(of_weights), "weights", layout)])
        of_mean, of_variance = np.where(of_weights > 0, of_mean, 0.0), np.where(of_weights > 0, of_variance, 1.0)
    require(np.isfinite(of_mean), of_mean, "mean", layout, "pass finite numbers")
    good = np.isfinite(of_variance) & (of_variance >= 0)
    require(good, of_variance, "variance", layout, "variances must be finite and at least 0")
    return _Members(of_mean, np.sqrt(of_variance), of_weights / of_weights.sum(-1, keepdims=True))


def _targets(y: Values, weight: Values | None) -> tuple[Elements, Column]:
    """Finite continuous targets without padding."""
    layout, (column,) = columns({"y": to_numpy(y, "y").astype(np.float64)}, weight)
    require(np.isfinite(column), column, "y", layout, "pass finite numbers")
    return layout, column


def _excess(away: Column, deviation: Column) -> Column:
    """E|X| − |μ| of X ~ N(μ, σ²): 2σ(φ(z) − zΦ(−z)) with z = |μ|/σ, and 0 from z = 40 on."""
    z = np.minimum(standard(np.abs(away), deviation), 40.0)
    return 2 * deviation * (np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) - z * normal_cdf(-z))


def _mixture_crps(y: Column, members: _Members) -> Column:
    """½ Σ_ij w_i w_j (E|X_i − y| + E|X_j − y| − E|X_i − X_j|), pair by pair, none of them negative.

    Without the excesses a pair is |a| + |b| − |a − b| of a = y − μ_i and b = y − μ_j: twice the smaller, or 0 when y
    lies between them. Written so, a light member far away does not drown the others.
    """
    mean, deviation, weights = members
    away = y[:, None] - mean
    size, side, excess = np.abs(away), np.sign(away), _excess(away, deviation)
    total = np.zeros(len(y))
    for j in range(mean.shape[-1]):
        one, rest = slice(j, j + 1), slice(j, None)
        pair = np.where(side[:, one] * side[:, rest] > 0, 2 * np.minimum(size[:, one], size[:, rest]), 0.0)
        pair += excess[:, one] + excess[:, rest]
        pair -= _excess(mean[:, one] - mean[:, rest], np.hypot(deviation[:, one], deviation[:, rest]))
        pair[:, 0] /= 2  # i = j comes once, i ≠ j twice
        total += weights[:, j] * (weights[:, rest] * pair).sum(-1)
    return total


def _each_crps(target: Column, members: _Members) -> Column:
    return np.concatenate([_mixture_crps(target[block], some) for block, some in members.blocks()])


def crps(
    y: Values, mean: Values, variance: Values, weights: Values | None = None, weight: Values | None = None
) -> float:
    """Mean ∫ (F(x) − [y ≤ x])² dx = E|X − y| − ½E|X − X′| of a Gaussian or a mixture (Grimit et al. 2006).

    mean and variance are [*batch] or [*batch, M]; the members' `weights` [*batch, M] sum to 1, None: all alike.
    Variance 0 is a point: one gives |y − μ|, several the CRPS of an ensemble of numbers.
    """
    layout, target = _targets(y, weight)
    return layout.average(_each_crps(target, _members(mean, variance, weights, layout)))


def crps_column(y: Values, mean: Values, variance: Values, weights: Values | None = None) -> Column:
    """The CRPS of every target, in the shape of y."""
    layout, target = _targets(y, None)
    return _each_crps(target, _members(mean, variance, weights, layout)).reshape(layout.shape)


def mixture_cdf(y: Values, mean: Values, variance: Values, weights: Values | None = None) -> Column:
    """u = F(y) = Σ_m w_m Φ((y − μ_m)/σ_m), in the shape of y; y on a point (variance 0) takes half of its mass."""
    layout, target = _targets(y, None)
    found = [
        (w * normal_cdf(standard(target[block, None] - centre, deviation))).sum(-1)
        for block, (centre, deviation, w) in _members(mean, variance, weights, layout).blocks()
    ]
    return np.minimum(np.concatenate(found), 1.0).reshape(layout.shape)


def mixture_quantile(p: float, mean: Values, variance: Values, weights: Values | None = None) -> Column:
    """The least x with F(x) ≥ p, of Gaussians [N] or of mixtures [*batch, M], to the last digits of a float64.

    The difference of two, at 0.95 and at 0.05, is the width of the central 90 % interval.
    """
    check_level(p, "p")
    shape = to_numpy(mean, "mean").shape
    layout = elements(shape if len(shape) == 1 else shape[:-1], "mean", None)
    return quantiles.mixture_quantile(p, 1 - p, *_members(mean, variance, weights, layout)).reshape(layout.shape)


def _interval(lower: Values, upper: Values, weight: Values | None, **y: Values) -> tuple[Elements, list[Column]]:
    """Checked interval ends, and y where there is one."""
    layout, found = cells({"lower": lower, "upper": upper} | y, weight)
    require(found[0] <= found[1], found[0], "lower", layout, "it is above its upper end, pass them in order")
    return layout, found


def coverage(y: Values, lower: Values, upper: Values, weight: Values | None = None) -> float:
    """How often lower ≤ y ≤ upper."""
    layout, (low, high, target) = _interval(lower, upper, weight, y=y)
    return layout.average(((low <= target) & (target <= high)).astype(np.float64))


def interval_width(lower: Values, upper: Values, weight: Values | None = None) -> float:
    """Mean upper − lower."""
    layout, (low, high) = _interval(lower, upper, weight)
    return layout.average(high - low)


def coverage_at(pit: Values, level: float, weight: Values | None = None) -> float:
    """How often y lies in the central interval of probability `level`: the share of |2u − 1| ≤ level, u = F(y)."""
    check_level(level, "level")
    layout, (u,) = cells({"pit": pit}, weight)
    return layout.average((np.abs(2 * unit_interval(u, "pit", layout) - 1) <= level).astype(np.float64))


def coverage_error(pit: Values, levels: Sequence[float] = LEVELS, weight: Values | None = None) -> float:
    """Mean over levels of |observed − expected coverage|: 0 is calibrated, ½ is the worst (levels 5 % to 95 %)."""
    if not len(levels):
        raise ValueError("levels is empty: pass at least one number between 0 and 1")
    return float(np.mean([abs(coverage_at(pit, level, weight) - level) for level in levels]))


def error_correlation(uncertainty: Values, error: Values, weight: Values | None = None) -> float:
    """Spearman's ρ of the uncertainty and |error|; NaN, with a RuntimeWarning, where one of them is constant."""
    _, (uncertain, wrong) = cells({"uncertainty": uncertainty, "error": error}, weight)
    wrong = np.abs(wrong)
    for name, column in (("uncertainty", uncertain), ("|error|", wrong)):
        if (column == column[0]).all():
            warnings.warn(f"the error correlation is NaN: {name} is constant", RuntimeWarning, stacklevel=2)
            return float("nan")
    return rank_correlation(uncertain, wrong)


def _by_certainty(
    uncertainty: Values, squared_error: Values, weight: Values | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squared errors in rising order of uncertainty, tied ones as their mean; and in rising order of their own."""
    layout, (uncertain, square) = cells({"uncertainty": uncertainty, "squared_error": squared_error}, weight)
    good = np.isfinite(square) & (square >= 0)
    require(good, square, "squared_error", layout, "pass squares, finite and at least 0")
    return average_over_ties(uncertain, square)[1], np.sort(square)


def retention_curve(
    uncertainty: Values, squared_error: Values, weight: Values | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(fraction kept, Σ squared error of the kept / N) at the N + 1 points 0/N, 1/N, …, 1, the most certain kept first.

    As in the Shifts challenge a rejected example has error 0, and N divides; the rejection curve, read backwards.
    """
    square, _ = _by_certainty(uncertainty, squared_error, weight)
    return np.arange(len(square) + 1) / len(square), np.append(0.0, np.cumsum(square)) / len(square)


def retention_area(uncertainty: Values, squared_error: Values, weight: Values | None = None) -> float:
    """R-AUC, the area under the retention curve: lower is better, a random order has half the mean squared error.

    Trapezoids, so that the random order has exactly that. The Shifts challenge prints the mean of the N + 1 points
    instead: (N·area + ½ mean squared error)/(N + 1).
    """
    kept, left = retention_curve(uncertainty, squared_error, weight)
    return float(np.trapezoid(left, kept))


def retention_ratio(uncertainty: Values, squared_error: Values, weight: Values | None = None) -> float:
    """(random area − area) / (random area − oracle's area): the prediction rejection ratio of real-valued errors.

    1 is the oracle's order, 0 a useless one, −1 the oracle's reversed. The random area exceeds another by
    Σ_i e_i·(i − (N − 1)/2)/N², i = 0 … N − 1 in that order, so that no areas are subtracted. Where all errors are
    equal there is nothing to tell apart: NaN, with a RuntimeWarning.
    """
    square, oracle = _by_certainty(uncertainty, squared_error, weight)
    if oracle[0] == oracle[-1]:
        what = f"the retention ratio is NaN: all {len(oracle)} squared errors are {oracle[0]}"
        warnings.warn(what, RuntimeWarning, stacklevel=2)
        return float("nan")
    rank = 2 * np.arange(len(oracle)) - len(oracle) + 1
    span = oracle[-1] - oracle[0]
    return float(((square - oracle[0]) / span) @ rank / (((oracle - oracle[0]) / span) @ rank))
