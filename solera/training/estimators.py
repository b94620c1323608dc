"""The scikit-learn face: `DistilledClassifier(teacher).fit(X, y)`, in pipelines, in searches, on data frames."""

import copy
from dataclasses import dataclass, replace
from typing import Any, no_type_check

import numpy as np
import torch
from torch import Tensor

from solera.core.seeds import stream
from solera.data import Augment, Batches
from solera.data.auto_views import default_views
from solera.data.names import as_names
from solera.data.table import MISSING, Table, is_frame
from solera.distributions.base import Prediction, SecondOrder
from solera.methods.base import Method
from solera.methods.normal_wishart import NormalWishart
from solera.nn import MLP
from solera.nn.default import pieces_for
from solera.teachers.ensemble import Ensemble, as_teacher
from solera.training.distiller import Distiller, default_method
from solera.training.settings import PATIENT, Training
from solera.training.student import Student

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_consistent_length, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"these estimators need scikit-learn ({error}): pip install 'solera[sklearn]'") from error

from solera.training.sklearn_teachers import fit_teacher, held_out, panel, thawed, to_be_fitted, with_noise

LEAST_ROWS = 4  # two to learn from, one to hold out, and one more


@dataclass(frozen=True)
class Uncertainty:
    """One number per row: entropies in nats of a classifier, variances of a regressor. total = data + knowledge.

    `data` and `knowledge` are None for a method that keeps no split (`EnD`).
    """

    total: np.ndarray
    data: np.ndarray | None
    knowledge: np.ndarray | None


class _Distilled(BaseEstimator):
    """What classifier and regressor share."""

    _classifies: bool

    @no_type_check  # scikit-learn: whatever is set is looked at in fit alone
    def __init__(
        self,
        teacher: Any = None,
        *,
        method: Method | None = None,
        training: Training | None = None,
        hidden: tuple[int, ...] = (128, 128),
        batch_size: int = 128,
        validation_fraction: float = 0.1,
        views: str | Augment | None = "auto",
        random_state: Any = None,
    ) -> None:
        self.teacher, self.method, self.training, self.hidden = teacher, method, training, hidden
        self.batch_size, self.validation_fraction, self.views = batch_size, validation_fraction, views
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _checked(self, X: Any, reset: bool) -> Any:
        """A data frame as it is, once its columns are right; anything else as an array of numbers and NaN."""
        if not is_frame(X) or not (reset or self.table_.framed):
            return validate_data(self, X, reset=reset, ensure_all_finite="allow-nan")
        validate_data(self, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise ValueError(
                f"the data frame has {len(X)} rows of {len(X.columns)} columns: pass one that is not empty"
            )
        return X

    def _distil(self, X: Any, y: np.ndarray, groups: np.ndarray | None = None, names: list[str] | None = None) -> None:
        """Fits what is not fitted, asks it, and teaches the student. `groups` are class numbers, of classes `names`."""
        if len(y) < LEAST_ROWS:
            raise ValueError(f"n_samples={len(y)} is too few to learn from and to hold some out: pass {LEAST_ROWS}")
        random = check_random_state(self.random_state)
        training = replace(self.training or PATIENT, seed=int(random.randint(2**31 - 1)))
        self.table_ = Table(X)
        rows, teacher = self.table_.encode(X), thawed(self.teacher)
        held = np.zeros(len(y), dtype=bool)
        if to_be_fitted(teacher):
            held = held_out(groups, len(y), self.validation_fraction, random)
            shown = None if groups is None else groups[~held]
            self.teacher_ = fit_teacher(teacher, self.table_, rows[~held], y[~held], shown, random)
        else:
            self.teacher_ = teacher
        ensemble, targets = self._ensemble(teacher, rows, y, groups, names)
        x = torch.from_numpy(rows)
        new = (x[held], targets[held]) if held.any() else None
        if new is not None and groups is None:
            ensemble = with_noise(ensemble, *new, float(y.var()))
        self.student_ = self._taught(ensemble, x[~held], targets[~held], new, training, names)

    def _taught(
        self, ensemble: Any, x: Tensor, targets: np.ndarray, new: Any, training: Training, names: list[str] | None
    ) -> Student:
        """The student, which knows how tables are encoded; `new` are rows and targets that no member saw."""
        method = self._method(ensemble, x)
        columns = self.table_.columns
        numbers = torch.from_numpy(targets) if names is None else None
        torch.manual_seed(stream(training.seed, "student"))
        outputs = method.outputs(1 if names is None else len(names))
        network = MLP.for_table(x, columns.sizes, outputs, tuple(self.hidden), numbers, pieces_for(x, numbers))
        share, views = self.validation_fraction, self.views
        if views == "auto" and (isinstance(ensemble, (list, tuple)) or getattr(ensemble, "live", False)):
            words = tuple(number for number, size in enumerate(columns.sizes) if size)
            views = default_views(x, continuous=names is None, words=words)
        distiller = Distiller(
            network, method, training, batch_size=self.batch_size, validation_fraction=share, views=views
        )
        student = distiller.fit(ensemble, x, targets, validation=new).student_
        named = {"features": list(columns.names), "categories": dict(columns.categories)} if self.table_.framed else {}
        student.preprocessing = replace(student.preprocessing, missing=MISSING, **named)
        return student

    def _ensemble(
        self, teacher: Any, rows: np.ndarray, y: np.ndarray, groups: np.ndarray | None, names: list[str] | None
    ) -> tuple[Any, np.ndarray]:
        """What a `Distiller` takes as ensemble, and the labels as it takes them."""
        members = panel(teacher, self.teacher_, self.table_, self._classifies)
        if groups is None or names is None:
            return (self.teacher_ if members is None else members.members), y.astype(np.float32)
        if members is not None:
            return Ensemble(members.members, class_names=names), np.array(names)[groups]
        ensemble = as_teacher(self.teacher_, len(rows))
        known = getattr(ensemble, "class_names", None)
        if known is not None and set(known) != set(names):
            raise ValueError(f"the teacher knows the classes {', '.join(known[:8])}, y holds {', '.join(names[:8])}")
        return ensemble, groups if known is None else np.array(names)[groups]

    def _method(self, ensemble: Any, rows: Tensor) -> Method:
        """The method that was chosen, or the default for what the ensemble says."""
        if self.method is not None or not self._classifies:
            return self.method or NormalWishart()
        with torch.no_grad():
            return default_method(ensemble(Batches(rows).take(slice(0, 256))))

    def _said(self, X: Any) -> Prediction:
        """The student's prediction, in float64: the same for a row alone as for a row among others."""
        check_is_fitted(self, "student_")
        rows = self.table_.encode(self._checked(X, reset=False))
        return copy.deepcopy(self.student_).cpu().double().predict(torch.from_numpy(rows).double())

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """How uncertain the student is of every row, and why: `total`, `data` and `knowledge`."""
        said = self._said(X)
        if not isinstance(said, SecondOrder):
            return Uncertainty(said.total.numpy(), None, None)
        return Uncertainty(said.total.numpy(), said.data.numpy(), said.knowledge.numpy())


class DistilledClassifier(ClassifierMixin, _Distilled):
    """A classifier that was distilled from an ensemble: one small network that keeps the ensemble's uncertainty.

    `teacher`: None (bagged gradient-boosted trees), an ensemble of scikit-learn's (voting, bagging, stacking, a
    forest), a list of models, one model (which is bagged), or whatever `solera.Distiller` takes. What is not fitted yet
    is cloned and fitted on the rows of X but `validation_fraction` of them, on which the length of the training and the
    size of the uncertainty are then decided. What is fitted is asked as it is: then X should be new to it. A search
    clones, and so un-fits, models inside; `sklearn.frozen.FrozenEstimator` keeps them.

    X may be an array, with NaN, or a data frame, with words and missing values (docs/scikit-learn.md says how they are
    read). `method`, `training`, `batch_size` and `views` are those of `solera.Distiller`, `hidden` the widths of the
    student's layers; `random_state` also replaces `training.seed`.

    After `fit`: `student_` (a `solera.Student`, to save, export and serve), `teacher_` (as fitted), `table_` (how rows
    are encoded), `classes_`, `n_features_in_`, `feature_names_in_`.
    """

    _classifies = True

    def fit(self, X: Any, y: Any) -> "DistilledClassifier":
        """Fits the teacher, where it is not fitted yet, and distils it."""
        y = validate_data(self, y=y)
        X = self._checked(X, reset=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        known = getattr(thawed(self.teacher), "classes_", None)
        self.classes_, groups = np.unique(y, return_inverse=True)
        if known is not None and not to_be_fitted(self.teacher):  # a fitted ensemble may know classes that y lacks
            if strange := sorted(set(as_names(self.classes_)) - set(as_names(known))):
                raise ValueError(f"y holds the class {strange[0]!r}, which the fitted teacher does not know: refit it")
            self.classes_, groups = np.asarray(known), np.searchsorted(known, y)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds only one class, {self.classes_[0]!r}: a classifier needs two")
        self._distil(X, y, groups, as_names(self.classes_))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, in the order of `classes_`."""
        mean, order = self._said(X).mean.numpy(), self.student_.class_names
        names = as_names(self.classes_)
        return mean if order is None else mean[:, [order.index(name) for name in names]]

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of every row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]


class DistilledRegressor(RegressorMixin, _Distilled):
    """A regressor that was distilled from an ensemble: one small network that keeps the ensemble's uncertainty.

    Everything is as of `DistilledClassifier`, for one continuous target. The members' spread is knowledge uncertainty;
    the data's noise is estimated from their residuals on rows that are new to them: those that were kept from a teacher
    which is fitted here, all of X where the teacher comes fitted.
    """

    _classifies = False

    def fit(self, X: Any, y: Any) -> "DistilledRegressor":
        """Fits the teacher, where it is not fitted yet, and distils it."""
        y = validate_data(self, y=y, y_numeric=True)
        X = self._checked(X, reset=True)
        check_consistent_length(X, y)
        self._distil(X, np.asarray(y, dtype=np.float64))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected value of every row; with `return_std` also the standard deviation of the whole prediction."""
        said = self._said(X)
        mean = said.mean.squeeze(-1).numpy()
        return (mean, said.total.sqrt().numpy()) if return_std else mean
