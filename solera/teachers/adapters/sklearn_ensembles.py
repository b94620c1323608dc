"""The members of scikit-learn's own ensembles: voting, bagging, forests, stacking, pipelines that end in one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from solera.data.names import as_names
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.teachers.adapters.sklearn import Estimator, Regressor

Decode = Callable[[np.ndarray], Any]  # rows → the table that the estimators were fitted on


def as_stack_classifier(members: np.ndarray, stack: np.ndarray) -> np.ndarray:
    """p′_m = s + λ(p_m − p̄), with the largest λ ≤ 1 of each row that keeps all of them ≥ 0: the mean is the stack's s.

    `members` are (M, B, K), `stack` is (B, K).
    """
    apart = members - members.mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(apart < 0, stack / -apart, np.inf)
    share = np.minimum(room.min(axis=(0, 2)), 1.0)[:, None]
    return np.maximum(stack + share * apart, 0.0)  # where λ binds, rounding may fall below 0


def as_stack_regressor(members: np.ndarray, stack: np.ndarray) -> np.ndarray:
    """μ′_m = μ_m + s − μ̄: the members' spread about the stack's own answer s."""
    return members + stack - members.mean(0)


class Panel:
    """Fitted estimators that are asked about the same table, each row of it decoded once for all of them.

    `columns` are those that each was fitted on, where it was not all of them. `stack` is an ensemble whose own answer
    the members' mean must be.
    """

    def __init__(
        self,
        models: Sequence[Any],
        decode: Decode,
        class_names: Sequence[list[str]] | None,
        columns: Sequence[np.ndarray] | None = None,
        stack: Any = None,
    ) -> None:
        self.models, self.decode, self.class_names = models, decode, class_names
        self.columns, self.stack = columns, stack
        self._last: tuple[Tensor, list[np.ndarray]] | None = None

    @property
    def members(self) -> list[Estimator | Regressor]:
        """Every model as a member of a `solera.Ensemble`."""
        if self.class_names is None:
            return [PanelRegressor(self, number) for number in range(len(self.models))]
        return [PanelClassifier(self, number) for number in range(len(self.models))]

    def said(self, inputs: Tensor) -> list[np.ndarray]:
        """Every member's answer about these rows; an ensemble asks all members about one tensor in turn."""
        if self._last is None or self._last[0] is not inputs:
            table = self.decode(inputs.detach().cpu().numpy())
            self._last = (inputs, self._asked(table))
        return self._last[1]

    def _asked(self, table: Any) -> list[np.ndarray]:
        ask = "predict" if self.class_names is None else "predict_proba"
        found = []
        for number, model in enumerate(self.models):
            given = table if self.columns is None else np.asarray(table)[:, self.columns[number]]
            found.append(np.asarray(getattr(model, ask)(given), dtype=np.float64))
        if self.stack is None:
            return found
        shift = as_stack_regressor if self.class_names is None else as_stack_classifier
        return list(shift(np.stack(found), np.asarray(getattr(self.stack, ask)(table), dtype=np.float64)))


def _fingerprint(member: "PanelClassifier | PanelRegressor") -> str:
    panel = member.panel
    return object_fingerprint(member.model if panel.stack is None else (member.model, panel.stack))


class PanelClassifier(Estimator):
    """One classifier of a panel."""

    def __init__(self, panel: Panel, number: int) -> None:
        super().__init__(panel.models[number])
        self.panel, self.number = panel, number
        self.class_names = None if panel.class_names is None else panel.class_names[number]

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self)

    def answer(self, inputs: Any) -> np.ndarray:
        return self.panel.said(inputs)[self.number]


class PanelRegressor(Regressor):
    """One regressor of a panel."""

    def __init__(self, panel: Panel, number: int) -> None:
        super().__init__(panel.models[number])
        self.panel, self.number = panel, number

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self)

    def answer(self, inputs: Any) -> np.ndarray:
        return self.panel.said(inputs)[self.number]


def _kinds() -> dict[str, tuple[type, ...]]:
    from sklearn import ensemble

    return {
        "voting": (ensemble.VotingClassifier, ensemble.VotingRegressor),
        "bagging": (ensemble.BaggingClassifier, ensemble.BaggingRegressor),
        "stacking": (ensemble.StackingClassifier, ensemble.StackingRegressor),
        "forest": (
            *(ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
            *(ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
        ),
    }


def is_ensemble(model: Any) -> bool:
    """Whether its members are models of the same question: voting, bagging, a forest, stacking; fitted or not."""
    from sklearn.pipeline import Pipeline

    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    return isinstance(last, tuple(kind for kinds in _kinds().values() for kind in kinds))


def thawed(model: Any) -> Any:
    """What a `sklearn.frozen.FrozenEstimator` holds; anything else as it is."""
    from sklearn.frozen import FrozenEstimator

    return model.estimator if isinstance(model, FrozenEstimator) else model


def _own_answer(ensemble: Any, kind: str) -> Any:
    """The ensemble itself where its answer is not its members' mean: a stack, or a vote with weights."""
    weights = getattr(ensemble, "weights", None)
    if kind == "stacking" or (kind == "voting" and weights is not None and len(set(weights)) > 1):
        return ensemble
    return None


def _member_classes(ensemble: Any, given: Any, fitted_before: bool) -> list[str]:
    """The names of a member's classes; a member that the ensemble fitted knows them by their numbers."""
    own = np.asarray(given.classes_)
    return as_names(own if fitted_before else ensemble.classes_[own.astype(int)])


def _require_probabilities(models: Sequence[Any]) -> None:
    for number, model in enumerate(models):
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"member {number}, a {type(model).__name__}, gives no probabilities (predict_proba): take another, or "
                "calibrate it by sklearn.calibration.CalibratedClassifierCV"
            )


def panel_of_ensemble(ensemble: Any, decode: Decode, classifies: bool) -> Panel:
    """The members of a fitted ensemble. `decode` makes of rows the table that it was fitted on."""
    from sklearn.pipeline import Pipeline

    ensemble = thawed(ensemble)
    if isinstance(ensemble, Pipeline):
        if len(ensemble) == 1:
            return panel_of_ensemble(ensemble[-1], decode, classifies)
        before = ensemble[:-1]
        return panel_of_ensemble(ensemble[-1], lambda rows: before.transform(decode(rows)), classifies)
    kinds = _kinds()
    kind = next((name for name, types in kinds.items() if isinstance(ensemble, types)), None)
    if kind is None:
        raise ValueError(
            f"a single fitted {type(ensemble).__name__} is no ensemble: pass a list of fitted models, a fitted voting, "
            "bagging or stacking ensemble or a forest, or the model unfitted, which is then fitted on several bags"
        )
    stack, given = _own_answer(ensemble, kind), list(ensemble.estimators_)
    models = [thawed(model) for model in given]
    columns = list(ensemble.estimators_features_) if kind == "bagging" else None
    if kind == "forest":
        columns = [np.arange(ensemble.n_features_in_)] * len(models)
    class_names = None
    if classifies:
        _require_probabilities(models if stack is None else [*models, stack])
        prefit = kind == "stacking" and ensemble.cv == "prefit"
        pairs = zip(given, models, strict=True)
        class_names = [_member_classes(ensemble, model, prefit or model is not own) for own, model in pairs]
    return Panel(models, decode, class_names, columns, stack)


def panel_of_models(models: Sequence[Any], decode: Decode, classifies: bool) -> Panel:
    """A list of fitted models, each fitted on the same table."""
    models = [thawed(model) for model in models]
    if not classifies:
        return Panel(models, decode, None)
    _require_probabilities(models)
    return Panel(models, decode, [as_names(model.classes_) for model in models])
