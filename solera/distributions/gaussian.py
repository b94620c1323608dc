"""The answer of an ordinary regressor that also says how noisy the target is."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from solera.distributions.base import Ends, Prediction
from solera.distributions.quantiles import check_level, mixture_quantile


def rounded_ends(low: Tensor, high: Tensor, like: Tensor, dtype: torch.dtype | None) -> Ends:
    """Without a gradient, where `like` is, in this precision or else in its own."""
    return (
        low.detach().to(like.device, dtype or like.dtype),
        high.detach().to(like.device, dtype or like.dtype),
    )


def beside(y: Float[Tensor, "*shape"], mean: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
    """Targets with their axis D: a one-dimensional target may come without it."""
    if y.ndim == mean.ndim - 1 and mean.shape[-1] == 1:
        y = y.unsqueeze(-1)
    if y.ndim != mean.ndim or y.shape[-1] != mean.shape[-1]:
        raise ValueError(
            f"targets of shape {tuple(y.shape)} do not fit predictions of shape {tuple(mean.shape)}: the last axis "
            "holds the target's dimensions"
        )
    return y


@dataclass(frozen=True, init=False)
class Gaussian(Prediction):
    """N(μ, diag σ²) over a target of D dimensions, given by μ and ln σ². Uncertainty is the variance, summed over D."""

    sizes: ClassVar[str] = "target dimensions"  # what the last axis counts

    location: Float[Tensor, "*batch D"]
    log_variance: Float[Tensor, "*batch D"]

    def __init__(self, mean: Float[Tensor, "*batch D"], log_variance: Float[Tensor, "*batch D"]) -> None:
        object.__setattr__(self, "location", mean)  # frozen; and `mean` is what every prediction has, not a field
        object.__setattr__(self, "log_variance", log_variance)

    @staticmethod
    def outputs(size: int) -> int:
        """How many outputs a network needs for a target of `size` dimensions."""
        return 2 * size

    @classmethod
    def from_output(cls, output: Float[Tensor, "*batch twice"]) -> "Gaussian":
        """The first half of the outputs is μ, the second ln σ²."""
        return cls(*output.chunk(2, -1))

    @property
    def mean(self) -> Float[Tensor, "*batch D"]:
        return self.location

    @property
    def variance(self) -> Float[Tensor, "*batch D"]:
        """σ², of each dimension."""
        return self.log_variance.exp()

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """Σ_d σ²_d."""
        return self.variance.sum(-1)

    def log_prob(self, y: Float[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """Σ_d −½[(y − μ)²/σ² + ln(2πσ²)]; the quotient in float64, where e^{−½ ln σ²} does not overflow."""
        away = (beside(y, self.location) - self.location).double() * (-0.5 * self.log_variance.double()).exp()
        terms = away.square() + self.log_variance.double() + math.log(2 * math.pi)
        return (-0.5 * terms.sum(-1)).to(self.location.dtype)

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Where the central interval of probability `level` begins and ends, in every dimension: μ ± σ·Φ⁻¹(½ + ½level).

        In its own precision, or in `dtype`: float64 where a narrow interval would be lost beside a large mean.
        """
        check_level(level, "level")
        quantile = torch.special.ndtri(self.location.new_tensor((1 - level) / 2, dtype=torch.float64))
        centre, half = self.location.double(), -quantile * (0.5 * self.log_variance.double()).exp()
        return rounded_ends(centre - half, centre + half, self.location, dtype)

    def kl(self, other: "Gaussian") -> Float[Tensor, "*batch"]:
        """KL[self ‖ other] = ½ Σ_d [e^d − 1 − d + (μ − μ′)²/σ′²] with d = ln σ² − ln σ′²: no term is negative."""
        d = (self.log_variance - other.log_variance).double()
        away = (self.location - other.location).double() * (-0.5 * other.log_variance.double()).exp()
        return (0.5 * (torch.expm1(d) - d + away.square()).sum(-1)).to(self.location.dtype)

    def heard(self, weights: Float[Tensor, "*batch M"]) -> "Gaussian":
        """The members, those of weight 0 made standard normal: what they say must not be read, be it NaN."""
        silent = (weights == 0).unsqueeze(-1)
        return Gaussian(self.location.masked_fill(silent, 0.0), self.log_variance.masked_fill(silent, 0.0))

    def averaged(self, weights: Float[Tensor, "*batch M"] | None = None) -> "Gaussian":
        """The one Gaussian with the mean and variance of the members (axis −2) together: the moment match."""
        if self.location.shape[-2] == 1:
            return Gaussian(self.location.squeeze(-2), self.log_variance.squeeze(-2))
        members, w = self.weighed(weights)
        location = (w * members.location).sum(-2)
        away = members.location - location.unsqueeze(-2)
        # ln Σ_m w_m(σ²_m + (μ_m − μ̄)²), from logarithms: a variance of e^{−100} is a number, too
        here = away == 0  # where ln|μ_m − μ̄| has no slope to give
        beyond = torch.logaddexp(members.log_variance, 2 * away.masked_fill(here, 1.0).abs().log())
        spread = torch.where(here, members.log_variance, beyond)
        dtype = self.location.dtype
        return Gaussian(location.to(dtype), (spread + w.log()).logsumexp(-2).to(dtype))

    def spread(self, weights: Float[Tensor, "*batch M"] | None = None) -> Float[Tensor, "*batch D"]:
        """var_m μ_m of each dimension, of the population; in float64, for members may be far from nought."""
        members, w = self.weighed(weights)
        return (w * (members.location - (w * members.location).sum(-2, keepdim=True)).square()).sum(-2)

    def mixed_log_prob(
        self, y: Float[Tensor, "..."], weights: Float[Tensor, "*batch M"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """ln Σ_m w_m N(y; μ_m, σ²_m)."""
        members, w = self.weighed(weights)
        each = members.log_prob(beside(y, self.location[..., 0, :]).unsqueeze(-2).expand_as(self.location))
        return (each + w.squeeze(-1).log()).logsumexp(-1).to(self.location.dtype)

    def mixed_interval(
        self, weights: Float[Tensor, "*batch M"] | None, level: float, dtype: torch.dtype | None
    ) -> Ends:
        """Where Σ_m w_m Φ((x − μ_m)/σ_m) reaches (1 − level)/2, and where (1 + level)/2, in every dimension."""
        check_level(level, "level")
        members, w = self.weighed(weights)
        parts = (members.location, (0.5 * members.log_variance).exp(), w.expand_as(members.location))
        rows = [part.detach().movedim(-2, -1) for part in parts]
        columns = [part.reshape(-1, part.shape[-1]).cpu().numpy() for part in rows]
        tail = (1 - level) / 2
        ends = (mixture_quantile(p, rest, *columns) for p, rest in ((tail, 1 - tail), (1 - tail, tail)))
        low, high = (torch.from_numpy(end).reshape(rows[0].shape[:-1]) for end in ends)
        return rounded_ends(low, high, self.location, dtype)

    def pairwise_kl(self, weights: Float[Tensor, "*batch M"] | None = None) -> Float[Tensor, "*batch"]:
        """Expected KL between two members: ½ Σ_d (E[1/σ²]·E[σ²] − 1 + E_j[E_i(μ_i − μ_j)²/σ²_j]).

        Over all ordered pairs, but in one pass over the members: the logarithms cancel, and E_i(μ_i − μ_j)² is the
        variance of the means and (μ_j − μ̄)². The first difference is taken as a sum of (e^{a} − 1) over pairs' logs.
        """
        members, w = self.weighed(weights)
        location = (w * members.location).sum(-2, keepdim=True)
        away = (members.location - location).square()
        varied = (w * away).sum(-2, keepdim=True)
        log_ratio = members.log_variance - (w * members.log_variance).sum(-2, keepdim=True)
        up, down = ((w * torch.expm1(s)).sum(-2) for s in (log_ratio, -log_ratio))
        means = (w * (varied + away) * (-members.log_variance).exp()).sum(-2)
        return (0.5 * (up + down + up * down + means).sum(-1)).to(self.location.dtype)

    def weighed(self, weights: Float[Tensor, "*batch M"] | None) -> tuple["Gaussian", Float[Tensor, "*batch M 1"]]:
        """The members that count, and how much, in float64.

        Three times 1/3 in float32 is 1 + 3e-8: a mean off by 3e-8 of itself may be far from members of small variance.
        """
        members = self if weights is None else self.heard(weights)
        w = self.location.new_ones(self.location.shape[:-1]) if weights is None else weights
        w = (w.double() / w.double().sum(-1, keepdim=True)).unsqueeze(-1)
        return Gaussian(members.location.double(), members.log_variance.double()), w
