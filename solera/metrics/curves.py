"""The points of pictures, from per-element columns."""

import numpy as np

from solera.metrics.regression import LEVELS

BINS, PIT_BINS = 15, 20
Curve = dict[str, np.ndarray]


def reliability(
    confidence: np.ndarray, correct: np.ndarray, bins: int = BINS, weight: np.ndarray | None = None
) -> Curve:
    """Mean confidence and accuracy in equal-width bins (lo, hi], those of the ECE, and the share of examples there."""
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, confidence.ravel().astype(np.float64)) - 1, 0, bins - 1)
    weight = np.ones(place.shape) if weight is None else weight.ravel()
    count = np.bincount(place, weight, bins)
    there = count > 0
    sums = (np.bincount(place, weight * column.ravel(), bins)[there] for column in (confidence, correct))
    of_confidence, of_correct = (total / count[there] for total in sums)
    return {"confidence": of_confidence, "accuracy": of_correct, "share": count[there] / count.sum()}


def coverage_curve(pit: np.ndarray) -> Curve:
    """How often the target lies in the central interval of each level."""
    levels = np.array([0.0, *LEVELS, 0.99])
    inside = np.sort(np.abs(2 * pit.ravel() - 1))
    return {"level": levels, "covered": np.searchsorted(inside, levels, side="right") / len(inside)}


def pit_histogram(pit: np.ndarray) -> Curve:
    """The share of targets in each twentieth of the predicted distribution: even if it is calibrated."""
    count, edges = np.histogram(pit, bins=PIT_BINS, range=(0.0, 1.0))
    return {"edges": edges, "share": count / count.sum()}
