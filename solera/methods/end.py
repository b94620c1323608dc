"""EnD: the student imitates the average of the members (Hinton et al., 2015)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.checks import require_positive
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.summary import Mean, TopK
from solera.methods.base import Method


def end_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·KL[p̄_T ‖ softmax(z/T)] with p̄_T = mean_m softmax(z_m/T): 0 at perfect imitation."""
    teacher = Categorical(members).tempered(temperature).averaged(weights)
    return temperature**2 * teacher.kl(Categorical(logits).tempered(temperature))


def end_top_k_loss(
    logits: Float[Tensor, "*batch K"],
    indices: Int[Tensor, "*batch V"],
    probs: Float[Tensor, "*batch V"],
    tail: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch"]:
    """KL over V + 1 events: each kept class, and all others together. A true KL, at most the one over all classes."""
    log_q = Categorical(logits).log_probs
    others = log_q.scatter(-1, indices, -torch.inf).logsumexp(-1)
    kept = torch.xlogy(probs, probs) - probs * log_q.gather(-1, indices)
    return kept.sum(-1) + torch.xlogy(tail, tail) - torch.where(tail > 0, tail * others, 0.0)


def truncated_cross_entropy(
    logits: Float[Tensor, "*batch K"], indices: Int[Tensor, "*batch V"], probs: Float[Tensor, "*batch V"]
) -> Float[Tensor, "*batch"]:
    """−Σ over the kept classes of p̄_k ln q_k, mass un-normalised, as in Reich et al. (2020): not a KL."""
    return -(probs * Categorical(logits).log_probs.gather(-1, indices)).sum(-1)


@dataclass(frozen=True)
class EnD(Method):
    """Keeps the ensemble's prediction and total uncertainty; its split into data and knowledge is lost.

    At temperature 1 it reads summaries too; `tail` says what becomes of the classes that `top_k` did not keep.
    """

    temperature: float = 1.0
    tail: Literal["event", "dropped"] = "event"

    def __post_init__(self) -> None:
        require_positive("temperature", self.temperature)
        if self.tail not in ("event", "dropped"):
            raise ValueError(f"tail must be 'event' or 'dropped', got {self.tail!r}")

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        if self.temperature == 1 and isinstance(targets, Mean):
            return targets.averaged.kl(Categorical(output))
        if self.temperature == 1 and isinstance(targets, TopK):
            if self.tail == "dropped":
                return truncated_cross_entropy(output, targets.indices, targets.probs)
            return end_top_k_loss(output, targets.indices, targets.probs, targets.tail)
        return end_loss(output, targets.members.logits, self.temperature, targets.weights)

    def predict(self, output: Tensor) -> Categorical:
        return Categorical(output)
