"""Everything an ensemble says about its classes, in one pass over its members: the mean and four uncertainties."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.fused import one_signed_row_sum, row_sum, stored
from solera.core.rowwise import rowwise
from solera.distributions.categorical import Categorical

_SURE = 1e-9  # nats: below, S = 1 + (the odds of all others) has lost digits of them even in float64
_UNROLLED = 16  # members: beyond these a compiled kernel loops over them


@dataclass(frozen=True)
class Measures:
    """Of rows `[*batch, M, K]`; uncertainties in nats."""

    log_odds: Float[Tensor, "*batch K"]  # ln p̄_k − max ln p̄
    mean: Float[Tensor, "*batch K"]
    total: Float[Tensor, "*batch"]
    data: Float[Tensor, "*batch"]
    knowledge: Float[Tensor, "*batch"]
    rmi: Float[Tensor, "*batch"]


def weigh(values: Float[Tensor, "*batch M"], weights: Float[Tensor, "*batch M"] | None) -> Float[Tensor, "*batch"]:
    """The mean over the members; one of weight 0 is not read."""
    if weights is None:
        return values.mean(-1)
    return (weights * values.masked_fill(weights == 0, 0.0)).sum(-1)


def _blocks(values: Tensor) -> list[Tensor]:
    """All members `[N, M, ...]` as one block; compiled, each by itself, so that one loop over the classes takes all."""
    alone = torch.compiler.is_compiling() and values.shape[1] <= _UNROLLED
    return list(values.split(1 if alone else values.shape[1], 1))


def _mean_of(values: list[Tensor], weights: list[Tensor]) -> Tensor:
    """Σ_m w_m·x_m of blocks [N, m, K]: [N, 1, K]. A matrix product; compiled, a sum that melts into the loop."""
    if not torch.compiler.is_compiling():
        return torch.bmm(weights[0].unsqueeze(-2), values[0])
    parts = [(w.unsqueeze(-1) * x).sum(-2, keepdim=True) for w, x in zip(weights, values, strict=True)]
    return sum(parts[1:], start=parts[0])


def _softmax(z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of a block [N, m, K], its share of the data uncertainty, Σ_m w_m·H[p_m], and its smallest p_m.

    H = ln S − Σ o·ln o/S, S = Σ o, for odds o against the likeliest class: nothing cancels, S is good to 10⁻¹⁶.
    """
    lowest, top = z.amin(-1, keepdim=True), z.amax(-1, keepdim=True)  # torch's aminmax is many times slower
    log_odds = z - top
    odds = log_odds.exp()
    size = row_sum(odds)
    surprise = one_signed_row_sum(log_odds.mul_(odds)) / size
    scale = stored(size.reciprocal().to(z.dtype)).unsqueeze(-1)
    smallest = ((lowest - top).exp() * scale).flatten(1).amin(-1)
    return odds.mul_(scale), (weights * (size.log() - surprise)).sum(-1), smallest


def _spread(probs: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """r − 1 − ln r and r·ln r − r + 1 of a block, r = p_m/p̄; the block is used up."""
    ratio = probs.div_(mean)
    log_ratio, excess = ratio.log(), ratio - 1
    return excess - log_ratio, ratio.mul_(log_ratio).sub_(excess)


def _measure(z: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
    """The fields of `Measures`, and the smallest p_m of each row, from logits [N, M, K].

    With r_m = p_m/p̄ and Σ_m w_m·r_m = 1 for every class, RMI = Σ_k p̄·Σ_m w_m·(r − 1 − ln r) and MI = Σ_k p̄·Σ_m
    w_m·(r·ln r − r + 1): every term is at least 0, so tiny disagreements do not drown in the rounding of large terms.
    What p̄ lost in rounding, Σ_m w_m·(p_m − p̄), is added to it: members that agree then have r = 1 exactly.
    """
    w = _blocks(weights)
    probs, data, smallest = zip(*(_softmax(*block) for block in zip(_blocks(z), w, strict=True)), strict=True)
    mean = _mean_of(list(probs), w)
    mean = mean + _mean_of([p - mean for p in probs], w)
    reverse, forward = zip(*(_spread(p, mean) for p in probs), strict=True)
    rmi, knowledge = (one_signed_row_sum((mean * _mean_of(list(terms), w)).squeeze(-2)) for terms in (reverse, forward))
    mean = mean.squeeze(-2)
    odds = mean / mean.amax(-1, keepdim=True)
    log_odds, size = odds.log(), row_sum(odds)
    total = size.log() - one_signed_row_sum(odds * log_odds) / size
    spoken, least = torch.stack(data).sum(0), torch.stack(smallest).amin(0)
    return log_odds, mean, total, spoken, knowledge.clamp(min=0), rmi.clamp(min=0), least


def _carefully(members: Categorical, weights: Tensor | None) -> tuple[Tensor, ...]:
    """The same, one by one: for members that are very sure, a p_m too small for float32, −∞, and in float64."""
    average = members.averaged(weights)
    each = (members.total, members.departure(average), members.reverse_departure(average))
    data, knowledge, rmi = (weigh(values, weights) for values in each)
    logits = average.logits - average.logits.amax(-1, keepdim=True)
    return logits, average.mean, average.total, data, knowledge, rmi


@torch.inference_mode(False)  # what is kept for later may be part of a loss then
@torch.no_grad()
def measure(members: Categorical, weights: Float[Tensor, "*batch M"] | None = None) -> Measures:
    """All measures of these members at once; members of weight 0 are not read. No gradient leads through them."""
    heard = members if weights is None else members.heard(weights)
    if heard.logits.dtype == torch.float64:  # a sum in float64 is not exact enough for these
        return Measures(*_carefully(heard, weights))
    *batch, count, classes = heard.logits.shape
    z = heard.logits.reshape(-1, count, classes).float()
    w = z.new_full((len(z), count), 1 / count) if weights is None else weights.reshape(-1, count).to(z)
    like = (z[:, 0], z[:, 0], *(z[:, 0, 0],) * 5)
    *columns, smallest = rowwise(_measure, like, z, w)
    sure = columns[3] < _SURE
    few = (sure | (smallest < torch.finfo(z.dtype).tiny)).nonzero().squeeze(-1)
    if len(few):
        redone = _carefully(Categorical(z[few]), None if weights is None else w[few])
        for column, value in zip(columns, redone, strict=True):
            column[few] = value
    return Measures(*(column.reshape((*batch, *column.shape[1:])) for column in columns))
