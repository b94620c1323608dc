"""Proxy-Dirichlet EnD²: reverse KL to a Dirichlet fitted to the members (Ryabinin et al., 2021)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.fused import fused
from solera.core.special import (
    digamma_remainder,
    lgamma_remainder,
    logarithm_remainder,
    trigamma_deficit,
    trigamma_remainder,
    trigamma_tail,
)
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.mixture import Mixture
from solera.methods.base import Method

Match = Literal["rmi", "epkl"]

SMALLEST_SPREAD = 1e-8  # nats: members closer than this count as this far apart, which caps the precision


def _precision(targets: Targets, match: Match) -> Float[Tensor, "*batch"]:
    if match not in ("rmi", "epkl"):
        raise ValueError(f"match must be 'rmi' or 'epkl', got {match!r}")
    spread = 2 * targets.rmi if match == "rmi" else targets.epkl
    return (targets.mean.shape[-1] - 1) / spread.clamp(min=SMALLEST_SPREAD)


def proxy_precision(
    members: Float[Tensor, "*batch M K"], match: Match = "rmi", weights: Float[Tensor, "*batch M"] | None = None
) -> Float[Tensor, "*batch"]:
    """β̂₀ = (K − 1)/(2·RMI), Stirling's estimate (eq. 16), or (K − 1)/EPKL, exact for members drawn from a Dirichlet.

    Never above (K − 1)·10⁸: identical members have no spread at all.
    """
    return _precision(Mixture(Categorical(members), weights), match)


def _reverse_kl(z: Tensor, mean: Tensor, divisor: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_k p̄_k·(ψ(α₀) − ψ(α_k)) + KL[Dir(α) ‖ Dir(1)]/b for α = e^z + 1, and its gradient.

    With e = e^z, u = 1/α, s = e·u, E = Σe: KL = (K − ½)·ln(1 + E/K) + F(α₀) − F(K) − (E/α₀)·D(1/α₀)
    + Σ [s·(D − G) − ½ ln α], F(a) = (1 − 1/a)·G(1/a): the e·ln e of ψ and lnΓ, and then the e themselves, have
    cancelled on paper. Gradient: e·(ψ₁(α₀) − w₀/b) − s·(Q/b + p̄·P), where Q/b + p̄·P = 1/b + p̄ + R·(u·p̄ − s/b).
    """
    classes = z.shape[-1]
    top = z.amax(-1, keepdim=True).clamp(min=0)
    e = z.exp()
    u = (1 + e).reciprocal()
    s = e * u
    smaller, positive = torch.minimum(u, s), z.clamp(min=0)
    beyond = smaller * logarithm_remainder(smaller)  # ln α = positive + beyond
    digamma = digamma_remainder(u)
    # sums of short expressions: the compiler stores the terms of a long one before it adds them up
    size = e.sum(-1, dtype=torch.float64)
    surprise = (mean * (top - positive - beyond)).sum(-1) - (mean * (u * digamma)).sum(-1)
    spread = (s * (digamma - lgamma_remainder(u))).sum(-1) - 0.5 * (positive + beyond).sum(-1)

    a0 = size + classes
    u0 = a0.reciprocal().to(z.dtype)
    digamma0, trigamma0 = u0 * digamma_remainder(u0), u0 * trigamma_remainder(u0)
    flat = torch.full_like(u0[:1], 1 / classes)
    edge = (1 - u0) * lgamma_remainder(u0) - (1 - flat) * lgamma_remainder(flat)
    prior = (classes - 0.5) * (size / classes).log1p() + edge - size * digamma0 + spread
    level = (a0.log() - top.squeeze(-1) + digamma0).to(z.dtype) * mean.sum(-1)
    loss = surprise + level + (prior / divisor).to(z.dtype)

    # w₀ = E·ψ₁(α₀) − 1, without the subtraction
    w0 = -u0 * trigamma_deficit(u0) - (classes - 1) * trigamma0
    pull = (trigamma0 - w0 / divisor).unsqueeze(-1)
    share = divisor.reciprocal().unsqueeze(-1)
    gradient = e * pull - s * (mean + share + trigamma_tail(u) * (u * mean - s * share))
    return loss, gradient


def _loss(logits: Tensor, targets: Targets, match: Match, as_released: bool) -> Float[Tensor, "*batch"]:
    divisor = _precision(targets, match) + (logits.shape[-1] if as_released else 0)
    return fused(_reverse_kl, logits, targets.mean, divisor)


def proxy_dirichlet_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    *,
    match: Match = "rmi",
    as_released: bool = False,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """E_{Dir(e^z+1)}[−Σ p̄_k ln π_k] + KL[Dir(e^z+1) ‖ Dir(1)]/b with b = β̂₀ (eq. 17; `as_released`: β̂₀ + K)."""
    return _loss(logits, Mixture(Categorical(members), weights), match, as_released)


@dataclass(frozen=True)
class ProxyDirichlet(Method):
    """Keeps the whole decomposition, from two classes to tens of thousands."""

    match: Match = "rmi"
    as_released: bool = False

    def __post_init__(self) -> None:
        if self.match not in ("rmi", "epkl"):
            raise ValueError(f"match must be 'rmi' or 'epkl', got {self.match!r}")

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        return _loss(output, targets, self.match, self.as_released)

    def predict(self, output: Tensor) -> Dirichlet:
        return Dirichlet.from_logits(output, offset=1.0)
