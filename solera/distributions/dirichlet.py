"""A Dirichlet over class probabilities: what a prior network answers."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.special import digamma_excess, digamma_remainder, lgamma_remainder
from solera.distributions.base import SecondOrder
from solera.distributions.categorical import entropy_of_odds


def _divergence_part(b: Tensor, a: Tensor) -> Tensor:
    """lnΓ(b) − lnΓ(a) − ψ(a)(b − a), less b·ln(b/a) − (b − a): those are summed apart, where they cancel on paper."""
    u, v = (1 + a).reciprocal(), (1 + b).reciprocal()
    rest = b * v * lgamma_remainder(v) - a * u * lgamma_remainder(u) - (b - a) * u * digamma_remainder(u)
    logs = b * (b.reciprocal().log1p() - a.reciprocal().log1p()) + 0.5 * (b.log1p() - a.log1p()) - (b / a).log()
    return rest + logs + (b - a) / a


@dataclass(frozen=True)
class Dirichlet(SecondOrder):
    """Dir(α): the mean, the accuracy and every uncertainty come from the one α."""

    concentration: Float[Tensor, "*batch K"]

    @classmethod
    def from_logits(cls, logits: Float[Tensor, "*batch K"], offset: float = 1.0) -> "Dirichlet":
        """α = e^z + offset, in float32 at least: concentrations do not survive half precision."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return cls(logits.exp() + offset)

    @cached_property
    def precision(self) -> Float[Tensor, "*batch"]:
        """α₀ = Σ_k α_k."""
        return self.concentration.sum(-1)

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.concentration / self.precision.unsqueeze(-1)

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[α/α₀]."""
        top, likeliest = self.concentration.max(-1, keepdim=True)
        return entropy_of_odds((self.concentration / top).scatter(-1, likeliest, 0.0))

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """E[H[y|π]], as total − knowledge: knowledge has the relative accuracy, total does not mind the loss."""
        return (self.total - self.knowledge).clamp(min=0)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """I[y, π] = Σ_k (α_k/α₀)·g(α_k) − g(α₀) with g(a) = ψ(a + 1) − ln a."""
        a = self.concentration.clamp(min=torch.finfo(self.concentration.dtype).tiny)
        return ((self.mean * digamma_excess(a)).sum(-1) - digamma_excess(self.precision)).clamp(min=0)

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """Expected pairwise KL divergence, (K − 1)/α₀ exactly."""
        return (self.concentration.shape[-1] - 1) / self.precision

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        return self.epkl - self.knowledge

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """ln(α_y/α₀): the probability of a class, averaged over the Dirichlet; two logarithms subtracted in float64."""
        chosen = self.concentration.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return (chosen.double().log() - self.precision.double().log()).to(self.concentration.dtype)

    def kl(self, other: "Dirichlet") -> Float[Tensor, "*batch"]:
        """KL[Dir(α) ‖ Dir(β)], as β₀·KL[mean_β ‖ mean_α] and a remainder that stays small; in float64 inside."""
        a, b = self.concentration.double(), other.concentration.double()
        a0, b0 = a.sum(-1), b.sum(-1)
        mean_a, mean_b = a / a0.unsqueeze(-1), b / b0.unsqueeze(-1)
        t = (mean_b - mean_a) / mean_a
        small = t.clamp(-0.5, 0.5)
        near = mean_a * ((1 + small) * small.log1p() - small)
        far = mean_b * (mean_b / mean_a).log() - (mean_b - mean_a)
        means = torch.where(t == small, near, far).sum(-1)
        result = b0 * means + _divergence_part(b, a).sum(-1) - _divergence_part(b0, a0)
        return result.to(self.concentration.dtype)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Differential entropy, ln B(α) − Σ_k (α_k − 1)(ψ(α_k) − ψ(α₀)) = −KL[Dir(α) ‖ Dir(1)] − lnΓ(K)."""
        flat = torch.ones_like(self.concentration)
        classes = self.precision.new_tensor(float(flat.shape[-1]))
        return -self.kl(Dirichlet(flat)) - torch.lgamma(classes)
