"""What an evaluation knows of a metric, or of the difference of two models in it: a value and its interval.

Shares of independent elements (accuracy) have exact intervals. All else has bootstrap intervals over examples, bias-
corrected where chance inflates the metric (ECE). A share of dependent elements (the tokens of a sentence) has the
bootstrap's, widened to what n examples that are all alike would leave open.
"""

from typing import TYPE_CHECKING

import numpy as np

from solera.evaluation.glossary import score_named
from solera.evaluation.intervals import Interval, interval, interval_of_inflated
from solera.evaluation.shares import exact, least_width, paired
from solera.tasks import Task

if TYPE_CHECKING:
    from solera.evaluation.evaluation import Evaluation


def share_column(task: Task, metric: str) -> tuple[str, str] | None:
    """Where a metric is a share: the set and the column of 0 and 1 that it is the mean of; by the margins."""
    score, other = score_named(metric, task)
    found = [margin.column for margin in task.margins if score is not None and margin.score == score.name]
    return (other or "test", found[0]) if found and found[0] else None


def independent(result: "Evaluation", name: str, model: str) -> bool:
    """Whether every example of a set is one element, and all count alike."""
    facts = result.elements[name]
    return facts.examples == len(facts.example) and "weight" not in result.columns[model][name]


def _widened(found: Interval | None, width: float) -> Interval | None:
    if found is None:
        return None
    return Interval(found.value, min(found.low, found.value - width), max(found.high, found.value + width))


def interval_of(result: "Evaluation", model: str, metric: str) -> Interval | None:
    """A metric with its interval; None without resamples, or where some resample does not have it."""
    value, drawn = result.rows[model].get(metric), result.draws.get(model, {}).get(metric)
    found = None if drawn is None else interval(value, drawn)
    share, (score, _) = share_column(result.task, metric), score_named(metric, result.task)
    if found is None or drawn is None:
        return found
    if share is not None and independent(result, share[0], model):
        correct = result.columns[model][share[0]][share[1]]
        return Interval(found.value, *exact(float(correct.sum()), len(correct)))
    if share is not None:
        found = _widened(found, least_width(result.elements[share[0]].examples))
        return found and Interval(found.value, max(found.low, 0.0), min(found.high, 1.0))
    if score is not None and score.inflated:
        found = interval_of_inflated(found.value, drawn)
        return Interval(found.value, max(found.low, 0.0), found.high)
    return found


def difference_of(result: "Evaluation", model: str, other: str, metric: str) -> Interval | None:
    """`model`'s metric less `other`'s, on the same examples; None without resamples, or where one is not finite."""
    values = [result.rows[name].get(metric) for name in (model, other)]
    drawn = [result.draws.get(name, {}).get(metric) for name in (model, other)]
    if values[0] is None or values[1] is None or drawn[0] is None or drawn[1] is None:
        return None
    if not np.isfinite([*values, *drawn[0], *drawn[1]]).all():  # type: ignore[arg-type]
        return None
    share, (score, _) = share_column(result.task, metric), score_named(metric, result.task)
    if share is not None and independent(result, share[0], model):
        own, theirs = (result.columns[name][share[0]][share[1]].astype(bool) for name in (model, other))
        ends = paired(float((own & ~theirs).sum()), float((theirs & ~own).sum()), len(own))
        return Interval(values[0] - values[1], *ends)
    if score is not None and score.inflated:
        return interval_of_inflated(values[0], drawn[0], values[1], drawn[1])
    found = interval(values[0] - values[1], drawn[0] - drawn[1])
    return found if share is None else _widened(found, least_width(result.elements[share[0]].examples))
