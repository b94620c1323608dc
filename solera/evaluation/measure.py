"""Metrics of one model from columns: its scores, how it tells unfamiliar inputs, and what it kept of the ensemble."""

import warnings
from collections.abc import Collection

import numpy as np

from solera import metrics
from solera.tasks import Columns, Row, Task

MEASURES = ("total", "data", "knowledge")
Sets = dict[str, Columns]  # "test", and every unfamiliar or shifted set


def measure(own: Sets, reference: Sets | None, task: Task, labelled: Collection[str] = ("test",)) -> Row:
    """Scores on the test set, AUROC on unfamiliar sets by what the task `detects` by (total, knowledge), and the
    correlation of knowledge, set by set: over all sets together it would only say that unfamiliar inputs have more.

    Other labelled sets have the scores that matter under a shift, named `accuracy on NAME`.
    """
    row = task.scores(own["test"])
    for name in own:
        if name != "test":
            row |= {f"OOD {name} {key}": detection(own["test"], own[name], key) for key in task.detects}
            if name in labelled:
                there = task.scores(own[name])
                row |= {f"{key} on {name}": there[key] for key in task.shifted}
    if reference is not None:
        for name in own:
            if name in reference:
                key = "ρ knowledge" if name == "test" else f"ρ knowledge on {name}"
                row[key] = correlation(own, reference, "knowledge", name)
    return row


def fidelity(own: Sets, reference: Sets, row: Row, theirs: Row, task: Task) -> Row:
    """What a model kept of the reference's answers, on the test inputs, and of its metrics (the two rows)."""
    return {
        **_same_answers(own["test"], reference["test"], task),
        **_same_ranks(own, reference),
        **_kept(row, theirs, task),
    }


def _same_answers(test: Columns, theirs: Columns, task: Task) -> Row:
    row: Row = task.likeness(test) if all(key in test for key in task.beside) else {}
    for key in MEASURES:
        both = key in test and key in theirs
        row[f"Δ {key}"] = float(np.abs(test[key] - theirs[key]).mean()) if both else None
        row[f"{key} kept"] = ratio(float(test[key].mean()), float(theirs[key].mean())) if both else None
    return row


def _same_ranks(own: Sets, reference: Sets) -> Row:
    return {f"ρ {key}": correlation(own, reference, key, "test") for key in MEASURES}


def _kept(row: Row, theirs: Row, task: Task) -> Row:
    """The share of what the reference's uncertainty is worth: its PRR, and of each AUROC what lies above chance."""
    kept: Row = {"PRR kept": ratio(row.get("PRR"), theirs.get("PRR"))}
    for name, value in row.items():
        if name.startswith("OOD "):
            other = theirs.get(name)
            above = [None if auroc is None else auroc - 0.5 for auroc in (value, other)]
            kept[f"{name} kept"] = ratio(*above)
    for margin in task.margins:
        a, b = row.get(margin.score), theirs.get(margin.score)
        if margin.what == "calibration" and a is not None and b is not None:
            kept[f"Δ {margin.score}"] = a - b
    return kept


def ratio(own: float | None, theirs: float | None) -> float | None:
    """Own ÷ theirs, where theirs is anything."""
    return None if own is None or theirs is None or not theirs > 0 else float(own / theirs)


def detection(familiar: Columns, other: Columns, key: str) -> float | None:
    """AUROC of telling another set from the test set by this uncertainty."""
    if key not in familiar:
        return None
    scores = np.concatenate([familiar[key], other[key]])
    return metrics.auroc(scores, np.repeat([0, 1], [familiar[key].size, other[key].size]))


def correlation(own: Sets, reference: Sets, key: str, name: str) -> float | None:
    """Rank correlation of an uncertainty with the reference's, on one set."""
    if key not in own["test"] or key not in reference["test"]:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one member has no knowledge to rank: a dash in the table
        return metrics.rank_correlation(own[name][key], reference[name][key])
