"""Classes: whole numbers from 0 to K − 1."""

import warnings
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor

from solera import metrics
from solera.core.batch import UNLABELLED
from solera.core.checks import require_labels
from solera.distributions.base import Prediction
from solera.distributions.families import Family
from solera.tasks.base import Columns, Row, Task, as_columns, uncertainties


class Classification(Task):
    """One class per example, token or step."""

    family: ClassVar[Family] = "categorical"

    def check(self, target: Int[Tensor, "*batch"], size: int) -> None:
        require_labels("labels", target[target != UNLABELLED], size)

    def labelled(self, target: Int[Tensor, "*batch"], axes: int) -> Bool[Tensor, "*batch"]:
        return target != UNLABELLED

    def filled(self, target: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        return target.masked_fill(target == UNLABELLED, 0)

    def columns(self, prediction: Prediction, target: Int[Tensor, "*batch"] | None = None) -> Columns:
        """`predicted`, `confidence`, `total`, where they exist `data` and `knowledge`; with labels `correct`, `nll`."""
        confidence, predicted = prediction.mean.max(-1)
        found = {"predicted": predicted, "confidence": confidence, **uncertainties(prediction)}
        if target is not None:
            found |= {"correct": predicted == target, "nll": -prediction.log_prob(target)}
        return as_columns(found)

    def scores(self, prediction: Prediction, columns: Columns, target: Int[Tensor, "*batch"]) -> Row:
        """Accuracy, NLL, ECE and Brier score; PRR by total uncertainty."""
        probs, y = prediction.mean.double().cpu().numpy(), target.cpu().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PRR without a single error: a dash in the table says it
            prr = metrics.prediction_rejection_ratio(columns["total"], ~columns["correct"])
        return {
            "accuracy": metrics.accuracy(probs, y),
            "NLL": metrics.nll(probs, y),
            "ECE": metrics.ece(probs, y),
            "Brier": metrics.brier(probs, y),
            "PRR": prr,
        }
