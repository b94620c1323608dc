"""What the scikit-learn faces make of their `teacher`: members that are fitted, here where they are not yet."""

from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from solera.data.table import Table
from solera.teachers.adapters.sklearn_ensembles import (
    Decode,
    Panel,
    is_ensemble,
    panel_of_ensemble,
    panel_of_models,
    thawed,
)
from solera.teachers.committee import committee
from solera.teachers.ensemble import Ensemble

BAGS = 8  # members that are made of one model
LEAF = 20  # examples in a leaf of the default model, fewer where there are fewer than 400
MOST_WORDS = 255  # of a column that scikit-learn's gradient boosting takes as categories; of more, as ordered codes
LEAST_HELD, LARGEST_SHARE = 10, 0.25  # rows kept from the teacher: so many at least, of a small table this share


def is_estimator(model: Any) -> bool:
    """Whether it is one in scikit-learn's manner."""
    return hasattr(model, "fit") and hasattr(model, "predict") and not isinstance(model, type)


def is_fitted(model: Any) -> bool:
    """Whether it can be asked already."""
    try:
        check_is_fitted(thawed(model))
    except NotFittedError:
        return False
    return True


def to_be_fitted(teacher: Any) -> bool:
    """Whether some of it is yet to be fitted."""
    if isinstance(teacher, (list, tuple)):
        return any(is_estimator(model) and not is_fitted(model) for model in teacher)
    return teacher is None or (is_estimator(teacher) and not is_fitted(teacher))


def held_out(groups: np.ndarray | None, rows: int, fraction: float, random: np.random.RandomState) -> np.ndarray:
    """Which rows are kept from the teacher: of every group (class) the same share, but never all of its rows.

    There are at least ten of them, or a quarter of a small table.
    """
    groups = np.zeros(rows, dtype=int) if groups is None else groups
    share = max(fraction, min(LEAST_HELD / rows, LARGEST_SHARE))
    order = random.permutation(rows)
    order = order[np.argsort(groups[order], kind="stable")]
    reached = np.floor(share * np.arange(rows + 1) + 0.5)
    kept = np.zeros(rows, dtype=bool)
    kept[order[np.diff(reached) > 0]] = True
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        kept[mine[0]] &= not kept[mine].all()
    return kept


def seeded(model: Any, random: np.random.RandomState) -> Any:
    """A fresh copy, every `random_state` in it that nobody set drawn at random."""
    made: Any = clone(model)
    given = made.get_params() if hasattr(made, "get_params") else {}
    free = [name for name in sorted(given) if name.split("__")[-1] == "random_state" and given[name] is None]
    if free:
        made.set_params(**{name: random.randint(2**31 - 1) for name in free})
    return made


def bag(groups: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Rows drawn with replacement, as many from each group (class) as it has: no bag lacks a class."""
    parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    return np.concatenate([rows[random.randint(len(rows), size=len(rows))] for rows in parts])


def default_model(table: Table, rows: int, classifies: bool) -> Any:
    """Gradient-boosted trees, which take missing values and categories as they are."""
    words = [0 < size <= MOST_WORDS for size in table.columns.sizes]
    kind: Any = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
    leaf = max(1, min(LEAF, rows // LEAF))
    some: Any = words if any(words) else None  # scikit-learn's own annotation knows strings alone
    return kind(min_samples_leaf=leaf, categorical_features=some)


def _bags(model: Any, given: Any, y: np.ndarray, groups: np.ndarray, random: np.random.RandomState) -> list[Any]:
    """The model, fitted on several bags of the rows."""
    fitted = []
    for _ in range(BAGS):
        rows = bag(groups, random)
        some = given.iloc[rows] if hasattr(given, "iloc") else given[rows]
        fitted.append(seeded(model, random).fit(some, y[rows]))
    return fitted


def fit_teacher(
    teacher: Any,
    table: Table,
    rows: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray | None,
    random: np.random.RandomState,
) -> Any:
    """The teacher with all of it fitted: an ensemble, or a list of models. `groups` are the classes, if there are."""
    every = np.zeros(len(y), dtype=int) if groups is None else groups
    if teacher is None:
        model = default_model(table, len(rows), groups is not None)
        return _bags(model, table.numbers(rows), y, every, random)
    given = table.decode(rows)
    if isinstance(teacher, (list, tuple)):
        return [model if is_fitted(model) else seeded(model, random).fit(given, y) for model in teacher]
    if is_ensemble(teacher):
        return seeded(teacher, random).fit(given, y)
    return _bags(teacher, given, y, every, random)


def panel(teacher: Any, fitted: Any, table: Table, classifies: bool) -> Panel | None:
    """The members of what was fitted; None where they are no estimators in scikit-learn's manner.

    The default teacher (`teacher` is None) reads the numbers of the rows, any other a table such as was given.
    """
    decode: Decode = table.numbers if teacher is None else table.decode
    if isinstance(fitted, (list, tuple)):
        return panel_of_models(fitted, decode, classifies) if all(map(is_estimator, fitted)) and fitted else None
    return panel_of_ensemble(fitted, decode, classifies) if is_estimator(fitted) else None


def with_noise(members: Any, rows: Tensor, y: np.ndarray, variance: float) -> Any:
    """Regressors as a teacher that also knows the data's noise, by its residuals on N rows that are new to it.

    Where all of them are 0 (a target of few values, guessed exactly), the noise is that of N residuals of 0 and one of
    the size of the target's own `variance`: that / (N + 1), or 1 of a constant target.
    """
    plain = Ensemble(members, family="gaussian", noise=torch.ones(1)).predict(rows).mean.squeeze(-1)
    if (plain != torch.from_numpy(y)).any():
        return committee(members, rows, y)
    return Ensemble(members, family="gaussian", noise=[variance / (len(y) + 1) or 1.0])
