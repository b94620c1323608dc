"""Expected calibration errors: how far confidence and accuracy lie apart, bin by bin.

Equal-count bins are cut from the elements in rising order of confidence. When their number does not divide evenly the
lowest bins take one element more; when there are fewer elements than bins, each is its own bin. Tied elements
count as correct to the degree their block is, so neither the order of the input nor a cut through a block matters.
"""

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Values, columns, unit_interval, zero_or_one
from solera.metrics.rows import checked_blocks, rows_and_labels, top_class
from solera.metrics.ties import average_over_ties


def check_bins(bins: int) -> None:
    """There must be one bin at least."""
    if bins < 1:
        raise ValueError(f"bins is {bins}: pass a whole number, at least 1")


def _equal_width_bin(confidence: NDArray[np.float64], bins: int) -> NDArray[np.intp]:
    """The b for which confidence lies in (b/bins, (b+1)/bins]; 0 itself belongs to the first bin."""
    lower = np.arange(bins + 1) / bins
    lower[0] = -np.inf  # 0 stays in the first bin
    guess = (confidence * bins).astype(np.intp)
    # A lower edge belongs to the bin below, and the product may be rounded up to one: let the edges themselves decide.
    # It is never rounded down below one, because a float64 above the rounded b/bins is above b/bins itself.
    return guess - (confidence <= lower[guess])


def equal_count_gaps(
    confidence: NDArray[np.float64], correct: NDArray, bins: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """|mean correct − mean confidence| and the number of elements of each equal-count bin, none of them empty."""
    confidence, correct = average_over_ties(confidence, correct)
    bins = min(bins, len(confidence))
    small, larger_bins = divmod(len(confidence), bins)
    sizes = np.full(bins, small, dtype=np.int64)
    sizes[:larger_bins] += 1
    starts = np.cumsum(sizes) - sizes
    return np.abs(np.add.reduceat(correct - confidence, starts)) / sizes, sizes


def ece(probs: Values, y: Values, bins: int = 15, weight: Values | None = None) -> float:
    """Σ_b (|B_b|/N) · |acc(B_b) − conf(B_b)| over equal-width bins (lo, hi] of max_k p_k (`latentbe` eq. 21).

    Edges are b/bins in float64, and a confidence is compared with them as the float64 number it is.
    """
    check_bins(bins)
    layout, p, labels = rows_and_labels(probs, "probs", y, weight)
    gaps = np.zeros(bins)  # Σ_B (correct − confidence), because (|B|/N) · |acc(B) − conf(B)| = |that| / N
    for block, rows in checked_blocks(p, "probs", layout):
        confidence, correct = top_class(rows, labels[block])
        gap = correct - confidence
        if layout.weight is not None:
            gap *= layout.weight[block]
        gaps += np.bincount(_equal_width_bin(confidence, bins), weights=gap, minlength=bins)
    return float(np.abs(gaps).sum() / (len(labels) if layout.weight is None else layout.weight.sum()))


def confidence_ece(confidence: Values, correct: Values, bins: int = 15, weight: Values | None = None) -> float:
    """The same error from what `ece` makes of the probabilities: the top class's, and whether it is right."""
    check_bins(bins)
    layout, (confidences, corrects) = columns({"confidence": confidence, "correct": correct}, weight)
    certain = unit_interval(confidences, "confidence", layout)
    gap = zero_or_one(corrects, "correct", layout) - certain
    if layout.weight is not None:
        gap *= layout.weight
    gaps = np.bincount(_equal_width_bin(certain, bins), weights=gap, minlength=bins)
    return float(np.abs(gaps).sum() / (len(certain) if layout.weight is None else layout.weight.sum()))


def adaptive_ece(confidence: Values, correct: Values, bins: int, weight: Values | None = None) -> float:
    """Σ_b (|B_b|/N) · |acc(B_b) − conf(B_b)| over equal-count bins.

    The counts weigh the bins, so that every element counts the same where N is not a multiple of `bins`.
    """
    check_bins(bins)
    layout, (confidences, corrects) = columns({"confidence": confidence, "correct": correct}, weight)
    certain = unit_interval(confidences, "confidence", layout)
    gaps, sizes = equal_count_gaps(certain, zero_or_one(corrects, "correct", layout), bins)
    return float(gaps @ sizes / len(certain))


def pooled_ece(confidence: Values, correct: Values, bins: int = 10) -> float:
    """The unweighted mean of |acc − conf| over equal-count bins of all these pairs, whatever their shape."""
    check_bins(bins)
    certain, right = np.asarray(confidence, dtype=np.float64).reshape(-1), np.asarray(correct).reshape(-1)
    gaps, _ = equal_count_gaps(certain, right, bins)
    return float(gaps.mean())


def top_k_ece(probs: Values, y: Values, k: int, bins: int = 10, weight: Values | None = None) -> float:
    """ECE-k (`structured`): the unweighted mean of |acc − conf| over equal-count bins of all (token, rank ≤ k) pairs.

    Rank r of a token is right when its r-th most probable class is the label; equally probable classes are ranked by
    their index, as argmax does.
    """
    check_bins(bins)
    layout, p, labels = rows_and_labels(probs, "probs", y, weight)
    classes = p.shape[-1]
    if not 1 <= k <= classes:
        raise ValueError(f"k is {k}: with {classes} classes pass a whole number from 1 to {classes}")
    top, rank = [], []
    for block, rows in checked_blocks(p, "probs", layout):
        y_block = labels[block, None]
        top.append(-np.sort(np.partition(-rows, k - 1, axis=-1)[:, :k], axis=-1))
        of_label = np.take_along_axis(rows, y_block, axis=-1)
        before = np.arange(classes) < y_block
        rank.append(((rows > of_label) | ((rows == of_label) & before)).sum(-1))
    confidence = np.concatenate(top).astype(np.float64)
    correct = np.concatenate(rank)[:, None] == np.arange(k)
    return pooled_ece(confidence, correct, bins)
