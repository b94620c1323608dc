"""What the pages of `translation` and `speech` share: AUROC by every measure, what of it was kept, and rejection."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.recipes.page import judged, table

KNOWING = {"knowledge": "knowledge", "rmi": "RMI"}  # what a single model does not have
SHARE = 0.8  # of the ensemble's AUROC above chance that a student should keep


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


def skill_kept(found: Evaluation, name: str) -> list[str]:
    """Whether SEnD² keeps enough of the ensemble's AUROC above chance, by knowledge and by RMI."""
    lines = []
    for key, title in KNOWING.items():
        metric = f"OOD {name} {key}"
        own, theirs = (found.rows[model].get(metric) for model in ("SEnD²", "ensemble"))
        if own is None or theirs is None or theirs <= 0.5:
            continue
        drawn = [np.asarray(found.draws[model][metric]) - 0.5 for model in ("SEnD²", "ensemble")]
        low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975])
        claim = f"SEnD² keeps {100 * SHARE:.0f} % of the ensemble's skill above chance at telling {name} by {title}"
        lines.append(judged(claim, float(low), (own - 0.5) / (theirs - 0.5), float(high), SHARE))
    return lines


def draw_rejection(panel: Any, found: Evaluation, models: Iterable[str], quality: str) -> None:
    """The quality of what is kept, against the share that is rejected."""
    for name in models:
        (curve,) = found.task.figures(found.columns[name]["test"], found.target)
        panel.plot(100 * curve.x, 100 * curve.y, label=name)
    panel.set(xlabel="rejected by total uncertainty, %", ylabel=quality, title="Rejection")
    panel.legend(frameon=False)
