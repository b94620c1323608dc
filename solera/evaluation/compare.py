"""Several evaluations of the same test set as one."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from solera.evaluation.evaluation import Evaluation, assembled
from solera.evaluation.measure import Sets
from solera.tasks import Columns, Task


def _alone(sets: Sets, task: Task) -> Sets:
    """What a model said, without a look at its reference."""

    def own(columns: Columns) -> Columns:
        return {key: column for key, column in columns.items() if key not in task.beside}

    return {name: own(columns) for name, columns in sets.items()}


def _same(a: Sets, b: Sets, task: Task) -> bool:
    """Whether two models said the same, on the same sets."""
    alone = [_alone(sets, task) for sets in (a, b)]
    flat = [{(name, key): column for name, c in sets.items() for key, column in c.items()} for sets in alone]
    return flat[0].keys() == flat[1].keys() and all(np.array_equal(flat[0][key], flat[1][key]) for key in flat[0])


def _check(first: str, one: Evaluation, name: str, other: Evaluation) -> None:
    """Refuses evaluations that are not of the same test examples, or have two sets of one name."""
    if not np.array_equal(one.target, other.target):
        raise ValueError(
            f"{first} and {name} are not evaluations of the same test set (their {len(one.target)} and "
            f"{len(other.target)} labels are not equal one by one): evaluate both on the same inputs and labels"
        )
    names, others = one.class_names, other.class_names
    if names is not None and others is not None and list(names) != list(others):
        raise ValueError(f"{first} and {name} name their classes differently: {names[:5]}, {others[:5]}")
    mine, theirs = one.sizes, other.sizes
    for key in mine.keys() & theirs.keys():
        if mine[key] != theirs[key]:
            raise ValueError(
                f"the set {key!r} has {mine[key]} inputs in {first} and {theirs[key]} in {name}: name them apart"
            )


def compare(evaluations: Mapping[str, Evaluation]) -> Evaluation:
    """All models of these evaluations, named `A: Proxy`; one that said the same in all of them is there once.

    The first evaluation's reference, single member and baseline are everybody's. Where the others had another
    reference, it is not known how far their models are from this one answer by answer. Intervals are computed again.
    """
    if len(evaluations) < 2:
        raise ValueError(f"there is nothing to compare {', '.join(evaluations) or 'nothing'} with: give two or more")
    (first, one), *rest = evaluations.items()
    for name, other in rest:
        _check(first, one, name, other)
    common = {
        model
        for model, sets in one.columns.items()
        if all(model in e.columns and _same(sets, e.columns[model], one.task) for _, e in rest)
    }

    def called(name: str, model: str) -> str:
        return model if model in common else f"{name}: {model}"

    columns: dict[str, Sets] = {}
    for name, found in evaluations.items():
        for model, sets in found.columns.items():
            one_reference = found is one or one.reference in common
            columns.setdefault(called(name, model), sets if one_reference else _alone(sets, one.task))
    every = [(name, found, model) for name, found in evaluations.items() for model in found.columns]
    roles = {role: getattr(one, role) for role in ("reference", "single", "baseline")}
    roles = {role: None if model is None else called(first, model) for role, model in roles.items()}
    costs = {called(name, model): found.costs[model] for name, found, model in every if model in found.costs}
    resamples = max((len(d) for _, e, _ in every for m in e.draws.values() for d in m.values()), default=0)
    elements = {name: facts for e in reversed(list(evaluations.values())) for name, facts in e.elements.items()}
    whole = assembled(one.task, columns, elements, roles.pop("reference"), costs, resamples)
    students = dict.fromkeys(called(name, model) for name, found, model in every if model in found.students)
    return replace(whole, students=tuple(students), class_names=one.class_names, made=one.made, **roles)
