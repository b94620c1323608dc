"""If the least certain are rejected, what error is left, and which number goes into the code?"""

from dataclasses import dataclass

import numpy as np

from solera.core.seeds import stream
from solera.evaluation.intervals import LEVEL
from solera.evaluation.measure import MEASURES
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


def _kept_error(kept: np.ndarray, resamples: int, generator: np.random.Generator) -> tuple[float, float, float]:
    """The mean error of the kept examples and its bootstrap interval."""
    if not len(kept):
        return 0.0, 0.0, 0.0
    draws = [kept[generator.integers(0, len(kept), len(kept))].mean() for _ in range(resamples)]
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(draws, [tail, 100 - tail]) if draws else (kept.mean(), kept.mean())
    return float(kept.mean()), float(low), float(high)


def _at(threshold: float, uncertainty: np.ndarray, error: np.ndarray, resamples: int, seed: int) -> Threshold:
    kept = uncertainty <= threshold
    generator = np.random.default_rng(stream(seed, "threshold"))
    return Threshold(threshold, float(kept.mean()), *_kept_error(error[kept], resamples, generator))


def threshold_table(
    columns: Columns, task: Task, shares: tuple[float, ...] = SHARES, resamples: int = 200, seed: int = 0
) -> dict[str, list[Threshold]]:
    """For each uncertainty there is, a threshold for every share of the examples to reject.

    Equally uncertain examples are kept or rejected together, so the coverage can be more than was asked for. Error: the
    share of wrong answers, or the mean squared error.
    """
    error = np.asarray(task.error(columns), dtype=np.float64).ravel()
    found: dict[str, list[Threshold]] = {}
    for name in MEASURES:
        if name in columns:
            uncertainty = columns[name].ravel()
            cuts = [_threshold_for(uncertainty, 1 - share) for share in shares]
            found[name] = [_at(cut, uncertainty, error, resamples, seed) for cut in cuts]
    return found


def _threshold_for(uncertainty: np.ndarray, coverage: float) -> float:
    """The least threshold that keeps at least this share."""
    count = int(np.ceil(coverage * len(uncertainty) - 1e-9))
    return float(np.sort(uncertainty)[max(count, 1) - 1])


def threshold_for_error(
    columns: Columns, task: Task, wanted: float, measure: str = "total", resamples: int = 200, seed: int = 0
) -> Threshold | None:
    """The threshold that keeps the most examples while their mean error is at most `wanted`; None: none does."""
    error = np.asarray(task.error(columns), dtype=np.float64).ravel()
    uncertainty = columns[measure].ravel()
    order = np.argsort(uncertainty, kind="stable")
    mean = np.cumsum(error[order]) / np.arange(1, len(error) + 1)
    last_of_block = np.append(np.diff(uncertainty[order]) > 0, True)
    good = np.flatnonzero(last_of_block & (mean <= wanted))
    if not len(good):
        return None
    return _at(float(uncertainty[order][good[-1]]), uncertainty, error, resamples, seed)


def threshold_for_false_alarms(
    familiar: Columns, other: Columns, wanted: float, measure: str = "knowledge"
) -> tuple[float, float, float]:
    """The threshold above which at most this share of familiar inputs lies: it, that share, and the share of the
    unfamiliar ones that it catches."""
    own, theirs = familiar[measure].ravel(), other[measure].ravel()
    threshold = _threshold_for(own, 1 - wanted)
    return threshold, float((own > threshold).mean()), float((theirs > threshold).mean())
