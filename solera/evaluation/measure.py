"""Metrics of one model from columns: its scores, how it tells unfamiliar inputs, and what it kept of the ensemble."""

import warnings

import numpy as np

from solera import metrics
from solera.tasks import Columns, Row, Task

MEASURES = ("total", "data", "knowledge")
Sets = dict[str, Columns]  # "test", and every unfamiliar or shifted set


def measure(own: Sets, reference: Sets | None, task: Task) -> Row:
    """Scores on the test set, AUROC by total and knowledge on unfamiliar sets, and the correlation of knowledge."""
    row = task.scores(own["test"])
    for name in own:
        if name != "test":
            row |= {f"OOD {name} {key}": detection(own["test"], own[name], key) for key in ("total", "knowledge")}
    if reference is not None:
        row["ρ knowledge"] = correlation(own, reference, "knowledge", ["test"])
        if len(own) > 1:
            row["ρ knowledge, all"] = correlation(own, reference, "knowledge", list(own))
    return row


def fidelity(own: Sets, reference: Sets) -> Row:
    """What a model kept of the reference's answers, on the test inputs; `away` from it, and by how much."""
    test, theirs = own["test"], reference["test"]
    row: Row = {}
    if "agrees" in test:
        row |= {"agreement": float(test["agrees"].mean()), "KL from the ensemble": float(test["kl"].mean())}
    if "away" in test:
        row["mean's distance, in σ"] = float(np.sqrt(test["away"].mean()))
    for key in MEASURES:
        row[f"ρ {key}"] = correlation(own, reference, key, ["test"])
        both = key in test and key in theirs
        row[f"Δ {key}"] = float(np.abs(test[key] - theirs[key]).mean()) if both else None
        row[f"{key} kept"] = ratio(float(test[key].mean()), float(theirs[key].mean())) if both else None
    return row


def ratio(own: float, theirs: float) -> float | None:
    """Own ÷ theirs, where theirs is anything."""
    return float(own / theirs) if theirs > 0 else None


def detection(familiar: Columns, other: Columns, key: str) -> float | None:
    """AUROC of telling another set from the test set by this uncertainty."""
    if key not in familiar:
        return None
    scores = np.concatenate([familiar[key].ravel(), other[key].ravel()])
    return metrics.auroc(scores, np.repeat([0, 1], [familiar[key].size, other[key].size]))


def correlation(own: Sets, reference: Sets, key: str, sets: list[str]) -> float | None:
    """Rank correlation of an uncertainty with the reference's."""
    if key not in own["test"] or key not in reference["test"]:
        return None
    a, b = (np.concatenate([side[name][key].ravel() for name in sets]) for side in (own, reference))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one member has no knowledge to rank: a dash in the table
        return metrics.rank_correlation(a, b)
