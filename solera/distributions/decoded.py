"""Whole sequences that a model wrote, one for each input, and how uncertain each of them is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.distributions.base import Prediction
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture
from solera.distributions.sequence import SequencePrediction
from solera.distributions.summary import summarize

FIRST_ORDER = ("total", "score_total")  # what one model knows; an ensemble and its students know all of them
MEASURES = ("total", "data", "knowledge", "epkl", "rmi", "score_total", "score_data", "score_rmi")


def by_summary(found: SequencePrediction) -> SequencePrediction:
    """The same with an ensemble's steps summarised in one pass: all but the members' scores, a few times faster."""
    if not isinstance(found.steps, Mixture):
        return found
    return SequencePrediction(summarize(found.steps), found.tokens, found.mask)


def sequence_measures(found: SequencePrediction) -> dict[str, Float[Tensor, "*batch"]]:
    """Every measure of these sequences; of one model, whose knowledge is unknown, only what it knows."""
    if isinstance(found.steps, Categorical):
        return {name: getattr(found, name) for name in FIRST_ORDER}
    short = by_summary(found)
    return {name: getattr(found if name.startswith("score") else short, name) for name in MEASURES}


@dataclass(frozen=True)
class Decoded(Prediction):
    """What a model wrote for each input: `written`, beside what should have been, and its sequence measures `[N]`."""

    written: Sequence[Any]
    wanted: Sequence[Any] | None
    measures: dict[str, Float[Tensor, " N"]]
    log_probs: Float[Tensor, " N"]  # of the whole sequences

    @property
    def mean(self) -> Float[Tensor, "N 1"]:
        """The geometric mean of its tokens' probabilities."""
        return torch.exp(-self.measures["score_total"]).unsqueeze(-1)

    @property
    def total(self) -> Float[Tensor, " N"]:
        """Nats per token."""
        return self.measures["total"]

    def log_prob(self, y: Any) -> Float[Tensor, " N"]:
        """ln P of what was written: no other sequence was asked about."""
        return self.log_probs
