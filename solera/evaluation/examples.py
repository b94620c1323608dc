"""A few examples to look at: the most uncertain ones of every kind and set, and some typical ones, with all answers."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from torch import Tensor

from solera.distributions.base import Prediction
from solera.evaluation.measure import MEASURES, Sets
from solera.evaluation.plain import plain
from solera.evaluation.shown import shown, value_range
from solera.tasks import Regression, Task

MOST, TYPICAL, CLASSES = 36, 2, 5
Chosen = dict[tuple[str, int], str]  # (set, row) -> why


def choose(every: Mapping[str, Sets], students: Sequence[str]) -> Chosen:
    """The most uncertain by each measure on each set for each student in turn, 36 at most, and two typical of each set.

    Typical: of about the median total uncertainty of the first student.
    """
    who = list(students) or list(every)
    orders = {
        (measure, model, name): np.argsort(-columns[measure], kind="stable")[:MOST]
        for measure in ("knowledge", "total", "data")
        for model in who
        for name, columns in every[model].items()
        if measure in columns
    }
    found: Chosen = {}
    for rank in range(MOST):
        for (measure, _, name), order in orders.items():
            if rank < len(order) and len(found) < MOST:
                found.setdefault((name, int(order[rank])), f"most {measure}")
    for name, columns in every[who[0]].items():
        middle = np.argsort(np.abs(columns["total"] - np.median(columns["total"])), kind="stable")
        for row in middle[:TYPICAL]:
            found.setdefault((name, int(row)), "typical")
    return found


def _rows(prediction: Any, rows: list[int]) -> Any:
    """The prediction for these rows alone."""
    if prediction is None or isinstance(prediction, Tensor):
        return None if prediction is None else prediction[rows]
    return type(prediction)(*(_rows(getattr(prediction, f.name), rows) for f in fields(prediction)))


def answers(
    prediction: Prediction, columns: Mapping[str, np.ndarray], rows: list[int], task: Task, labels: Sequence[str] | None
) -> list[dict[str, Any]]:
    """For each of these rows: the likeliest classes, or the mean with its 90 % interval; and the uncertainties."""
    spread = [{name: columns[name][row] if name in columns else None for name in MEASURES} for row in rows]
    mean = prediction.mean[rows].detach().cpu().numpy()
    nothing = {"top": None, "mean": None, "low": None, "high": None}
    if isinstance(task, Regression):
        if mean.shape[-1] > 1:
            return [{**nothing, **each} for each in spread]
        low, high = task.ends(_rows(prediction, rows))
        ends = zip(mean[:, 0], low[:, 0], high[:, 0], spread, strict=True)
        return [{**nothing, "mean": m, "low": a, "high": b, **each} for m, a, b, each in ends]
    best = np.argsort(-mean, axis=-1, kind="stable")[:, :CLASSES]
    tops = [[[_class(int(k), labels), p[k]] for k in ks] for p, ks in zip(mean, best, strict=True)]
    return [{**nothing, "top": top, **each} for top, each in zip(tops, spread, strict=True)]


def _class(number: int, labels: Sequence[str] | None) -> str:
    return labels[number] if labels else str(number)


def examples(
    inputs: Mapping[str, Tensor],
    target: np.ndarray,
    said: Mapping[str, Mapping[str, Prediction]],
    every: Mapping[str, Sets],
    students: Sequence[str],
    task: Task,
    labels: Sequence[str] | None,
    features: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """The chosen examples, as JSON values; none of sequences, whose every token has an answer of its own."""
    if any(columns["total"].ndim != 1 for sets in every.values() for columns in sets.values()):
        return []
    chosen = choose(every, students)
    spans = {name: value_range(x) for name, x in inputs.items()}
    told: dict[tuple[str, int], dict[str, Any]] = {place: {} for place in chosen}
    for model, predictions in said.items():
        for name, prediction in predictions.items():
            rows = [row for where, row in chosen if where == name]
            if rows:
                found = answers(prediction, every[model][name], rows, task, labels)
                for row, answer in zip(rows, found, strict=True):
                    told[name, row][model] = answer
    return [
        plain(
            {
                "set": name,
                "row": row,
                "label": _label(target[row], task, labels) if name == "test" else None,
                "why": why,
                "shown": shown(inputs[name][row], spans["test"], features),
                "answers": told[name, row],
            }
        )
        for (name, row), why in chosen.items()
    ]


def _label(value: Any, task: Task, labels: Sequence[str] | None) -> Any:
    if isinstance(task, Regression):
        return value if np.ndim(value) == 0 else None
    return _class(int(value), labels)
