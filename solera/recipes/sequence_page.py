"""What the pages of `translation` and `speech` share: AUROC by every measure of a sequence, and rejection curves."""

from collections.abc import Iterable, Mapping
from typing import Any

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.recipes.page import table


def every_measure(found: Evaluation, measures: Mapping[str, str], models: Iterable[str]) -> str:
    """AUROC of each unfamiliar set by each measure that a model has, given by its key and title."""
    sets = [name for name in found.elements if name != "test"]
    rows = []
    for model in models:
        for key, title in measures.items():
            values = [found.rows[model].get(f"OOD {name} {key}") for name in sets]
            if any(value is not None for value in values):
                rows.append([model, title, *(display("OOD", value, found.task) for value in values)])
    return table(["model", "by", *sets], rows)


def draw_rejection(panel: Any, found: Evaluation, models: Iterable[str], quality: str) -> None:
    """The quality of what is kept, against the share that is rejected."""
    for name in models:
        (curve,) = found.task.figures(found.columns[name]["test"], found.target)
        panel.plot(100 * curve.x, 100 * curve.y, label=name)
    panel.set(xlabel="rejected by total uncertainty, %", ylabel=quality, title="Rejection")
    panel.legend(frameon=False)
