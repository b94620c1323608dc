"""What the pages of `translation` and `speech` share: AUROC by every measure, whether it is enough, and rejection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.recipes.page import look, table, word

KNOWING = {"knowledge": "knowledge", "rmi": "RMI"}  # what a single model does not have
WHOLE = {"total": "total", **KNOWING}
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


def told_as_wanted(found: Evaluation, wanted: Sequence[tuple[str, str, float]]) -> str:
    """Whether models tell unfamiliar sets as well as wanted: of each its name, the set's and the least AUROC."""
    rows = []
    for key, title in WHOLE.items():
        told = [(found.interval(model, f"OOD {name} {key}"), least) for model, name, least in wanted]
        rows.append([title, *("–" if at is None else _cell(at.low, at.value, at.high, least) for at, least in told)])
    head = [f"{model}: {name}, AUROC of {100 * least:.0f}" for model, name, least in wanted]
    return table(["by", *head], rows)


def skill_kept(found: Evaluation, names: Sequence[str]) -> str:
    """Whether SEnD² keeps enough of the ensemble's AUROC above chance, by knowledge and by RMI."""
    rows = [[title, *(_share_kept(found, f"OOD {name} {key}") for name in names)] for key, title in KNOWING.items()]
    return table([f"{100 * SHARE:.0f} % kept, by", *names], rows)


def _share_kept(found: Evaluation, metric: str) -> str:
    """Nothing where the ensemble has no skill."""
    own, theirs = (found.rows[model].get(metric) for model in ("SEnD²", "ensemble"))
    if own is None or theirs is None or theirs <= 0.5:
        return "–"
    drawn = [np.asarray(found.draws[model][metric]) - 0.5 for model in ("SEnD²", "ensemble")]
    low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975])
    return _cell(float(low), (own - 0.5) / (theirs - 0.5), float(high), SHARE)


def _cell(low: float, middle: float, high: float, least: float) -> str:
    """In per cent."""
    return f"**{word(low, middle, least)}** {100 * middle:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def draw_rejection(panel: Any, found: Evaluation, models: Iterable[str], quality: str) -> None:
    """The quality of what is kept, against the share that is rejected."""
    for name in models:
        (curve,) = found.task.figures(found.columns[name]["test"], found.target)
        panel.plot(100 * curve.x, 100 * curve.y, label=name, **look(name))
    panel.set(xlabel="rejected by total uncertainty, %", ylabel=quality, title="Rejection")
    panel.legend(frameon=False)
