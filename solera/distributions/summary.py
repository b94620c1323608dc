"""What is left of an ensemble when its members are forgotten: the mean, and three numbers about its spread."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family
from solera.distributions.gaussian import Ends, Gaussian
from solera.distributions.mixture import Mixture

_CHUNK = 5 << 17  # elements: enough to outweigh the calls, few enough for the temporaries to stay in the cache
_CLOSE = 0.01  # bits of RMI: where members are closer than that, rounding would be more than 10⁻⁴ of their differences
LOG2E = math.log2(math.e)


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
    def members(self) -> Any:
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
class Moments(_Summary):
    """Of Gaussian members: the one Gaussian with the mixture's mean and variance, and how much of it is knowledge."""

    averaged: Gaussian
    known: Float[Tensor, "*batch"]

    @property
    def family(self) -> Family:
        return "gaussian"

    @property
    def mean(self) -> Float[Tensor, "*batch D"]:
        return self.averaged.mean

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        return self.averaged.total

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        return self.known

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """Gone with the members."""
        return self.members

    def log_prob(self, y: Float[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """Of the one Gaussian: the mixture's own shape is gone."""
        return self.averaged.log_prob(y)

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Of the one Gaussian, too."""
        return self.averaged.interval(level, dtype)


@dataclass(frozen=True)
class TopK(_Summary):
    """The V likeliest classes of the mean, and the mass of all others together: size independent of M and K."""

    indices: Int[Tensor, "*batch V"]
    probs: Float[Tensor, "*batch V"]  # with the tail they sum to one
    tail: Float[Tensor, "*batch"]
    classes: int
    spread: Spread

    @staticmethod
    def of(probs: Float[Tensor, "*batch V"], indices: Int[Tensor, "*batch V"], classes: int, spread: Spread) -> "TopK":
        """These classes with these probabilities; the tail is what they leave of one."""
        left = (1 - probs.sum(-1, dtype=torch.float64)).clamp(min=0) * (classes > indices.shape[-1])
        return TopK(indices, probs, left.to(probs.dtype), classes, spread)

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


def largest(values: Float[Tensor, "N K"], keep: int) -> tuple[Float[Tensor, "N V"], Int[Tensor, "N V"]]:
    """`values.topk(keep)`, exactly: the largest lie in those of √(K·keep) blocks that have the largest maxima."""
    classes = values.shape[-1]
    keep = min(keep, classes)
    blocks = math.isqrt(classes * keep)
    height = classes // blocks
    if height < 8:  # too few to gain from
        found, columns = values.topk(keep, -1)
        return found, columns
    whole = height * blocks
    maxima = values[:, :whole].unflatten(-1, (height, blocks)).amax(-2)
    chosen = maxima.topk(keep, -1, sorted=False).indices
    starts = torch.arange(0, whole, blocks, device=values.device)
    columns = (starts.unsqueeze(-1) + chosen.unsqueeze(-2)).flatten(1)
    if whole < classes:
        columns = torch.cat([columns, torch.arange(whole, classes, device=values.device).expand(len(values), -1)], -1)
    found, place = values.gather(-1, columns).topk(keep, -1)
    return found, columns.gather(-1, place)


def _summarize(z: Tensor, weights: Tensor, like_members: Tensor, like_mean: Tensor) -> tuple[Tensor, ...]:
    """log₂ p̄, p̄, total, knowledge and rmi in bits, of rows `[N, M, K]`; the first two in the memory of `like_mean`.

    With s_m = log₂e·(z_m − max z_m) and S_m = Σ 2^{s_m}: p_m = 2^{s_m}/S_m, H[p_m] = log₂ S_m − Σ 2^{s_m}·s_m/S_m.
    Powers of two, because they cost half of those of e. Little more than the softmaxes themselves; knowledge, as
    total − data, and rmi are good to about 10⁻⁶ nats, which is enough unless members nearly agree.
    """
    (shifted, powers), (mean, log_mean, gap) = like_members, like_mean
    torch.add(z.amax(-1, keepdim=True) * -LOG2E, z, alpha=LOG2E, out=shifted)
    torch.exp2(shifted, out=powers)
    size = powers.sum(-1)
    log_size = size.log2()
    torch.bmm((weights / size).unsqueeze(-2), powers, out=mean)
    torch.bmm(weights.unsqueeze(-2), shifted, out=gap).sub_((weights * log_size).sum(-1)[:, None, None])
    data = (weights * (log_size - powers.mul_(shifted).sum(-1) / size)).sum(-1)
    torch.log2(mean, out=log_mean)
    rmi = torch.sub(log_mean, gap, out=gap).mul_(mean).sum((-2, -1))
    total = -torch.mul(mean, log_mean, out=gap).sum((-2, -1))
    return log_mean.squeeze(-2), mean.squeeze(-2), total, (total - data).clamp(min=0), rmi.clamp(min=0)


def _parts(mixture: Mixture) -> Iterator[tuple[Tensor, ...]]:
    """`_summarize` of a few rows at a time; what one part says lasts until the next is asked for."""
    members, classes = mixture.members.logits.shape[-2:]
    rows = mixture.members.logits.detach().reshape(-1, members, classes)
    exact = torch.promote_types(rows.dtype, torch.float32)
    even = rows.new_full((1, members), 1 / members, dtype=exact).expand(len(rows), members)
    weights = even if mixture.weights is None else mixture.weights.detach().reshape(-1, members).to(exact)
    step = max(1, min(round(_CHUNK / (members * classes)), len(rows)))
    like_members = rows.new_empty(2, step, members, classes, dtype=exact)
    like_mean = rows.new_empty(3, step, 1, classes, dtype=exact)
    for z, w in zip(rows.split(step), weights.split(step), strict=True):
        heard = Categorical(z.to(exact)) if mixture.weights is None else Categorical(z.to(exact)).heard(w)
        part = _summarize(heard.logits, w, like_members[:, : len(z)], like_mean[:, : len(z)])
        if not part[-1].isfinite().all():  # a class ruled out by a logit of −∞, or too unlikely for so few bits
            slow = Mixture(heard, w)  # the slower way knows 0·ln 0
            logs = slow.averaged.log_probs
            part = (logs * LOG2E, logs.exp(), *(x * LOG2E for x in (slow.total, slow.knowledge, slow.rmi)))
        else:
            alone = (w > 0).sum(-1) == 1  # whoever is heard alone agrees with himself
            part[-2][alone], part[-1][alone] = 0.0, 0.0
            close = ((part[-1] < _CLOSE) & ~alone).nonzero().squeeze(-1)
            if len(close):
                apart = Mixture(Categorical(heard.logits[close]), w[close])  # by the members' differences
                for column, value in zip(part[2:], (apart.total, apart.knowledge, apart.rmi), strict=True):
                    column[close] = value * LOG2E
        yield part


def _joined(parts: list[tuple[Tensor, ...]], batch: torch.Size) -> tuple[list[Tensor], Spread]:
    """The columns of all parts, the last three of which are the spread in bits."""
    joined = (torch.cat(column) for column in zip(*parts, strict=True))
    *columns, total, knowledge, rmi = (column.reshape(batch + column.shape[1:]) for column in joined)
    return columns, Spread(total / LOG2E, knowledge / LOG2E, rmi / LOG2E)


def summarize(mixture: Mixture) -> Mean:
    """The mean, total, knowledge and rmi in one pass over the members, a few rows at a time."""
    parts = [(log_mean / LOG2E, *spread) for log_mean, _, *spread in _parts(mixture)]
    (log_mean,), spread = _joined(parts, mixture.members.logits.shape[:-2])
    return Mean(Categorical(log_mean), spread)


def summarize_top(mixture: Mixture, keep: int) -> TopK:
    """The same, of whose mean only the `keep` likeliest classes are ever written to memory."""
    parts = [(*largest(mean, keep), *spread) for _, mean, *spread in _parts(mixture)]
    (probs, indices), spread = _joined(parts, mixture.members.logits.shape[:-2])
    return TopK.of(probs, indices, mixture.members.logits.shape[-1], spread)
