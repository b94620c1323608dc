"""The softmax output of an ordinary classifier."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.checks import require_positive
from solera.distributions.base import Prediction

MANY = 1000  # classes: over more of them torch's float32 softmax drifts (its sum is 4e-6 off at 40,000)


def log_sum_of_members(log_probs: Float[Tensor, "*batch M K"]) -> Float[Tensor, "*batch K"]:
    """ln Σ_m p_m; a class that every member rules out stays at −∞, with a slope of 0 instead of torch's NaN."""
    if not log_probs.requires_grad:
        return log_probs.logsumexp(-2)
    impossible = log_probs.detach().amax(-2) == -torch.inf
    possible = log_probs.masked_fill(impossible.unsqueeze(-2), 0.0)
    return possible.logsumexp(-2).masked_fill(impossible, -torch.inf)


def entropy_of_odds(odds: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """H = ln(1 + r) − Σ_k o_k·ln o_k/(1 + r), r = Σ_k o_k, o_k the odds of class k against the likeliest (its own: 0).

    Every term is positive, so the small entropy of a sure prediction is not lost in the rounding of 1 − p.
    """
    rest = odds.sum(-1)
    surprise = odds * odds.clamp(min=torch.finfo(odds.dtype).tiny).log()  # 0·ln 0 = 0, and its slope is finite
    return rest.log1p() - surprise.sum(-1) / (1 + rest)


@dataclass(frozen=True)
class Categorical(Prediction):
    """One probability per class, given by logits (or log-probabilities: they are logits too)."""

    sizes: ClassVar[str] = "classes"  # what the last axis counts

    logits: Float[Tensor, "*batch K"]

    @staticmethod
    def outputs(size: int) -> int:
        """How many outputs a network needs for `size` classes."""
        return size

    @classmethod
    def from_output(cls, output: Float[Tensor, "*batch K"]) -> "Categorical":
        """What a network's output means: logits."""
        return cls(output)

    @property
    def log_sum(self) -> Float[Tensor, "*batch"]:
        """ln Σ_k e^{z_k}, in float64: what a precision is made of must not be rounded at the size of a logit."""
        top = self.logits.amax(-1, keepdim=True)
        size = (self.logits - top).exp().sum(-1, dtype=torch.float64)
        return top.squeeze(-1).double() + size.log()

    @property
    def log_probs(self) -> Float[Tensor, "*batch K"]:
        """ln softmax(z), normalised in float64 where the classes are many."""
        log_probs = self.logits.log_softmax(-1)
        if log_probs.shape[-1] <= MANY or log_probs.dtype == torch.float64:
            return log_probs
        drift = log_probs.detach().exp().sum(-1, keepdim=True, dtype=torch.float64).log()
        return log_probs - drift.to(log_probs.dtype)

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.log_probs.exp()

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H = −Σ_k p_k ln p_k."""
        top, likeliest = self.logits.max(-1, keepdim=True)
        return entropy_of_odds((self.logits - top).exp().scatter(-1, likeliest, 0.0))

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self.log_probs.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def kl(self, other: "Categorical") -> Float[Tensor, "*batch"]:
        """KL[self ‖ other] = Σ_k p_k ln(p_k/q_k), summed as p·d − p + q with d = ln p − ln q.

        Each of those terms is at least 0, so rounding cannot make nearly equal predictions look apart: where d is
        small the term is p·(d + e^{−d} − 1) ≈ p·d²/2.
        """
        log_p, log_q = self.log_probs, other.log_probs
        p, q = log_p.exp(), log_q.exp()
        d = (log_p - log_q).masked_fill(p == 0, -1.0)  # any number but 0 or NaN: it is multiplied by p
        ruled_out = d == torch.inf if d.requires_grad else None  # q = 0 where p is not: infinite, and without a slope
        d = d if ruled_out is None else d.masked_fill(ruled_out, -1.0)
        near = d.clamp(-0.5, 0.5)
        found = torch.where(d == near, p * (near + torch.expm1(-near)), p * d - p + q).sum(-1)
        return found if ruled_out is None else found.masked_fill(ruled_out.any(-1), torch.inf)

    def tempered(self, temperature: float) -> "Categorical":
        """softmax(z/T)."""
        require_positive("temperature", temperature)
        return self if temperature == 1 else Categorical(self.logits / temperature)

    def heard(self, weights: Float[Tensor, "*batch M"]) -> "Categorical":
        """The members, those of weight 0 made uniform: what they say must not be read, be it NaN."""
        return Categorical(self.logits.masked_fill((weights == 0).unsqueeze(-1), 0.0))

    def averaged(self, weights: Float[Tensor, "*batch M"] | None = None) -> "Categorical":
        """The mean over the member axis (−2), in probability space, as one categorical."""
        members = self.logits.shape[-2]
        if members == 1:
            return Categorical(self.logits.squeeze(-2))
        if weights is None:
            return Categorical(log_sum_of_members(self.log_probs) - math.log(members))
        return Categorical(log_sum_of_members(self.heard(weights).log_probs + weights.log().unsqueeze(-1)))

    def departure(self, average: "Categorical") -> Float[Tensor, "*batch M"]:
        """KL[p_m ‖ p̄]: its mean over the members is the mutual information."""
        return self.kl(Categorical(average.logits.unsqueeze(-2)))

    def reverse_departure(self, average: "Categorical") -> Float[Tensor, "*batch M"]:
        """KL[p̄ ‖ p_m]: its mean over the members is the reverse mutual information."""
        return Categorical(average.logits.unsqueeze(-2)).kl(self)

    def mixed_log_prob(
        self, y: Int[Tensor, "*batch"], weights: Float[Tensor, "*batch M"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """ln p̄(y)."""
        return self.averaged(weights).log_prob(y)


def log_mean(prediction: Prediction) -> Float[Tensor, "*batch K"]:
    """ln of the probability of each class."""
    return prediction.log_probs if isinstance(prediction, Categorical) else prediction.mean.log()
