"""One table: students beside the ensemble and a single member, on the test set and on unfamiliar inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from solera.core.renamed import renamed_arguments
from solera.core.versions import versions
from solera.data import ManyBatches, as_batches, class_numbers, tensors_in
from solera.data.names import are_names
from solera.data.sequences import is_ragged
from solera.evaluation.evaluation import Evaluation, assembled
from solera.evaluation.examples import examples
from solera.evaluation.latency import costs
from solera.evaluation.recalibrated import calibrated_name, with_calibrated
from solera.evaluation.stream import by_set, stream
from solera.tasks import Task, task_of

BATCH = 1024  # examples of arrays that are dealt out together


def _names(models: Mapping[str, Any], given: Sequence[str] | None) -> Sequence[str] | None:
    """What the classes are called: as given, or as the models that have names agree."""
    found = {name: list(model.class_names) for name, model in models.items() if getattr(model, "class_names", None)}
    if given is None and found:
        first, given = next(iter(found.items()))
        for name, names in found.items():
            if names != given:
                raise ValueError(
                    f"{name} has the classes {names[:5]}, {first} has {given[:5]}: their columns must stand in one "
                    "order, pass class_names=... to the Ensemble"
                )
    return given


def _features(models: Mapping[str, Any], batches: ManyBatches, features: Sequence[str] | None) -> Sequence[str] | None:
    """What the numbers of a row are called: as given, or as the first model says that has names for so many."""
    tensors = tensors_in(next(iter(batches)).inputs)
    if len(tensors) != 1 or tensors[0].ndim != 2:
        return None
    width = tensors[0].shape[1]
    if features is not None and len(features) != width:
        raise ValueError(f"there are {len(features)} names of features for rows of {width}: name each once")
    known = [getattr(getattr(model, "preprocessing", None), "features", ()) for model in models.values()]
    return features or next((names for names in known if len(names) == width), None)


def _pair(data: Any) -> tuple[Any, Any]:
    """A set as inputs and targets: a pair of arrays is one, anything else has no targets beside it."""
    pair = isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, tuple) for part in data)
    return data if pair else (data, None)


def _is_empty(data: Any) -> bool:
    """Of data that tell their length."""
    try:
        return not isinstance(data, dict) and len(data) == 0
    except TypeError:
        return False


def _batches(data: Any, target: Any, task: Task | None, names: Sequence[str] | None, what: str) -> ManyBatches:
    """A set as batches, its labels as class numbers by the models' names."""
    if _is_empty(data):
        raise ValueError(f"the set {what!r} is empty: pass at least one input")
    classes = task is None or task.family == "categorical"
    if target is not None and classes and not is_ragged(target) and are_names(target, names):
        target, _ = class_numbers(target, names)
    if target is not None and hasattr(data, "__len__") and not isinstance(data, dict) and len(data) != len(target):
        raise ValueError(f"there are {len(data)} inputs and {len(target)} labels: pass one label for each input")
    return as_batches(data, target, batch_size=BATCH, read=None if task is None else task.batch, names=names)


@renamed_arguments(classes="class_names")
def evaluate(
    models: Mapping[str, Any],
    data: Any,
    labels: Any = None,
    *,
    task: Task | None = None,
    unfamiliar: Mapping[str, Any] | None = None,
    reference: str | None = "ensemble",
    single: str | None = "single",
    baseline: str | None = "baseline",
    class_names: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    resamples: int = 0,
) -> Evaluation:
    """Every model on the labelled test data, and how well its uncertainties tell each unfamiliar set from them.

    `data` are inputs with `labels` beside them, or batches, a `DataLoader` or a data set that bring their own; models
    are asked batch by batch and columns alone are kept, so memory depends neither on classes nor on members. Elements
    without a label are left out, weights are honoured. An unfamiliar set may have labels, too, `(inputs, labels)`: then
    its accuracy and calibration are measured. Without a `task`, whole numbers as labels are classes and
    floating-point ones continuous targets.

    Classes: accuracy, NLL, ECE, Brier score and PRR by total uncertainty. Continuous targets: RMSE, NLL, CRPS, coverage
    and width of intervals, and how total uncertainty ranks the errors. For each unfamiliar set the AUROC by total and
    by knowledge; rank correlation of knowledge with the reference's, on the test inputs and on each set; parameters and
    time. With `resamples`, bootstrap intervals of all of that and of differences from the reference.

    A model answers by `predict`, or is a teacher that remembers, or is what it once said: a mapping from sets to
    predictions, "test" and as many of the unfamiliar ones as there are. The reference, a single member and a baseline
    of your own go by these names, if they are among the models; all others are students. Beside a single member stands
    the same member calibrated (cross-fitted on the two halves of the test examples, see
    `solera.evaluation.recalibrated`; one of your own goes by the name "single, calibrated"). `class_names` and
    `features` name what the models do not name.
    """
    if "test" in (unfamiliar or {}):
        raise ValueError("an unfamiliar set is called 'test', as the labelled set is: give it another name")
    for name, model in models.items():
        if isinstance(model, Mapping) and "test" not in model:
            raise ValueError(f"what {name} said has no entry 'test': its answers about the test inputs are needed")
    names = _names(models, class_names)
    if task is not None:
        data = task.prepared(data, models)
        unfamiliar = {name: task.prepared(given, models) for name, given in (unfamiliar or {}).items()}
    sets = {"test": _batches(data, labels, task, names, "test")}
    first = next(iter(sets["test"]))
    if first.target is None:
        raise ValueError("the test data have no labels: pass evaluate(models, inputs, labels), or data that bring them")
    task = task or task_of(first.target)
    for name, given in (unfamiliar or {}).items():
        sets[name] = _batches(*_pair(given), task, names, name)
    columns_named = _features(models, sets["test"], features)
    reference, single, baseline = (name if name in models else None for name in (reference, single, baseline))
    rivals = (single, baseline, single and calibrated_name(single))
    students = tuple(name for name in models if name not in (reference, *rivals))
    cost = costs(models, first.inputs)
    models = with_calibrated(models, single, sets["test"], task)
    if single is not None:
        cost.setdefault(calibrated_name(single), cost[single])
    streamed = {name: stream(models, name, batches, task, reference) for name, batches in sets.items()}
    every = by_set({name: columns for name, (_, columns) in streamed.items()})
    elements = {name: facts for name, (facts, _) in streamed.items()}
    result = assembled(task, every, elements, reference, cost, resamples)
    return replace(
        result,
        single=single,
        baseline=baseline,
        students=students,
        class_names=names,
        examples=examples(models, sets, elements, every, students, task, names, columns_named),
        made=versions(),
    )
