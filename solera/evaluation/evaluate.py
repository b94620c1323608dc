"""One table: students beside the ensemble and a single member, on the test set and on unfamiliar inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from solera.core.checks import require_finite
from solera.core.versions import versions
from solera.distributions.base import Prediction
from solera.evaluation.examples import examples
from solera.evaluation.latency import costs
from solera.evaluation.measure import Sets
from solera.evaluation.result import Evaluation, assembled
from solera.tasks import Regression, task_of


@runtime_checkable
class Predictor(Protocol):
    """A student, an ensemble: whatever answers with a Prediction."""

    def predict(self, inputs: Any) -> Prediction:
        """The answer for these inputs."""
        ...


Said = Mapping[str, Prediction]  # by set: what a model that is not there any more said


def _check_sets(inputs: Tensor, labels: Tensor, unfamiliar: Mapping[str, Tensor]) -> None:
    require_finite("targets", labels)
    if len(inputs) != len(labels):
        raise ValueError(f"there are {len(inputs)} inputs and {len(labels)} labels: pass one label for each input")
    if "test" in unfamiliar:
        raise ValueError("an unfamiliar set is called 'test', as the labelled set is: give it another name")
    for name, x in {"test": inputs, **unfamiliar}.items():
        if not len(x):
            raise ValueError(f"the set {name!r} is empty: pass at least one input")


def _answers(name: str, model: Predictor | Said, sets: Mapping[str, Tensor]) -> dict[str, Prediction]:
    """What a model says about each set."""
    if not isinstance(model, Mapping):
        return {key: model.predict(x) for key, x in sets.items()}
    said = {key: model[key] for key in sets if key in model}
    if "test" not in said:
        raise ValueError(f"what {name} said has no entry 'test': its answers about the test inputs are needed")
    for key, prediction in said.items():
        if len(prediction.mean) != len(sets[key]):
            raise ValueError(
                f"{name} answered for {len(prediction.mean)} inputs of the set {key!r}, which has {len(sets[key])}"
            )
    return said


def _check_answers(said: Mapping[str, Mapping[str, Prediction]], labels: Tensor) -> None:
    """All models must speak of the same classes or targets, and the labels of those too."""
    sizes = {name: predictions["test"].mean.shape[-1] for name, predictions in said.items()}
    task, (first, size) = task_of(labels), next(iter(sizes.items()))
    what = "dimensions" if isinstance(task, Regression) else "classes"
    for name, other in sizes.items():
        if other != size:
            raise ValueError(f"{name} answers for {other} {what}, {first} for {size}: compare models of one question")
    task.check(labels, size)


def _names(models: Mapping[str, Any], classes: Sequence[str] | None) -> Sequence[str] | None:
    """What the classes are called: as given, or as the models that have names agree."""
    found = {name: list(model.labels) for name, model in models.items() if getattr(model, "labels", None)}
    if classes is None and found:
        first, classes = next(iter(found.items()))
        for name, labels in found.items():
            if labels != classes:
                raise ValueError(
                    f"{name} has the classes {labels[:5]}, {first} has {classes[:5]}: their columns must stand in one "
                    "order, pass labels=... to the Ensemble"
                )
    return classes


def _features(models: Mapping[str, Any], inputs: Tensor, features: Sequence[str] | None) -> Sequence[str] | None:
    """What the numbers of a row are called: as given, or as the first model says that has names for so many."""
    if inputs.ndim != 2:
        return None
    if features is not None and len(features) != inputs.shape[1]:
        raise ValueError(f"there are {len(features)} names of features for rows of {inputs.shape[1]}: name each once")
    known = [getattr(getattr(model, "preprocessing", None), "features", ()) for model in models.values()]
    return features or next((names for names in known if len(names) == inputs.shape[1]), None)


def evaluate(
    models: Mapping[str, Predictor | Said],
    inputs: Tensor,
    labels: Tensor,
    *,
    unfamiliar: Mapping[str, Tensor] | None = None,
    reference: str | None = "ensemble",
    single: str | None = "single",
    baseline: str | None = "baseline",
    classes: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    resamples: int = 0,
) -> Evaluation:
    """Every model on the labelled test inputs, and how well its uncertainties tell each unfamiliar set from them.

    Classes: accuracy, NLL, ECE, Brier score and PRR by total uncertainty. Real (floating-point) targets: RMSE, NLL,
    CRPS, coverage and width of intervals, and how total uncertainty ranks the errors. For each unfamiliar set the AUROC
    by total and by knowledge; rank correlation of knowledge with the reference's, on the test inputs and on all;
    parameters and time. With `resamples`, bootstrap intervals of all of that and of differences from the reference.

    A model answers by `predict`, or is what it once said: a mapping from sets to predictions, "test" and as many of
    the unfamiliar ones as there are. The reference, a single member and a baseline of your own go by these names, if
    they are among the models; all others are students. `classes` and `features` name what the models do not name.
    """
    sets = {"test": inputs, **(unfamiliar or {})}
    _check_sets(inputs, labels, unfamiliar or {})
    task, target = task_of(labels), labels.detach().cpu().numpy()
    names, columns_named = _names(models, classes), _features(models, inputs, features)
    reference, single, baseline = (name if name in models else None for name in (reference, single, baseline))
    students = tuple(name for name in models if name not in (reference, single, baseline))
    said = {name: _answers(name, model, sets) for name, model in models.items()}
    _check_answers(said, labels)
    every: dict[str, Sets] = {}
    for name, predictions in said.items():
        every[name] = {key: task.columns(p, labels if key == "test" else None) for key, p in predictions.items()}
        for key, prediction in predictions.items():
            if reference is not None and key in said[reference]:
                every[name][key] |= task.compare(prediction, said[reference][key])
    result = assembled(task, every, target, reference, costs(models, inputs), resamples)
    return replace(
        result,
        single=single,
        baseline=baseline,
        students=students,
        labels=names,
        examples=examples(sets, target, said, every, students, task, names, columns_named),
        made=versions(),
    )
