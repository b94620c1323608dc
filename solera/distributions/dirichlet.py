"""A Dirichlet over class probabilities: what a prior network answers."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from solera.core.special import digamma_remainder, lgamma_remainder, trigamma_deficit
from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical
from solera.distributions.density import dirichlet_nll

_WIDE = 0.5  # of an interval of ln α: a narrower one is integrated over, by Gauss's rule of three points
_GAUSS = ((0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15)), (5 / 18, 4 / 9, 5 / 18))  # places, shares


def _divergence_part(b: Tensor, a: Tensor) -> Tensor:
    """lnΓ(b) − lnΓ(a) − ψ(a)(b − a), less b·ln(b/a) − (b − a): those are summed apart, where they cancel on paper."""
    u, v = (1 + a).reciprocal(), (1 + b).reciprocal()
    rest = b * v * lgamma_remainder(v) - a * u * lgamma_remainder(u) - (b - a) * u * digamma_remainder(u)
    logs = b * (b.reciprocal().log1p() - a.reciprocal().log1p()) + 0.5 * (b.log1p() - a.log1p()) - (b / a).log()
    return rest + logs + (b - a) / a


def _require_representable(*parts: Tensor) -> None:
    """Refuses concentrations that float64 cannot hold, or whose reciprocal it cannot."""
    for part in parts:
        wrong = ~((part > 1e-300) & (part < 1e300))
        if wrong.any():
            raise ValueError(
                f"a divergence between Dirichlets needs concentrations from 1e-300 to 1e300, got {part[wrong][0]:.3g}: "
                "look for a network that diverged (logits beyond ±690), or for a class of probability 0"
            )


def excess(log_a: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """g(a) = ψ(a + 1) − ln a as −min(ln a, 0), which may be large, and the rest, which is between −0.6 and 0.7.

    ψ's remainder, which is between −0.58 and −0.5, is evaluated in `dtype` (the input's, unless it is given).
    """
    below = log_a.clamp(max=0)
    power = (2 * below - log_a).exp()  # e^−|ln a|
    u = torch.where(log_a > 0, power, 1.0) / (1 + power)  # 1/(1 + a)
    return -below, power.log1p() + u * digamma_remainder(u.to(dtype or u.dtype)).to(u)


def _slope(log_a: Tensor, dtype: torch.dtype) -> Tensor:
    """−dg/d ln a = 1 − a·ψ₁(1 + a), the remainder of ψ₁ evaluated in `dtype`."""
    u = torch.sigmoid(-log_a)
    return u * trigamma_deficit(u.to(dtype)).to(u)


def _mutual_information(away: Tensor, odds: Tensor, log_precision: Tensor) -> Tensor:
    """Σ_k m_k·g(α_k) − g(α₀) with m = α/α₀ and g(a) = ψ(a + 1) − ln a, which falls; in float64, as `log_precision` is.

    With t the likeliest class: Σ_{k≠t} m_k·(g(α_k) − g(α_t)) + (g(α_t) − g(α₀)), in which no term is negative. The last
    is, where α_t is nearly α₀, the integral of 1 − a·ψ₁(1 + a) over ln a. `away` is ln(α_k/α_t), `odds` is α_k/α_t,
    or 0 for t itself.
    """
    size = odds.sum(-1, dtype=torch.float64)
    width = size.log1p()  # ln α₀ − ln α_t
    log_top = log_precision - width
    (large_top, _), (small_top, small_whole) = (
        x.unbind() for x in excess(torch.stack([log_top, log_precision]), away.dtype)
    )
    places, shares = (width.new_tensor(numbers) for numbers in _GAUSS)
    slopes = _slope(log_precision.unsqueeze(-1) - places * width.unsqueeze(-1), away.dtype)
    near = width * (shares * slopes).sum(-1)
    far = torch.where(log_precision <= 0, width, large_top) + (small_top - small_whole)
    start = log_top.to(away.dtype).unsqueeze(-1)
    large, small = excess(start + away)
    gaps = torch.where(start <= 0, -away, large) + (small - small_top.to(away.dtype).unsqueeze(-1))
    others = (odds * gaps).sum(-1, dtype=torch.float64) / (1 + size)
    return (others + torch.where(width < _WIDE, near, far)).clamp(min=0)


@dataclass(frozen=True, init=False)
class Dirichlet(SecondOrder):
    """Dir(α): the mean, the accuracy and every uncertainty come from the one α.

    Held as logits of the mean and ln α₀. So mean, total, data, knowledge and log_prob are right for any of them; α, α₀
    and epkl are infinite only where they are beyond the largest number of their precision.
    """

    logits: Float[Tensor, "*batch K"]  # softmax gives the mean
    log_precision: Float[Tensor, "*batch"]  # ln α₀, in float64
    given: Float[Tensor, "*batch K"] | None  # α, of a Dirichlet that was made of it

    def __init__(self, concentration: Float[Tensor, "*batch K"]) -> None:
        """Of α itself; an α of 0 is taken for the smallest number there is."""
        logits = concentration.double().clamp(min=torch.finfo(concentration.dtype).tiny).log()
        self._hold(logits, concentration.sum(-1, dtype=torch.float64).log(), concentration)

    def _hold(self, logits: Tensor, log_precision: Tensor, given: Tensor | None) -> None:
        object.__setattr__(self, "logits", logits)
        object.__setattr__(self, "log_precision", log_precision)
        object.__setattr__(self, "given", given)

    @classmethod
    def from_mean(cls, logits: Float[Tensor, "*batch K"], log_precision: Float[Tensor, "*batch"]) -> "Dirichlet":
        """α = e^{log_precision}·softmax(logits), in float32 at least: concentrations do not survive half precision."""
        made = cls.__new__(cls)
        made._hold(logits if logits.dtype == torch.float64 else logits.float(), log_precision.double(), None)
        return made

    @classmethod
    def from_logits(cls, logits: Float[Tensor, "*batch K"], offset: float = 1.0) -> "Dirichlet":
        """α = e^z + offset."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if offset:
            logits = torch.logaddexp(logits, logits.new_tensor(math.log(offset)))
        return cls.from_mean(logits, Categorical(logits).log_sum)

    def masked(self, padding: Bool[Tensor, "*batch"]) -> "Dirichlet":
        """The same, but for padding, where it is uniform whatever stood there."""
        if self.given is not None:
            return Dirichlet(self.given.masked_fill(padding.unsqueeze(-1), 1.0))
        logits = self.logits.masked_fill(padding.unsqueeze(-1), 0.0)
        return Dirichlet.from_mean(logits, self.log_precision.masked_fill(padding, 0.0))

    @property
    def concentration(self) -> Float[Tensor, "*batch K"]:
        """α."""
        return self._precise[1].to(self._dtype) if self.given is None else self.given

    @cached_property
    def precision(self) -> Float[Tensor, "*batch"]:
        """α₀ = Σ_k α_k."""
        return self._rounded(self.log_precision.exp())

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self._rounded(Categorical(self.logits).mean)

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[α/α₀]."""
        return self._rounded(Categorical(self.logits).total)

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """E[H[y|π]], as total − knowledge: knowledge has the relative accuracy, total does not mind the loss."""
        return (self.total - self.knowledge).clamp(min=0)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """I[y, π] = Σ_k (α_k/α₀)·g(α_k) − g(α₀) with g(a) = ψ(a + 1) − ln a."""
        return self._information

    @cached_property
    def _information(self) -> Float[Tensor, "*batch"]:
        top, likeliest = self.logits.max(-1, keepdim=True)
        away = (self.logits - top).clamp(min=torch.finfo(self.logits.dtype).min)  # −∞, a class ruled out, times 0
        odds = away.exp().scatter(-1, likeliest, 0.0)
        return self._rounded(_mutual_information(away, odds, self.log_precision))

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """Expected pairwise KL divergence, (K − 1)/α₀ exactly."""
        return self._rounded((self.logits.shape[-1] - 1) * (-self.log_precision).exp())

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        return self.epkl - self.knowledge

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """ln(α_y/α₀): the probability of a class, averaged over the Dirichlet."""
        return self._rounded(Categorical(self.logits).log_prob(y))

    def log_density(self, log_probs: Float[Tensor, "*batch M K"]) -> Float[Tensor, "*batch M"]:
        """ln Dir(p | α) of probabilities, given by their logarithms: how likely these members are."""
        log_concentration = self.logits.double().log_softmax(-1) + self.log_precision.unsqueeze(-1)
        spread = log_concentration.unsqueeze(-2).expand(log_probs.shape)
        return self._rounded(-dirichlet_nll(spread, log_probs))

    def kl(self, other: "Dirichlet") -> Float[Tensor, "*batch"]:
        """KL[Dir(α) ‖ Dir(β)], as β₀·KL[mean_β ‖ mean_α] and a remainder that stays small; in float64 inside."""
        (mean_a, a, a0), (mean_b, b, b0) = self._precise, other._precise
        _require_representable(a, a0, b, b0)
        t = (mean_b - mean_a) / mean_a
        small = t.clamp(-0.5, 0.5)
        near = mean_a * ((1 + small) * small.log1p() - small)
        far = mean_b * (mean_b / mean_a).log() - (mean_b - mean_a)
        means = torch.where(t == small, near, far).sum(-1)
        result = b0 * means + _divergence_part(b, a).sum(-1) - _divergence_part(b0, a0)
        return self._rounded(result)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Differential entropy, ln B(α) − Σ_k (α_k − 1)(ψ(α_k) − ψ(α₀)) = −KL[Dir(α) ‖ Dir(1)] − lnΓ(K)."""
        flat = Dirichlet(torch.ones_like(self.logits))
        classes = self.log_precision.new_tensor(float(self.logits.shape[-1]), dtype=self._dtype)
        return -self.kl(flat) - torch.lgamma(classes)

    @property
    def _dtype(self) -> torch.dtype:
        return self.logits.dtype if self.given is None else self.given.dtype

    def _rounded(self, value: Tensor) -> Tensor:
        return value.to(self._dtype)

    @property
    def _precise(self) -> tuple[Tensor, Tensor, Tensor]:
        """The mean, α and α₀ in float64."""
        if self.given is not None:
            a = self.given.double()
            a0 = a.sum(-1)
            return a / a0.unsqueeze(-1), a, a0
        log_mean = self.logits.double().log_softmax(-1)
        return log_mean.exp(), (log_mean + self.log_precision.unsqueeze(-1)).exp(), self.log_precision.exp()
