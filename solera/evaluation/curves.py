"""The points of a report's pictures, from columns alone."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from solera.core.seeds import sample
from solera.evaluation.examples import by_example
from solera.evaluation.measure import MEASURES, Sets, detection
from solera.evaluation.stream import Elements
from solera.metrics.curves import Curve
from solera.metrics.ties import average_over_ties, cumulative_counts
from solera.tasks import Columns, Task

HISTOGRAM_BINS = 40
POINTS, ROC_POINTS = 1500, 200
REJECTED = np.arange(101) / 100


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
    test, units = sets["test"], task.rejected(sets["test"])
    error = np.asarray(task.error(units), dtype=np.float64)
    measures = [name for name in MEASURES if name in test]
    others = {name: columns for name, columns in sets.items() if name != "test"}
    return {
        "figures": {figure.name: asdict(figure) for figure in task.figures(test, target)},
        "rejection": {name: rejection(units[name], error) for name in measures},
        "oracle": rejection(error, error),
        "roc": {
            name: {m: {**roc(test[m], columns[m]), "auroc": detection(test, columns, m)} for m in measures}
            for name, columns in others.items()
        },
        "histogram": {
            m: {"edges": edges[m], "sets": {name: histogram(columns[m], edges[m]) for name, columns in sets.items()}}
            for m in measures
        },
    }


def scatter(
    every: Mapping[str, Sets], elements: Mapping[str, Elements], reference: str, sets: list[str]
) -> dict[str, Any]:
    """Each model's uncertainty beside the reference's, on at most 1,500 examples of all sets together."""
    theirs = every[reference]
    sizes = {name: elements[name].examples for name in sets if name in theirs}
    whole = sum(sizes.values())
    rows = {name: sample(size, int(np.ceil(min(1, POINTS / whole) * size)), name) for name, size in sizes.items()}
    return {
        model: {
            m: _beside(own, theirs, m, sets, rows, elements)
            for m in MEASURES
            if m in own["test"] and m in theirs["test"]
        }
        for model, own in every.items()
        if model != reference
    }


def _beside(
    own: Sets,
    theirs: Sets,
    measure: str,
    sets: list[str],
    rows: Mapping[str, np.ndarray],
    elements: Mapping[str, Elements],
) -> Curve:
    both = [name for name in rows if name in own]

    def values(columns: Columns, name: str) -> np.ndarray:
        return by_example(columns[measure], elements[name])[rows[name]]  # of a sequence its mean

    def indices(name: str) -> np.ndarray:
        return elements[name].example[elements[name].starts[:-1]][rows[name]]

    return {
        "model": np.concatenate([values(own[name], name) for name in both]),
        "reference": np.concatenate([values(theirs[name], name) for name in both]),
        "set": np.concatenate([np.full(len(rows[name]), sets.index(name)) for name in both]),
        "row": np.concatenate([indices(name) for name in both]),
    }
