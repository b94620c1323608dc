"""Classes: whole numbers from 0 to K − 1."""

import warnings
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from solera import metrics
from solera.core.checks import require_labels
from solera.data import UNLABELLED
from solera.distributions.base import Prediction
from solera.distributions.families import Family
from solera.tasks.base import Columns, Row, Task, as_columns, uncertainties


class Classification(Task):
    """One class per example, token or step."""

    family: ClassVar[Family] = "categorical"
    better: ClassVar[dict[str, int]] = {"accuracy": 1, "NLL": -1, "ECE": -1, "Brier": -1, "PRR": 1}

    def check(self, target: Int[Tensor, "*batch"], size: int) -> None:
        require_labels("labels", target[target != UNLABELLED], size)

    def labelled(self, target: Int[Tensor, "*batch"], axes: int) -> Bool[Tensor, "*batch"]:
        return target != UNLABELLED

    def filled(self, target: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        return target.masked_fill(target == UNLABELLED, 0)

    def columns(self, prediction: Prediction, target: Int[Tensor, "*batch"] | None = None) -> Columns:
        """`predicted`, `confidence`, `total`, where they exist `data` and `knowledge`; with labels `correct`, `nll` and
        `brier`."""
        mean = prediction.mean
        confidence, predicted = mean.max(-1)
        found = {"predicted": predicted, "confidence": confidence.clamp(max=1), **uncertainties(prediction)}
        if target is not None:
            mean = mean.double()
            at = mean.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            brier = mean.square().sum(-1) - at.square() + (1 - at).square()
            found |= {"correct": predicted == target, "nll": -prediction.log_prob(target), "brier": brier}
        return as_columns(found)

    def compare(self, prediction: Prediction, reference: Prediction) -> Columns:
        """`agrees`, and `kl` = KL[reference's mean ‖ prediction's mean]."""
        p, q = reference.mean.double(), prediction.mean.double()
        kl = (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1).clamp(min=0)
        return as_columns({"agrees": p.argmax(-1) == q.argmax(-1), "kl": kl})

    def error(self, columns: Columns) -> np.ndarray:
        return ~columns["correct"]

    def scores(self, columns: Columns) -> Row:
        """Accuracy, NLL, ECE and Brier score; PRR by total uncertainty."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PRR without a single error: a dash in the table says it
            prr = metrics.prediction_rejection_ratio(columns["total"], ~columns["correct"])
        return {
            "accuracy": float(columns["correct"].mean()),
            "NLL": float(columns["nll"].mean(dtype=np.float64)),
            "ECE": metrics.confidence_ece(columns["confidence"], columns["correct"]),
            "Brier": float(columns["brier"].mean()),
            "PRR": prr,
        }
