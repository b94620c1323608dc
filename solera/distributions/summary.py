"""What is left of an ensemble when its members are forgotten: the mean, and three numbers about its spread."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture

_CHUNK = 1 << 20  # elements: the temporaries of a chunk stay in the last-level cache


@dataclass(frozen=True)
class Spread:
    """Numbers computed over all classes when the members were still there."""

    total: Float[Tensor, "*batch"]
    knowledge: Float[Tensor, "*batch"]
    rmi: Float[Tensor, "*batch"]


class _Summary(Targets):
    """What every summary has in common."""

    spread: Spread
    weights = None

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        return self.spread.total

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        return self.spread.knowledge

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        return self.spread.rmi

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        return (self.total - self.knowledge).clamp(min=0)

    @property
    def members(self) -> Categorical:
        """Gone: the error says what to do."""
        raise ValueError(
            f"{type(self).__name__} targets are a summary of the ensemble, its members are gone: capture with "
            "codec='dense', or choose a method that reads summaries (EnD at temperature 1, ProxyDirichlet)"
        )


@dataclass(frozen=True)
class Mean(_Summary):
    """The ensemble's mean over all classes."""

    averaged: Categorical
    spread: Spread

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.averaged.mean

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self.averaged.log_prob(y)


@dataclass(frozen=True)
class TopK(_Summary):
    """The V likeliest classes of the mean, and the mass of all others together: size independent of M and K."""

    indices: Int[Tensor, "*batch V"]
    probs: Float[Tensor, "*batch V"]  # with the tail they sum to one
    tail: Float[Tensor, "*batch"]
    classes: int
    spread: Spread

    @property
    def rest(self) -> Float[Tensor, "*batch"]:
        """The tail, spread evenly: the probability of each class that was not kept."""
        return self.tail / max(1, self.classes - self.indices.shape[-1])

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        """The spread mean, built in full: convenient, but K numbers per row; losses do without it."""
        dense = self.rest.unsqueeze(-1).expand(*self.tail.shape, self.classes)
        return dense.scatter(-1, self.indices, self.probs)

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self.mean.gather(-1, y.unsqueeze(-1)).squeeze(-1).log()


def summarize(mixture: Mixture) -> Mean:
    """The mean, total, knowledge and rmi in one pass over the members, a few rows at a time."""
    logits = mixture.members.logits
    batch, members, classes = logits.shape[:-2], logits.shape[-2], logits.shape[-1]
    rows = logits.reshape(-1, members, classes)
    weights = None if mixture.weights is None else mixture.weights.reshape(-1, members)
    step = max(1, _CHUNK // (members * classes))
    parts = [
        _summarize(rows[i : i + step], None if weights is None else weights[i : i + step])
        for i in range(0, len(rows), step)
    ]
    log_mean, total, knowledge, rmi = (torch.cat(column) for column in zip(*parts, strict=True))
    if not rmi.isfinite().all():  # a class that some member rules out (a logit of −∞): the slower way knows 0·ln 0
        slow = Mixture(Categorical(rows), weights)
        log_mean, total, knowledge, rmi = slow.averaged.log_probs, slow.total, slow.knowledge, slow.rmi
    spread = Spread(total.reshape(batch), knowledge.reshape(batch), rmi.reshape(batch))
    return Mean(Categorical(log_mean.reshape(*batch, classes)), spread)


def _summarize(z: Tensor, weights: Tensor | None) -> tuple[Tensor, ...]:
    """With s_m = z_m − max z_m and S_m = Σ e^{s_m}: p_m = e^{s_m}/S_m, H[p_m] = ln S_m − Σ e^{s_m}·s_m/S_m.

    Little more than the softmaxes themselves; knowledge, as total − data, is good to about 10⁻⁶ nats.
    """
    if weights is None:
        weights = z.new_full(z.shape[:-1], 1 / z.shape[-2])
    shifted = z - z.amax(-1, keepdim=True)
    powers = shifted.exp()
    size = powers.sum(-1)
    mean = torch.bmm((weights / size).unsqueeze(-2), powers).squeeze(-2)
    entropies = size.log() - powers.mul_(shifted).sum(-1) / size
    mean_log = torch.bmm(weights.unsqueeze(-2), shifted).squeeze(-2) - (weights * size.log()).sum(-1, keepdim=True)
    log_mean = mean.log()
    total = -(mean * log_mean).sum(-1)
    rmi = (mean * (log_mean - mean_log)).sum(-1)
    return log_mean, total, (total - (weights * entropies).sum(-1)).clamp(min=0), rmi.clamp(min=0)
