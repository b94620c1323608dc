"""Rejection: hand the most uncertain examples to an oracle and see how many errors are left.

A rejected example counts as correct. Equally uncertain examples are rejected as their average: inside a tied block the
curve is a straight line. `weight` only says what is padding here (an element is kept when its weight is above 0).
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Values, columns, zero_or_one
from solera.metrics.ties import cumulative_counts


def _rejected(uncertainty: Values, error: Values, weight: Values | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Examples rejected and errors left after each distinct uncertainty, from nothing rejected to everything."""
    layout, (uncertain, wrong) = columns({"uncertainty": uncertainty, "error": error}, weight)
    rejected, caught = cumulative_counts(uncertain, zero_or_one(wrong, "error", layout))
    return rejected, caught[-1] - caught


def rejection_curve(
    uncertainty: Values, error: Values, weight: Values | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(fraction rejected, errors left / N) at the N + 1 points 0/N, 1/N, …, 1.

    The second array divided by 1 − the first is the error rate among the examples that were kept.
    """
    rejected, left = _rejected(uncertainty, error, weight)
    count = rejected[-1]
    points = np.arange(count + 1)
    return points / count, np.interp(points, rejected, left) / count


def prediction_rejection_ratio(uncertainty: Values, error: Values, weight: Values | None = None) -> float:
    """PRR = (random area − model area) / (random area − oracle area), areas under the rejection curves (`endd` B).

    With N examples and E errors the areas are N·E/2 for a random order and E²/2 for the oracle, so 1 is the oracle's
    order, 0 a useless one and −1 the oracle's reversed; PRR = 2·AUROC − 1. All counts are integers. Without an error,
    or without a correct example, there is nothing to tell apart: NaN, with a RuntimeWarning.
    """
    rejected, left = _rejected(uncertainty, error, weight)
    count, errors = int(rejected[-1]), int(left[0])
    if errors in (0, count):
        what = "there are no errors" if errors == 0 else "every example is an error"
        warnings.warn(f"the prediction rejection ratio is NaN: {what} among {count}", RuntimeWarning, stacklevel=2)
        return float("nan")
    twice_area = int(np.diff(rejected) @ (left[1:] + left[:-1]))
    return (count * errors - twice_area) / (errors * (count - errors))
