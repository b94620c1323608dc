"""Sequences to sequences: the next token, given all before it."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera import metrics
from solera.data import Batch
from solera.distributions.base import Prediction
from solera.metrics.calibration import pooled_ece
from solera.tasks.base import Columns, Margin, Row, Score, mean_of
from solera.tasks.classification import Classification

RANKS = 5  # the likeliest tokens whose probabilities ECE-5 looks at


def ranked(mean: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities of the likeliest tokens `[*batch, R]`, and which of them is the target's.

    Equally probable ones are ranked by their number, as argmax does.
    """
    top = mean.topk(min(RANKS, mean.shape[-1])).values
    own = mean.gather(-1, target.unsqueeze(-1))
    before = torch.arange(mean.shape[-1], device=mean.device) < target.unsqueeze(-1)
    rank = ((mean > own) | ((mean == own) & before)).sum(-1, keepdim=True)
    return top.clamp(max=1), rank == torch.arange(top.shape[-1], device=mean.device)


@dataclass(frozen=True)
class Seq2Seq(Classification):
    """One class per token of the target, teacher-forced: the network reads the target's own prefix, not its guesses.

    The target holds each token and its end of sequence; padding is unlabelled. What a model writes by itself is judged
    by `Translation`.
    """

    name: ClassVar[str] = "seq2seq"
    table: ClassVar[tuple[Score, ...]] = (
        Score("accuracy", 1, "How often the likeliest next token is the right one.", percent=True),
        Score("NLL", -1, "How surprised the model is by each token: minus the logarithm of its probability."),
        Score(
            "ECE-1",
            -1,
            "How far the likeliest token's probability and its being right lie apart, on average over ten bins of as "
            "many tokens each: 0 is calibrated.",
            percent=True,
            inflated=True,
        ),
        Score("ECE-5", -1, "The same for the five likeliest tokens together.", percent=True, inflated=True),
        Score("Brier", -1, "The mean squared distance of the probabilities from the truth."),
        *(score for score in Classification.table if score.name not in ("accuracy", "NLL", "ECE", "Brier")),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "accuracy", 0.01, column="correct"),
        Margin("calibration", "ECE-1", 0.02),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("accuracy", "NLL", "ECE-1")

    def label_loss(
        self, network: nn.Module, prediction: Prediction, batch: Batch, smoothing: float = 0.0
    ) -> Float[Tensor, "*batch"]:
        """−ln p(y), and what a network with a helper (CTC) adds: its `helper_loss(batch)`, unless that is None."""
        loss = super().label_loss(network, prediction, batch, smoothing)
        helper = network.helper_loss(batch) if hasattr(network, "helper_loss") else None  # type: ignore[operator]
        return loss if helper is None else loss + helper

    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """And, with targets, `top` and `hit`: the probabilities of the five likeliest tokens, and which is right."""
        found = super().columns(prediction, batch)
        if batch.target is not None:
            mean = prediction.mean
            found["top"], found["hit"] = ranked(mean, self.filled(batch.target).to(mean.device))
        return found

    def scores(self, columns: Columns) -> Row:
        """Accuracy, NLL, ECE-1, ECE-5 and Brier score of the tokens; PRR by total uncertainty."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PRR without a single error: a dash in the table says it
            prr = metrics.prediction_rejection_ratio(columns["total"], ~columns["correct"])
        top, hit = columns["top"], columns["hit"]
        return {
            "accuracy": mean_of(columns, "correct"),
            "NLL": mean_of(columns, "nll"),
            "ECE-1": pooled_ece(top[:, 0], hit[:, 0]),
            "ECE-5": pooled_ece(top, hit),
            "Brier": mean_of(columns, "brier"),
            "PRR": prr,
        }
