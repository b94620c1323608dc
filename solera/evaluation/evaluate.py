"""One table: students beside the ensemble and a single member, on the test set and on unfamiliar inputs."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from solera import metrics
from solera.core.checks import require_finite
from solera.distributions.base import Prediction
from solera.tasks import Columns, Row, task_of


@runtime_checkable
class Predictor(Protocol):
    """A student, an ensemble: whatever answers with a Prediction."""

    def predict(self, inputs: Any) -> Prediction:
        """The answer for these inputs."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Metrics by model, and every model's columns by set, for plots and closer looks."""

    rows: dict[str, Row]
    columns: dict[str, dict[str, Columns]]  # model -> set ("test" or an unfamiliar one) -> columns

    def markdown(self) -> str:
        """The table as Markdown."""
        names = list(dict.fromkeys(key for row in self.rows.values() for key in row))
        lines = ["| model | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for model, row in self.rows.items():
            lines.append(f"| {model} | " + " | ".join(display(name, row.get(name)) for name in names) + " |")
        return "\n".join(lines)


def display(name: str, value: float | None) -> str:
    """A number as a person would want it; a dash where there is none."""
    if value is None or np.isnan(value):
        return "–"
    if name == "parameters":
        return f"{value:,.0f}"
    if name.startswith("µs"):
        return f"{value:.1f}" if value < 100 else f"{value:.0f}"
    if name == "accuracy" or name.startswith(("OOD", "PRR", "coverage")):
        return f"{100 * value:.1f}"
    if name in ("RMSE", "CRPS", "width 90 %"):
        return f"{value:.4g}"
    return f"{value:.3f}"


def microseconds_per_example(models: Mapping[str, Predictor], inputs: Tensor, rounds: int = 15) -> dict[str, float]:
    """Median wall time of `predict` on a batch of 64, per example; the models take turns, so noise hits all alike."""
    batch = inputs[:64]
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model.predict(batch)
            times[name].append(time.perf_counter() - start)
    return {name: 1e6 * float(np.median(taken[1:])) / len(batch) for name, taken in times.items()}


def evaluate(
    models: Mapping[str, Predictor],
    inputs: Tensor,
    labels: Tensor,
    *,
    unfamiliar: Mapping[str, Tensor] | None = None,
    reference: str | None = "ensemble",
) -> Evaluation:
    """Every model on the labelled test inputs, and how well its uncertainties tell each unfamiliar set from them.

    Classes: accuracy, NLL, ECE, Brier score and PRR by total uncertainty. Real (floating-point) targets: RMSE, NLL,
    CRPS, coverage and width of intervals, and how total uncertainty ranks the errors. For each unfamiliar set the AUROC
    by total and by knowledge; rank correlation of knowledge with the reference's, on the test inputs and on all;
    parameters and time.
    """
    require_finite("targets", labels)
    task = task_of(labels)
    sets = {"test": inputs, **(unfamiliar or {})}
    said = {name: {key: model.predict(x) for key, x in sets.items()} for name, model in models.items()}
    every = {
        name: {key: task.columns(p, labels if key == "test" else None) for key, p in predictions.items()}
        for name, predictions in said.items()
    }
    live = {name: model for name, model in models.items() if getattr(model, "live", True)}
    rows, times = {}, microseconds_per_example(live, inputs)
    for name, model in models.items():
        own, test = every[name], every[name]["test"]
        row = task.scores(said[name]["test"], test, labels)
        for key in sets:
            if key != "test":
                row |= {
                    f"OOD {key} {measure}": _detection(test, own[key], measure) for measure in ("total", "knowledge")
                }
        if reference is not None and reference in models:
            row["ρ knowledge"] = _correlation(own, every[reference], ["test"])
            if len(sets) > 1:
                row["ρ knowledge, all"] = _correlation(own, every[reference], list(sets))
        row["parameters"] = sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else None
        row["µs/example"] = times.get(name)
        rows[name] = row
    return Evaluation(rows, every)


def _detection(familiar: Columns, other: Columns, measure: str) -> float | None:
    if measure not in familiar:
        return None
    scores = np.concatenate([familiar[measure], other[measure]])
    return metrics.auroc(scores, np.repeat([0, 1], [len(familiar[measure]), len(other[measure])]))


def _correlation(own: dict[str, Columns], reference: dict[str, Columns], sets: list[str]) -> float | None:
    if "knowledge" not in own["test"] or "knowledge" not in reference["test"]:
        return None
    a, b = (np.concatenate([side[key]["knowledge"] for key in sets]) for side in (own, reference))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one member has no knowledge to rank: a dash in the table
        return metrics.rank_correlation(a, b)
