"""One table: students beside the ensemble and a single member, on the test set and on unfamiliar inputs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from solera.core.checks import require_finite
from solera.distributions.base import Prediction
from solera.evaluation.intervals import Draws, Interval, bootstrap, interval
from solera.evaluation.measure import Sets, fidelity, measure
from solera.tasks import Row, Task, task_of


@runtime_checkable
class Predictor(Protocol):
    """A student, an ensemble: whatever answers with a Prediction."""

    def predict(self, inputs: Any) -> Prediction:
        """The answer for these inputs."""
        ...


@dataclass(frozen=True)
class Evaluation:
    """Metrics by model, and every model's columns by set, for plots and closer looks."""

    task: Task
    rows: dict[str, Row]
    columns: dict[str, Sets]  # model -> set ("test" or an unfamiliar one) -> columns
    reference: str | None = None
    fidelity: dict[str, Row] = field(default_factory=dict)  # what each model kept of the reference's answers
    draws: Draws = field(default_factory=dict)  # metrics of resampled examples, where they were asked for

    def interval(self, model: str, metric: str) -> Interval | None:
        """A metric with its bootstrap interval."""
        drawn = self.draws.get(model, {}).get(metric)
        return None if drawn is None else interval(self.rows[model].get(metric), drawn)

    def difference(self, model: str, other: str, metric: str) -> Interval | None:
        """`model`'s metric less `other`'s, on the same resampled examples."""
        values = [self.rows[name].get(metric) for name in (model, other)]
        drawn = [self.draws.get(name, {}).get(metric) for name in (model, other)]
        if values[0] is None or values[1] is None or drawn[0] is None or drawn[1] is None:
            return None
        return interval(values[0] - values[1], drawn[0] - drawn[1])

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
    resamples: int = 0,
) -> Evaluation:
    """Every model on the labelled test inputs, and how well its uncertainties tell each unfamiliar set from them.

    Classes: accuracy, NLL, ECE, Brier score and PRR by total uncertainty. Real (floating-point) targets: RMSE, NLL,
    CRPS, coverage and width of intervals, and how total uncertainty ranks the errors. For each unfamiliar set the AUROC
    by total and by knowledge; rank correlation of knowledge with the reference's, on the test inputs and on all;
    parameters and time. With `resamples`, bootstrap intervals of all of that and of differences from the reference.
    """
    require_finite("targets", labels)
    task, sets = task_of(labels), {"test": inputs, **(unfamiliar or {})}
    reference = reference if reference in models else None
    said = {name: {key: model.predict(x) for key, x in sets.items()} for name, model in models.items()}
    every: dict[str, Sets] = {}
    for name, predictions in said.items():
        every[name] = {key: task.columns(p, labels if key == "test" else None) for key, p in predictions.items()}
        if reference is not None:
            for key, prediction in predictions.items():
                every[name][key] |= task.compare(prediction, said[reference][key])

    def rows_of(columns: Mapping[str, Sets]) -> dict[str, Row]:
        theirs = columns[reference] if reference is not None else None
        return {name: measure(own, theirs, task) for name, own in columns.items()}

    rows = rows_of(every)
    kept = {name: fidelity(own, every[reference]) for name, own in every.items()} if reference is not None else {}
    draws = bootstrap(every, rows_of, resamples)
    live = {name: model for name, model in models.items() if getattr(model, "live", True)}
    times = microseconds_per_example(live, inputs)
    for name, model in models.items():
        rows[name]["parameters"] = sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else None
        rows[name]["µs/example"] = times.get(name)
    return Evaluation(task, rows, every, reference, kept, draws)
