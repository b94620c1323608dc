"""If the least certain are rejected, what error is left, and which number goes into the code?

Thresholds are chosen and judged on the same examples; the intervals are those of the error at a given threshold:
Wilson's for shares of wrong answers, by resampling for squared errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solera.core.seeds import stream
from solera.evaluation.measure import MEASURES
from solera.evaluation.shares import LEVEL, Z
from solera.tasks import Columns, Task

SHARES = tuple(percent / 100 for percent in range(0, 55, 5))


@dataclass(frozen=True)
class Threshold:
    """Reject what lies above `threshold`: the share that is kept, and the mean error of it, with its interval."""

    threshold: float
    coverage: float
    error: float
    low: float
    high: float


def _drawn(kept: np.ndarray, error: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The mean error of what each column of `kept` keeps, in every resample of the examples [resamples, columns]."""
    generator = np.random.default_rng(stream(seed, "threshold"))
    size = len(error)
    both = np.concatenate([kept * error[:, None], kept], 1, dtype=np.float64)
    draws = np.empty((resamples, kept.shape[1]))
    for number in range(resamples):
        times = np.bincount(generator.integers(0, size, size), minlength=size).astype(np.float64)
        wrong, count = (times @ both).reshape(2, -1)
        draws[number] = np.divide(wrong, count, out=np.zeros_like(wrong), where=count > 0)
    return draws


def _wilson(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share of `count`: no error among few examples does not promise none."""
    z2 = Z**2
    n = np.maximum(count, 1)
    middle, half = share + z2 / (2 * n), np.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n)
    low, high = ((middle + end) / (1 + z2 / n) for end in (-half, half))
    return np.minimum(low.clip(0), share), np.maximum(high.clip(max=1), share)


def _at(
    thresholds: Sequence[float], uncertainty: np.ndarray, error: np.ndarray, resamples: int, seed: int
) -> list[Threshold]:
    """What each of these thresholds keeps, and how wrong that is."""
    if not len(thresholds):
        return []
    kept = uncertainty[:, None] <= np.asarray(thresholds)
    count = kept.sum(0)
    means = np.divide(error @ kept, count, out=np.zeros(len(count)), where=count > 0)
    tail = 100 * (1 - LEVEL) / 2
    if not resamples:
        ends = means, means
    elif np.isin(error, (0, 1)).all():
        ends = _wilson(means, count)
    else:
        ends = np.percentile(_drawn(kept, error, resamples, seed), [tail, 100 - tail], axis=0)
    columns = (thresholds, count / len(error), means, *ends)
    return [Threshold(*(float(number) for number in row)) for row in zip(*columns, strict=True)]


def _errors(columns: Columns, task: Task) -> np.ndarray:
    return np.asarray(task.error(columns), dtype=np.float64).ravel()


def threshold_table(
    columns: Columns, task: Task, shares: tuple[float, ...] = SHARES, resamples: int = 200, seed: int = 0
) -> dict[str, list[Threshold]]:
    """For each uncertainty there is, a threshold for every share of the examples to reject.

    Equally uncertain examples are kept or rejected together, so the coverage can be more than was asked for. Error: the
    share of wrong answers, or the mean squared error.
    """
    columns = task.rejected(columns)
    error = _errors(columns, task)
    found: dict[str, list[Threshold]] = {}
    for name in MEASURES:
        if name in columns:
            uncertainty = columns[name].ravel()
            cuts = [_threshold_for(uncertainty, 1 - share) for share in shares]
            found[name] = _at(cuts, uncertainty, error, resamples, seed)
    return found


def _threshold_for(uncertainty: np.ndarray, coverage: float) -> float:
    """The least threshold that keeps at least this share."""
    count = int(np.ceil(coverage * len(uncertainty) - 1e-9))
    return float(np.sort(uncertainty)[max(count, 1) - 1])


def thresholds_for_errors(
    columns: Columns, task: Task, wanted: Sequence[float], measure: str = "total", resamples: int = 200, seed: int = 0
) -> list[Threshold | None]:
    """For each wanted error the threshold that keeps the most examples while theirs is no more; None: none does."""
    columns = task.rejected(columns)
    error, uncertainty = _errors(columns, task), columns[measure].ravel()
    order = np.argsort(uncertainty, kind="stable")
    mean = np.cumsum(error[order]) / np.arange(1, len(error) + 1)
    last_of_block = np.append(np.diff(uncertainty[order]) > 0, True)
    good = [np.flatnonzero(last_of_block & (mean <= most)) for most in wanted]
    cuts = [float(uncertainty[order][rows[-1]]) for rows in good if len(rows)]
    found = iter(_at(cuts, uncertainty, error, resamples, seed))
    return [next(found) if len(rows) else None for rows in good]


def threshold_for_error(
    columns: Columns, task: Task, wanted: float, measure: str = "total", resamples: int = 200, seed: int = 0
) -> Threshold | None:
    """The threshold that keeps the most examples while their mean error is at most `wanted`; None: none does."""
    return thresholds_for_errors(columns, task, [wanted], measure, resamples, seed)[0]


def threshold_for_false_alarms(
    familiar: Columns, other: Columns, wanted: float, measure: str = "knowledge"
) -> tuple[float, float, float]:
    """The threshold above which at most this share of familiar inputs lies: it, that share, and the share of the
    unfamiliar ones that it catches."""
    own, theirs = familiar[measure].ravel(), other[measure].ravel()
    threshold = _threshold_for(own, 1 - wanted)
    return threshold, float((own > threshold).mean()), float((theirs > threshold).mean())
