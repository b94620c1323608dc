"""Equal scores, treated once for the whole package: tied elements share their average, whatever order they came in."""

import numpy as np
from numpy.typing import NDArray

UNSIGNED = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def _block_starts(ordered: NDArray) -> NDArray[np.intp]:
    return np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])


def _with_bits(score: NDArray) -> NDArray:
    """The scores as float32 or float64; where that would merge two of them, their ranks."""
    if score.dtype in UNSIGNED:
        return score
    with np.errstate(invalid="ignore"):
        as_float = score.astype(np.float64)
        whole = (as_float.astype(score.dtype) == score).all()  # all come back, so no two became one
    return as_float if whole else np.unique(score, return_inverse=True)[1].astype(np.float64)


def _walk(bits: NDArray, positive: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Walk up the bits without their sign: elements and positives seen after each distinct pattern, from (0, 0).

    The sign's place is free for the label. So values are sorted, not positions, which is several times faster.
    """
    keys = bits << 1
    keys |= positive
    keys.sort()
    inner = np.flatnonzero((keys[1:] ^ keys[:-1]) > 1)  # the last of a block: more than the label changes behind it
    keys &= 1
    positives = np.cumsum(keys.astype(np.int64))
    seen, found = np.zeros((2, len(inner) + 1 + (len(keys) > 0)), dtype=np.int64)
    np.add(inner, 1, out=seen[1 : len(inner) + 1])
    positives.take(inner, out=found[1 : len(inner) + 1])
    seen[-1], found[-1] = len(keys), positives[-1:].sum()
    return seen, found


def cumulative_counts(score: NDArray, positive: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Walk down from the highest score: elements seen and positives seen after each distinct score, from (0, 0)."""
    score = _with_bits(score)
    bits = score.view(UNSIGNED[score.dtype])  # those of |score| rise with it
    negative = score < 0
    if not negative.any():
        return _walk(~bits, positive)
    above = _walk(~bits.compress(~negative), positive.compress(~negative))
    below = _walk(bits.compress(negative), positive.compress(negative))
    seen, found = (np.concatenate([high, high[-1] + low[1:]]) for high, low in zip(above, below, strict=True))
    return seen, found


def average_over_ties(score: NDArray, value: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both columns in rising order of score, each value replaced by the mean of the values tied with it."""
    if value.dtype == np.bool_ and score.dtype == np.float64 and len(score) and score.min() >= 0:
        keys = score.view(np.uint64) << 1  # as in `_walk`: numbers are sorted, not positions
        keys |= value
        keys.sort()
        ordered, values = (keys >> 1).view(np.float64), (keys & 1).astype(np.float64)
    else:
        order = np.argsort(score)
        ordered, values = score[order].astype(np.float64), value[order].astype(np.float64)
    starts = _block_starts(ordered)
    if len(starts) == len(ordered):
        return ordered, values
    counts = np.diff(starts, append=len(ordered))
    return ordered, np.repeat(np.add.reduceat(values, starts) / counts, counts)
