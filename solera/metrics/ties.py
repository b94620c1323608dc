"""Equal scores, treated once for the whole package: tied elements share their average, whatever order they came in."""

import numpy as np
from numpy.typing import NDArray


def _block_starts(ordered: NDArray) -> NDArray[np.intp]:
    return np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])


def cumulative_counts(score: NDArray, positive: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Walk down from the highest score: elements seen and positives seen after each distinct score, from (0, 0)."""
    order = np.argsort(score)[::-1]
    seen = np.append(_block_starts(score[order]), len(score))
    positives = np.concatenate([[0], np.cumsum(positive[order], dtype=np.int64)])
    return seen, positives[seen]


def average_over_ties(score: NDArray, value: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both columns in rising order of score, each value replaced by the mean of the values tied with it."""
    order = np.argsort(score)
    ordered = score[order].astype(np.float64)
    starts = _block_starts(ordered)
    counts = np.diff(starts, append=len(ordered))
    means = np.add.reduceat(value[order].astype(np.float64), starts) / counts
    return ordered, np.repeat(means, counts)
