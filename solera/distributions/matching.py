"""How precise the Dirichlet that stands for an ensemble is: by its RMI, by its EPKL, or by its knowledge."""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.special import digamma_remainder, trigamma_deficit
from solera.distributions.base import Targets
from solera.distributions.mixture import Mixture
from solera.distributions.summary import TopK

Match = Literal["rmi", "epkl", "mi"]

SMALLEST_SPREAD = 1e-8  # nats: members closer than this count as this far apart, which caps the precision
LEAST_PRECISION = 0.1  # members that are sure of different classes would have none at all
LEAST_KNOWLEDGE = SMALLEST_SPREAD / 2
_STEPS = 60  # more than bisection needs; Newton's method takes four to six
_CLOSE = 1e-8  # in ln β


def _shares(targets: Targets) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N V"]]:
    """The probability of a class, and of all classes like it: of top-k targets the whole tail is one column."""
    if isinstance(targets, TopK):
        mean = torch.cat([targets.probs, targets.rest.unsqueeze(-1)], -1)
        mass = torch.cat([targets.probs, targets.tail.unsqueeze(-1)], -1)
    else:
        mean = mass = targets.mean
    smallest = torch.finfo(torch.float32).tiny  # of a class without any: its mass, 0, is what counts
    mean, mass = (shares.double().reshape(-1, shares.shape[-1]) for shares in (mean, mass))
    return mean.clamp(min=smallest), mass


def _information(mean: Tensor, mass: Tensor, precision: Float[Tensor, "N 1"]) -> tuple[Tensor, Tensor]:
    """MI(Dir(β·p̄)) = Σ_k p̄_k·g(β·p̄_k) − g(β), g(a) = ψ(a + 1) − ln a = ln(1 + 1/a) + u·D(u), and its slope in ln β."""
    excess, slopes = [], []
    for a in (precision * mean, precision):
        u = (1 + a).reciprocal()
        excess.append(a.reciprocal().log1p() + u * digamma_remainder(u))
        slopes.append(u * trigamma_deficit(u))
    value = (mass * excess[0]).sum(-1, keepdim=True) - excess[1]
    return value, slopes[1] - (mass * slopes[0]).sum(-1, keepdim=True)


def _solve(mean: Tensor, mass: Tensor, wanted: Float[Tensor, "N 1"], largest: float) -> Float[Tensor, "N 1"]:
    """ln β with MI(Dir(β·p̄)) = `wanted`, cut to [LEAST_PRECISION, largest].

    In ln β the logarithm of MI/(H − MI) is nearly a straight line of slope −1 (at both ends exactly one), so that
    Newton's method jumps to the root from anywhere; a bracket guards it.
    """
    least, most = math.log(LEAST_PRECISION), math.log(largest)
    entropy = -(mass * mean.log()).sum(-1, keepdim=True)
    agreed = wanted <= LEAST_KNOWLEDGE
    wanted = torch.minimum(wanted, entropy)
    low, high = torch.full_like(wanted, least), torch.full_like(wanted, most)
    x = ((entropy - wanted) / wanted).log().clamp(least, most)
    goal = (wanted / (entropy - wanted)).log()  # +∞ where members are sure of different classes
    for _ in range(_STEPS):
        value, slope = _information(mean, mass, x.exp())
        over = (value / (entropy - value)).log() - goal  # above 0: too much knowledge, go to the right
        low, high = torch.where(over > 0, x, low), torch.where(over > 0, high, x)
        moved = (x - over * value * (entropy - value) / (slope * entropy)).clamp(least, most)
        near = (moved - x).abs() < 1e-4  # so close rounding may put the root on the wrong side of the bracket
        moved = torch.where(near | (moved >= low) & (moved <= high), moved, (low + high) / 2)
        last, x = x, moved
        if not ((x - last).abs() > _CLOSE).any():
            break
    return x.masked_fill(agreed, most)


def _by_knowledge(targets: Targets, classes: int) -> Float[Tensor, "*batch"]:
    with torch.inference_mode():  # a target is never differentiated, and these polynomials are lighter here
        knowledge = targets.knowledge
        mean, mass = _shares(targets)
        largest = (classes - 1) / (2 * LEAST_KNOWLEDGE)
        solved = _solve(mean, mass, knowledge.double().reshape(-1, 1), largest).exp()
        solved = solved.reshape(knowledge.shape).to(knowledge.dtype)
    return solved.clone()


def _spread(targets: Targets, match: Match) -> Float[Tensor, "*batch"]:
    """What a Dirichlet of precision (K − 1)/spread has in common with the members, by "rmi" or "epkl"."""
    return 2 * targets.rmi if match == "rmi" else targets.epkl


def require_match(match: str) -> None:
    """Refuses a word that names no way to match."""
    if match not in get_args(Match):
        raise ValueError(f"match must be 'rmi', 'epkl' or 'mi', got {match!r}")


def matched_precision(targets: Targets, match: Match, classes: int) -> Float[Tensor, "*batch"]:
    """β₀ of the Dirichlet Dir(β₀·p̄) that stands for these members.

    "rmi": (K − 1)/(2·RMI). "epkl": (K − 1)/EPKL. "mi": such that its mutual information is theirs; with the spread mean
    of top-k targets, and at least 0.1, for members that are sure of different classes. Never above (K − 1)·10⁸.
    """
    require_match(match)

    def found(whole: Targets) -> Float[Tensor, "*batch"]:
        if match == "mi":
            return _by_knowledge(whole, classes)
        return (classes - 1) / _spread(whole, match).clamp(min=SMALLEST_SPREAD)

    once = isinstance(targets, Mixture)
    precision = targets.once(f"precision by {match}, {classes} classes", found) if once else found(targets)
    if match != "mi" and classes > 1 and not bool((precision > 0).all()):
        spread = _spread(targets, match)
        raise ValueError(
            f"the members' spread by match={match!r} is {spread[~spread.isfinite()][0]}: a member rules out (logit −∞) "
            "a class that another allows, or says NaN: use match='mi', which allows the first, or give such a class a "
            "small probability"
        )
    return precision
