"""Classes: whole numbers from 0 to K − 1."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from solera import metrics
from solera.core.checks import require_labels
from solera.core.rowwise import rowwise
from solera.data import UNLABELLED, Batch
from solera.distributions.base import Prediction
from solera.distributions.categorical import Categorical, log_mean
from solera.distributions.families import Family
from solera.distributions.mixture import as_one
from solera.metrics.curves import reliability
from solera.tasks.base import (
    Columns,
    ErrorKind,
    Figure,
    Margin,
    Row,
    Score,
    Task,
    beside_examples,
    mean_of,
    uncertainties,
)

SHOWN = 5  # classes of an example in the report
LEAST_AGREEMENT = 0.95  # of a student with its ensemble
OVERCONFIDENT = 0.05  # of mean confidence above accuracy


@dataclass(frozen=True)
class Classification(Task):
    """One class per example, token or step."""

    name: ClassVar[str] = "classification"
    family: ClassVar[Family] = "categorical"
    table: ClassVar[tuple[Score, ...]] = (
        Score("accuracy", 1, "How often the likeliest class is the right one.", percent=True),
        Score("NLL", -1, "How surprised the model is by the truth: minus the logarithm of the probability it gave it."),
        Score(
            "ECE",
            -1,
            "How far confidence and accuracy lie apart, on average: 0 is calibrated.",
            percent=True,
            inflated=True,
        ),
        Score("Brier", -1, "The mean squared distance of the probabilities from the truth."),
        Score(
            "PRR",
            1,
            "How much of an oracle's gain is had when the least certain answers are rejected: 100 is all, 0 is chance.",
            percent=True,
        ),
        Score("agreement", 1, "How often it names the same class as the ensemble.", percent=True),
        Score("KL from the ensemble", -1, "How far its probabilities are from the ensemble's, in nats."),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "accuracy", 0.01, column="correct"),
        Margin("calibration", "ECE", 0.02),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("accuracy", "NLL", "ECE")
    beside: ClassVar[tuple[str, ...]] = ("agrees", "kl")
    errors: ClassVar[ErrorKind] = ErrorKind("error", percent=True, wanted=(0.01, 0.02, 0.05, 0.10))
    one_class: ClassVar[bool] = True
    question: ClassVar[str] = "Is it right as often as it says?"

    def check_target(self, batch: Batch, size: int) -> None:
        assert batch.target is not None
        labels = batch.target
        if labels.is_floating_point():
            raise ValueError(f"classes are whole numbers, got targets of {labels.dtype}: call .long() on them")
        if labels.numel():
            least, most = torch.aminmax(labels)  # one look at labels that are in order, which is every time but once
            if least.item() < 0 or most.item() >= size:
                require_labels("labels", labels.masked_fill(labels == UNLABELLED, 0), size, batch.index)

    def outputs(self, target: Int[Tensor, "*batch"], size: int) -> int:
        return size

    def labelled(self, batch: Batch, axes: int | None = None) -> Bool[Tensor, "*batch"]:
        assert batch.target is not None
        return batch.target != UNLABELLED

    def filled(self, target: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        return target.masked_fill(target == UNLABELLED, 0)

    def smooth(self, prediction: Prediction) -> Float[Tensor, "*batch"]:
        """−(1/K) Σ_k ln p_k."""
        return -log_mean(prediction).mean(-1)

    def recalibrated(self, prediction: Prediction, spread: Float[Tensor, " examples"]) -> Prediction | None:
        """softmax(ln p̄ / T): the spread is the temperature T."""
        known = log_mean(as_one(prediction))
        return Categorical(known / beside_examples(spread, known))

    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """`predicted`, `confidence`, `total`, where they exist `data` and `knowledge`; with labels `correct`, `nll` and
        `brier`."""
        mean = prediction.mean
        confidence, predicted = mean.max(-1)
        found = {"predicted": predicted, "confidence": confidence.clamp(max=1), **uncertainties(prediction)}
        if batch.target is not None:
            target = self.filled(batch.target).to(mean.device)
            at = mean.gather(-1, target.unsqueeze(-1)).squeeze(-1).double()
            brier = _squares(mean) - at.square() + (1 - at).square()
            found |= {"correct": predicted == target, "nll": -prediction.log_prob(target), "brier": brier}
        return dict(found)

    def compare(self, prediction: Prediction, reference: Prediction) -> dict[str, Tensor | np.ndarray]:
        """`agrees`, and `kl` = KL[reference's mean ‖ prediction's mean]."""
        p, q = reference.mean, prediction.mean.to(reference.mean.device)
        agrees = p.argmax(-1) == q.argmax(-1)
        rows = [part.flatten(0, -2) for part in (p, q)]
        (kl,) = rowwise(_kl, [rows[0].new_empty(len(rows[0]), dtype=torch.float64)], *rows)
        return {"agrees": agrees, "kl": kl.view(agrees.shape)}

    def likeness(self, columns: Columns) -> Row:
        return {"agreement": mean_of(columns, "agrees"), "KL from the ensemble": mean_of(columns, "kl")}

    def stands_in(self, likeness: Row) -> bool:
        """It names the same class for 95 % of the inputs."""
        agreement = likeness.get("agreement")
        return agreement is None or agreement >= LEAST_AGREEMENT

    def error(self, columns: Columns) -> np.ndarray:
        return ~columns["correct"]

    def scores(self, columns: Columns) -> Row:
        """Accuracy, NLL, ECE and Brier score; PRR by total uncertainty."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PRR without a single error: a dash in the table says it
            prr = metrics.prediction_rejection_ratio(columns["total"], ~columns["correct"])
        weight = columns.get("weight")
        return {
            "accuracy": mean_of(columns, "correct"),
            "NLL": mean_of(columns, "nll"),
            "ECE": metrics.confidence_ece(columns["confidence"], columns["correct"], weight=weight),
            "Brier": mean_of(columns, "brier"),
            "PRR": prr,
        }

    def overconfident(self, columns: Columns) -> bool:
        """Its mean confidence exceeds its accuracy by 5 points."""
        return mean_of(columns, "confidence") - mean_of(columns, "correct") > OVERCONFIDENT

    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        points = reliability(columns["confidence"], columns["correct"], weight=columns.get("weight"))
        return [
            Figure(
                "reliability",
                "Reliability",
                "Points on the diagonal are calibrated; below it the model is over-confident. The bars show how often "
                "the chosen model is so sure.",
                "line",
                points["confidence"],
                points["accuracy"],
                ("confidence", "right"),
                "%{x:.1%} sure, %{y:.1%} right",
                percent=(True, True),
                share=points["share"],
                guide="diagonal",
            )
        ]

    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        """`top`: the five likeliest classes and their probabilities; of a sequence, `tokens` with one `top` each."""
        mean = prediction.mean.detach().cpu().numpy()

        def told(one: np.ndarray) -> dict[str, Any]:
            if one.ndim > 1:
                return {"tokens": [told(token) for token in one]}
            best = torch.as_tensor(one).topk(min(SHOWN, len(one))).indices.tolist()
            return {"top": [[self.label(int(k), names), one[k]] for k in best]}

        return [told(one) for one in mean]

    def label(self, target: Any, names: Sequence[str] | None) -> Any:
        """The name of a class, or its number; None for an unlabelled one."""
        if np.ndim(target):
            return [self.label(one, names) for one in target]
        number = int(target)
        return None if number == UNLABELLED else names[number] if names else str(number)


def _kl(p: Float[Tensor, "N K"], q: Float[Tensor, "N K"]) -> tuple[Float[Tensor, " N"]]:
    """Σ_k p_k ln(p_k/q_k) in float64, with one logarithm a class; 0 where p_k is."""
    p, q = p.double(), q.double()
    return (torch.xlogy(p, torch.where(p > 0, p / q, 1.0)).sum(-1).clamp(min=0),)


def _squares(mean: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """Σ_k p_k², summed in float64."""
    return mean.square().sum(-1, dtype=torch.float64)
