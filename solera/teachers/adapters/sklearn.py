"""Estimators in scikit-learn's manner: scikit-learn itself, LightGBM, XGBoost, CatBoost, pipelines of them."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.data.names import as_names
from solera.teachers.adapters.base import Adapter
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.teachers.adapters.probabilities import log_of_probabilities


class _Sklearn(Adapter):
    """A fitted estimator. It gets the inputs as a NumPy matrix, one row per example."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def fingerprint(self) -> str:
        return object_fingerprint(self.model)

    def _features(self, inputs: Any) -> Any:
        if not isinstance(inputs, Tensor):
            raise TypeError(
                f"a {type(self.model).__name__} needs one tensor of features [B, D], got a {type(inputs).__name__}: "
                "wrap it in solera.teachers.adapters.Function to say what it should be given"
            )
        features = inputs.detach().cpu().reshape(len(inputs), -1).numpy()
        names = getattr(self.model, "feature_names_in_", None)
        if names is None:
            return features
        try:
            import pandas
        except ImportError as error:
            name = type(self.model).__name__
            raise ImportError(f"this {name} was fitted on a data frame: pip install 'solera[sklearn]'") from error
        return pandas.DataFrame(features, columns=list(names))


class Estimator(_Sklearn):
    """A fitted classifier, asked through `predict_proba`.

    It gets the inputs as a NumPy matrix, one row per example: a tensor `[B, D]` as it is, one with more axes
    flattened. An estimator that was fitted on a data frame gets a data frame with the same column names. A row
    with a probability of 0 is smoothed a little. A call costs milliseconds however few the rows, so capture it once
    rather than ask every epoch.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        found = getattr(model, "classes_", None)
        self.class_names = None if found is None or np.ndim(found) != 1 else as_names(found)

    def answer(self, inputs: Any) -> Any:
        """What the model says of these inputs, as it says it."""
        return self.model.predict_proba(self._features(inputs))

    @torch.no_grad()
    def forward(self, inputs: Any) -> Float[Tensor, "B K"]:
        who = f"{type(self.model).__name__}.predict_proba"
        answer = np.asarray(self.answer(inputs), dtype=np.float64)
        if answer.ndim != 2 or len(answer) != len(inputs):
            raise ValueError(f"{who} must give (examples, classes), got {answer.shape} for {len(inputs)} examples")
        return log_of_probabilities(torch.from_numpy(answer), f"the answers of {who}").float().to(inputs.device)


class Regressor(_Sklearn):
    """A fitted regressor, asked through `predict`: it gives a mean for every target dimension and no variance."""

    def answer(self, inputs: Any) -> Any:
        """What the model says of these inputs, as it says it."""
        return self.model.predict(self._features(inputs))

    @torch.no_grad()
    def forward(self, inputs: Any) -> Float[Tensor, "B D"]:
        who = f"{type(self.model).__name__}.predict"
        answer = np.asarray(self.answer(inputs))
        if answer.ndim not in (1, 2) or len(answer) != len(inputs) or answer.dtype.kind != "f":
            raise ValueError(
                f"{who} must give a number per example and target dimension, got {answer.dtype} {answer.shape} for "
                f"{len(inputs)} examples"
            )
        return torch.from_numpy(answer.astype(np.float32).reshape(len(answer), -1)).to(inputs.device)
