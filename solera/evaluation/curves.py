"""The points of a report's pictures, from columns alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from solera.core.seeds import stream
from solera.evaluation.measure import MEASURES, Sets, detection
from solera.metrics.regression import LEVELS
from solera.metrics.ties import average_over_ties, cumulative_counts
from solera.tasks import Columns, Regression, Task

BINS, PIT_BINS, HISTOGRAM_BINS = 15, 20, 40
POINTS, ROC_POINTS = 1500, 200
REJECTED = np.arange(101) / 100
Curve = dict[str, np.ndarray]


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> Curve:
    """Mean confidence and accuracy in equal-width bins (lo, hi], those of the ECE, and the share of examples there."""
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, confidence.ravel().astype(np.float64)) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    there = count > 0
    sums = (np.bincount(place, column.ravel(), bins)[there] for column in (confidence, correct))
    of_confidence, of_correct = (total / count[there] for total in sums)
    return {"confidence": of_confidence, "accuracy": of_correct, "share": count[there] / count.sum()}


def coverage(pit: np.ndarray) -> Curve:
    """How often the target lies in the central interval of each level."""
    levels = np.array([0.0, *LEVELS, 0.99])
    inside = np.sort(np.abs(2 * pit.ravel() - 1))
    return {"level": levels, "covered": np.searchsorted(inside, levels, side="right") / len(inside)}


def pit_histogram(pit: np.ndarray) -> Curve:
    """The share of targets in each twentieth of the predicted distribution: even if it is calibrated."""
    count, edges = np.histogram(pit, bins=PIT_BINS, range=(0.0, 1.0))
    return {"edges": edges, "share": count / count.sum()}


def rejection(uncertainty: np.ndarray, error: np.ndarray) -> Curve:
    """The mean error of what is kept when a share of the examples, the least certain, is rejected; none: null.

    Equally uncertain examples are rejected as their average.
    """
    _, ordered = average_over_ties(uncertainty.ravel(), error.ravel())
    sums = np.append(0.0, np.cumsum(ordered))
    kept = (1 - REJECTED) * len(ordered)
    left = np.interp(kept, np.arange(len(sums)), sums)
    return {"rejected": REJECTED, "error": np.divide(left, kept, out=np.full(101, np.nan), where=kept > 0.5)}


def roc(familiar: np.ndarray, other: np.ndarray) -> Curve:
    """False alarms among familiar inputs, and the share of the others found, at 200 thresholds at most."""
    scores = np.concatenate([familiar.ravel(), other.ravel()])
    new = np.arange(len(scores)) >= familiar.size
    seen, found = cumulative_counts(scores, new)
    some = np.unique(np.linspace(0, len(seen) - 1, ROC_POINTS).round().astype(int))
    return {"false": (seen - found)[some] / familiar.size, "true": found[some] / other.size}


def histogram(column: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share in each bin; what lies beyond the last edge counts in the last bin."""
    count, _ = np.histogram(np.clip(column, edges[0], edges[-1]), bins=edges)
    return count / count.sum()


def edges_for(every: Mapping[str, Sets], measure: str) -> np.ndarray:
    """Bins from 0 that hold 99 % of what any model says on any set."""
    found = [c[measure].ravel() for sets in every.values() for c in sets.values() if measure in c]
    high = max(float(np.quantile(column, 0.99)) for column in found)
    return np.linspace(0.0, high if high > 0 else 1.0, HISTOGRAM_BINS + 1)


def model_curves(sets: Sets, target: np.ndarray, task: Task, edges: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """All pictures of one model."""
    test, error = sets["test"], np.asarray(task.error(sets["test"]), dtype=np.float64)
    measures = [name for name in MEASURES if name in test]
    curves: dict[str, Any] = {}
    if isinstance(task, Regression):
        curves |= {"coverage": coverage(test["pit"]), "pit": pit_histogram(test["pit"])}
        if test["predicted"].shape == target.reshape(len(target), -1)[:, 0].shape:
            some = sample(len(target), POINTS)
            curves["truth"] = {"target": target.reshape(-1)[some], "predicted": test["predicted"][some]}
    else:
        curves["reliability"] = reliability(test["confidence"], test["correct"])
    curves["rejection"] = {name: rejection(test[name], error) for name in measures}
    curves["oracle"] = rejection(error, error)
    others = {name: columns for name, columns in sets.items() if name != "test"}
    curves["roc"] = {
        name: {m: {**roc(test[m], columns[m]), "auroc": detection(test, columns, m)} for m in measures}
        for name, columns in others.items()
    }
    curves["histogram"] = {
        m: {"edges": edges[m], "sets": {name: histogram(columns[m], edges[m]) for name, columns in sets.items()}}
        for m in measures
    }
    return curves


def sample(size: int, most: int, *names: object) -> np.ndarray:
    """At most so many rows, in their order, the same ones every time."""
    if size <= most:
        return np.arange(size)
    return np.sort(np.random.default_rng(stream(0, "points", *names)).choice(size, most, replace=False))


def scatter(every: Mapping[str, Sets], reference: str, sets: list[str]) -> dict[str, Any]:
    """Each model's uncertainty beside the reference's, on at most 1,500 examples of all sets together."""
    theirs = every[reference]
    sizes = {name: len(theirs[name]["total"]) for name in sets if name in theirs}
    whole = sum(sizes.values())
    rows = {name: sample(size, int(np.ceil(min(1, POINTS / whole) * size)), name) for name, size in sizes.items()}
    return {
        model: {m: _beside(own, theirs, m, sets, rows) for m in MEASURES if m in own["test"] and m in theirs["test"]}
        for model, own in every.items()
        if model != reference
    }


def _beside(own: Sets, theirs: Sets, measure: str, sets: list[str], rows: Mapping[str, np.ndarray]) -> Curve:
    both = [name for name in rows if name in own]

    def values(columns: Columns, name: str) -> np.ndarray:
        return columns[measure].reshape(len(columns[measure]), -1).mean(1)[rows[name]]  # of a sequence its mean

    return {
        "model": np.concatenate([values(own[name], name) for name in both]),
        "reference": np.concatenate([values(theirs[name], name) for name in both]),
        "set": np.concatenate([np.full(len(rows[name]), sets.index(name)) for name in both]),
        "row": np.concatenate([rows[name] for name in both]),
    }
