"""All that a report says, as JSON values: what `report.json` holds and `page` draws."""

from dataclasses import asdict
from typing import Any

import numpy as np

from solera.evaluation.curves import edges_for, model_curves, scatter
from solera.evaluation.evaluation import Evaluation
from solera.evaluation.glossary import explained
from solera.evaluation.json_values import plain
from solera.evaluation.measure import MEASURES, Sets
from solera.evaluation.thresholds import SHARES, threshold_for_false_alarms, threshold_table, thresholds_for_errors
from solera.evaluation.verdict import Verdict, verdict
from solera.tasks import Task

SCHEMA = 2
TITLE = "Did the student keep what the ensemble knew?"
ALARMS = (0.01, 0.05, 0.10)  # wanted false alarm rates


def verdicts(evaluation: Evaluation) -> list[Verdict]:
    """One for every student; none without a reference or without intervals."""
    if evaluation.reference is None or not evaluation.draws:
        return []
    others = {"single": evaluation.single, "baseline": evaluation.baseline}
    return [verdict(evaluation, student, **others) for student in evaluation.students]


def _judged(found: Verdict) -> dict[str, Any]:
    return {
        "student": found.student,
        "deploy": found.deploy_student,
        "use": found.deploy,
        "undecided": found.undecided,
        "knowledge": found.use_knowledge,
        "rejection": found.use_rejection,
        "states": found.states,
        "sentences": found.sentences,
    }


def _sets(evaluation: Evaluation) -> list[dict[str, Any]]:
    return [
        {"name": name, "examples": facts.examples, "labelled": facts.target is not None}
        for name, facts in evaluation.elements.items()
    ]


def _thresholds(sets: Sets, task: Task) -> dict[str, Any]:
    table = threshold_table(sets["test"], task)
    return {
        measure: [{"rejected": share, **asdict(row)} for share, row in zip(SHARES, rows, strict=True)]
        for measure, rows in table.items()
    }


def _wanted_errors(sets: Sets, task: Task, measure: str) -> list[dict[str, Any]]:
    wanted = task.errors.wanted
    if task.errors.relative:
        wanted = tuple(share * float(np.mean(task.error(sets["test"]), dtype=np.float64)) for share in wanted)
    found = thresholds_for_errors(sets["test"], task, wanted, measure)
    names = ("threshold", "coverage", "error", "low", "high")
    return [
        {"wanted": most, "measure": measure, **{name: getattr(row, name, None) for name in names}}
        for most, row in zip(wanted, found, strict=True)
    ]


def _wanted_alarms(sets: Sets, name: str, measure: str) -> list[dict[str, Any]]:
    found = []
    for wanted in ALARMS:
        threshold, alarms, caught = threshold_for_false_alarms(sets["test"], sets[name], wanted, measure)
        place = {"set": name, "wanted": wanted, "measure": measure}
        found.append({**place, "threshold": threshold, "alarms": alarms, "caught": caught})
    return found


def _wanted(sets: Sets, task: Task) -> dict[str, Any]:
    measures = [measure for measure in MEASURES if measure in sets["test"]]
    others = [name for name in sets if name != "test"]
    return {
        "error": [row for measure in (*measures, *task.doubts) for row in _wanted_errors(sets, task, measure)],
        "false alarms": [row for name in others for measure in measures for row in _wanted_alarms(sets, name, measure)],
    }


def content(evaluation: Evaluation, title: str = TITLE) -> dict[str, Any]:
    """The whole report of an evaluation: verdicts, metrics, curves, examples and thresholds."""
    every, task = evaluation.columns, evaluation.task
    models = [evaluation.numbers(model) for model in evaluation.rows]
    names = [name for part in ("metrics", "fidelity") for model in models for name in model[part]]
    measures = [m for m in MEASURES if any(m in c for sets in every.values() for c in sets.values())]
    edges = {measure: edges_for(every, measure) for measure in measures}
    sets = _sets(evaluation)
    compared, reference = {}, evaluation.reference
    if reference is not None:
        compared = scatter(every, evaluation.elements, reference, [s["name"] for s in sets])
    found = {
        "schema": SCHEMA,
        "title": title,
        "made": evaluation.made,
        "task": task.name,
        "question": task.question,
        "error": {"name": task.errors.name, "percent": task.errors.percent, "units": task.errors.units},
        "reference": evaluation.reference,
        "labels": evaluation.class_names,
        "verdicts": [_judged(found) for found in verdicts(evaluation)],
        "metrics": explained(list(dict.fromkeys(names)), task),
        "models": models,
        "sets": sets,
        "curves": {name: model_curves(own, evaluation.target, task, edges) for name, own in every.items()},
        "scatter": compared,
        "examples": evaluation.examples,
        "thresholds": {name: _thresholds(own, task) for name, own in every.items()},
        "wanted": {name: _wanted(own, task) for name, own in every.items()},
    }
    return plain(found)
