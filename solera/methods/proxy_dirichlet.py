"""Proxy-Dirichlet EnD²: reverse KL to a Dirichlet fitted to the members (Ryabinin et al., 2021)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_finite_loss, require_members
from solera.core.fused import Kernel, fused, row_sum, stored
from solera.core.special import digamma_remainder, lgamma_remainder, logarithm_remainder, trigamma_tail
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.matching import Match, matched_precision, require_match
from solera.distributions.mixture import Mixture
from solera.distributions.sizing import fit_precision, mapped, require_map
from solera.distributions.summary import TopK
from solera.methods.base import Method


def proxy_precision(
    members: Float[Tensor, "*batch M K"], match: Match = "rmi", weights: Float[Tensor, "*batch M"] | None = None
) -> Float[Tensor, "*batch"]:
    """β̂₀ = (K − 1)/(2·RMI), Stirling's estimate (eq. 16), or (K − 1)/EPKL, exact for members drawn from a Dirichlet.

    By "mi" the β₀ of which Dir(β₀·p̄) has the members' mutual information. Never above (K − 1)·10⁸: identical members
    have no spread at all.
    """
    return matched_precision(Mixture(Categorical(members), weights), match, members.shape[-1])


def _reverse_kl(z: Tensor, mean: Tensor, divisor: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_k p̄_k·(ψ(α₀) − ψ(α_k)) + KL[Dir(α) ‖ Dir(1)]/b for α = e^z + 1, and its gradient.

    With e = e^z, u = 1/α, s = e·u, E = Σe, u₀ = 1/α₀, s₀ = E·u₀: KL = (K − ½)·ln(1 + E/K) + F(α₀) − F(K) − s₀·D(u₀)
    + Σ [s·(D − G) − ½ ln α], F(a) = (1 − 1/a)·G(1/a): the e·ln e of ψ and lnΓ, and then the e themselves, have
    cancelled on paper. The gradient is e·(ψ₁(α₀) − w₀/b) − s·(Q/b + p̄·P) with Q/b + p̄·P = p̄ + 1/b + R·(u·p̄ − s/b),
    ψ₁(α₀) = u₀·(1 + u₀·R(u₀)) and w₀ = E·ψ₁(α₀) − 1 = −u₀·(K − s₀·R(u₀)).
    """
    classes = z.shape[-1]
    top = z.amax(-1, keepdim=True).clamp(min=0)
    e = z.exp()
    u = (1 + e).reciprocal()
    s = e * u
    smaller, positive = torch.minimum(u, s), z.clamp(min=0)
    beyond = smaller * logarithm_remainder(smaller)  # ln α = positive + beyond
    digamma, weight = digamma_remainder(u), u * mean
    # sums of short expressions: a long one the compiler would store before it adds it up
    surprise = row_sum(mean * (top - positive - beyond)) - row_sum(weight * digamma)
    spread = row_sum(s * (digamma - lgamma_remainder(u))) - 0.5 * row_sum(positive + beyond)
    size = row_sum(e)

    a0 = size + classes
    u0, s0 = a0.reciprocal(), size / a0
    rounded = u0.to(z.dtype)
    digamma0, tail0 = digamma_remainder(rounded), trigamma_tail(rounded)
    flat = math.lgamma(classes) - (classes - 0.5) * math.log(classes) + classes - 1  # F(K)
    edge = (1 - u0) * lgamma_remainder(rounded) - flat
    prior = (classes - 0.5) * (size / classes).log1p() + edge - s0 * digamma0 + spread
    level = a0.log() - top.squeeze(-1) + u0 * digamma0
    loss = surprise + level + prior / divisor  # p̄ sums to one

    pull = stored((u0 * (1 + u0 * tail0 + (classes - s0 * tail0) / divisor)).to(z.dtype))  # ψ₁(α₀) − w₀/b
    inverse = stored(divisor.reciprocal()).unsqueeze(-1)
    gradient = e * pull.unsqueeze(-1) - s * (mean + inverse + trigamma_tail(u) * (weight - s * inverse))
    return loss.to(z.dtype), gradient


def _sparse_reverse_kl(
    z: Tensor, indices: Tensor, excess: Tensor, rest: Tensor, divisor: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for p̄ = `rest` everywhere, plus `excess` at the kept classes: no row of targets is ever built."""
    loss, gradient = _reverse_kl(z, rest.unsqueeze(-1), divisor)
    kept = z.gather(-1, indices)
    top = z.amax(-1, keepdim=True).clamp(min=0)
    e = kept.exp()
    u = (1 + e).reciprocal()
    s = e * u
    smaller = torch.minimum(u, s)
    beyond = smaller * logarithm_remainder(smaller)
    loss = loss + (excess * (top - kept.clamp(min=0) - beyond - u * digamma_remainder(u))).sum(-1)
    return loss, gradient.scatter_add(-1, indices, -excess * s * (1 + u * trigamma_tail(u)))


def _reverse_kl_and_mean(
    z: Tensor, mean: Tensor, divisor: Tensor, weight: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """The same, and `weight` times KL(p̄ ‖ softmax(z)), where p̄ has the entropy `total`."""
    loss, gradient = _reverse_kl(z, mean, divisor)
    scores = z.log_softmax(-1)
    apart = -row_sum(mean * scores) - total
    return loss + (weight * apart).to(z.dtype), gradient + weight.unsqueeze(-1) * (scores.exp() - mean)


def _sparse_reverse_kl_and_mean(
    z: Tensor, indices: Tensor, excess: Tensor, rest: Tensor, divisor: Tensor, weight: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for p̄ = `rest` everywhere, plus `excess` at the kept classes."""
    loss, gradient = _sparse_reverse_kl(z, indices, excess, rest, divisor)
    scores, w = z.log_softmax(-1), weight.unsqueeze(-1)
    apart = -rest * row_sum(scores) - (excess * scores.gather(-1, indices)).sum(-1) - total
    gradient = gradient + w * (scores.exp() - rest.unsqueeze(-1))
    return loss + (weight * apart).to(z.dtype), gradient.scatter_add(-1, indices, -w * excess)


def dense_proxy_loss(
    logits: Float[Tensor, "*batch K"], mean: Float[Tensor, "*batch K"], divisor: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The loss against a target given by its mean (which sums to one) and the divisor b."""
    return fused(_reverse_kl, logits, mean, divisor)


def _kernel(
    targets: Targets, match: Match, as_released: bool, mean_weight: float, classes: int
) -> tuple[Kernel, tuple[Tensor, ...]]:
    """The loss of these targets as a kernel and its columns: of `TopK`, from the kept classes alone."""
    divisor = matched_precision(targets, match, classes) + (classes if as_released else 0)
    more = (torch.full_like(divisor, mean_weight), targets.total) if mean_weight else ()
    if isinstance(targets, TopK):
        excess = targets.probs - targets.rest.unsqueeze(-1)
        kernel = _sparse_reverse_kl_and_mean if mean_weight else _sparse_reverse_kl
        return kernel, (targets.indices, excess, targets.rest, divisor, *more)
    return _reverse_kl_and_mean if mean_weight else _reverse_kl, (targets.mean, divisor, *more)


def _loss(
    logits: Tensor, targets: Targets, match: Match, as_released: bool, mean_weight: float = 0.0
) -> Float[Tensor, "*batch"]:
    kernel, columns = _kernel(targets, match, as_released, mean_weight, logits.shape[-1])
    loss = fused(kernel, logits, *columns)
    return require_finite_loss(loss, logits, "beyond 88 e^z overflows float32; lower the learning rate")


def proxy_dirichlet_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    *,
    match: Match = "rmi",
    as_released: bool = False,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """E_{Dir(e^z+1)}[−Σ p̄_k ln π_k] + KL[Dir(e^z+1) ‖ Dir(1)]/b with b = β̂₀ (eq. 17; `as_released`: β̂₀ + K)."""
    require_members(logits, members)
    return _loss(logits, Mixture(Categorical(members), weights), match, as_released)


@dataclass(frozen=True)
class ProxyDirichlet(Method):
    """Keeps the whole decomposition, from two classes to tens of thousands.

    The loss is least where e^z = β̂, so Dir(e^z) stands in for the ensemble: its mean softmax(z) is the ensemble's p̄,
    its precision α₀ is Σ e^z. The 1 in e^z + 1 belongs to the training; `as_published` predicts with it as well, and
    `as_released` divides the KL by β̂₀ + K, as the papers' released code does.

    The loss' own gradient is proportional to e^z: where members contradict each other, e^z is small and the mean is
    learned last. `mean_weight` adds so much of KL(p̄ ‖ softmax(z)), which is least at the same e^z = β̂.

    Fitted on held-out inputs, mean ∝ e^{z/T} + d with T = `mean_temperature`, d = `mean_offset` (to labels), and
    α₀ = e^{a·lse(z) + b} with a = `precision_slope`, b = `precision_shift` (to the ensemble's knowledge).
    """

    # The loss divides by β̂₀, which is small where members contradict each other: a network that is sure of new examples
    # pays more there than one that knows nothing. The precision is fitted on the same examples after the training.
    judged_by_mean: ClassVar[bool] = True

    match: Match = "rmi"
    as_released: bool = False
    as_published: bool = False
    mean_weight: float = 0.0
    mean_temperature: float = 1.0
    mean_offset: float = 0.0
    precision_slope: float = 1.0
    precision_shift: float = 0.0

    def __post_init__(self) -> None:
        require_match(self.match)
        if not 0 <= self.mean_weight < math.inf:
            raise ValueError(f"mean_weight must be 0 or a positive number, got {self.mean_weight}")
        require_map(self.mean_temperature, self.mean_offset, self.precision_slope, self.precision_shift)
        if self.as_published and self._map != (1.0, 0.0, 1.0, 0.0):
            raise ValueError(f"as_published predicts with e^z + 1, not with the map {self._map}: drop one of them")

    @property
    def _map(self) -> tuple[float, float, float, float]:
        return self.mean_temperature, self.mean_offset, self.precision_slope, self.precision_shift

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        return _loss(output, targets, self.match, self.as_released, self.mean_weight)

    def kernel(self, targets: Targets, classes: int) -> tuple[Kernel, tuple[Tensor, ...]]:
        return _kernel(targets, self.match, self.as_released, self.mean_weight, classes)

    @property
    def softmax(self) -> bool:
        return not self.as_published and self.mean_temperature == 1 and self.mean_offset == 0

    def predict(self, output: Tensor) -> Dirichlet:
        return Dirichlet.from_logits(output, offset=1.0) if self.as_published else mapped(output, *self._map)

    def fitted(
        self,
        output: Float[Tensor, "N K"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "ProxyDirichlet":
        if self.as_published:
            return self
        slope, shift = fit_precision(output, self.predict(output).logits, knowledge, auxiliary)
        return replace(self, precision_slope=slope, precision_shift=shift)
