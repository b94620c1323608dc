"""EnD²: maximum likelihood of the members under the student's Dirichlet (Malinin et al., 2020)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_finite_loss, require_fraction, require_positive
from solera.core.fused import fused, row_sum
from solera.core.schedule import linear
from solera.core.special import digamma_remainder, lgamma_remainder, logarithm_remainder
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.sizing import fit_mean_temperature, fit_precision, mapped, require_map
from solera.methods.base import Method


def smoothed_log_mean(
    members: Float[Tensor, "*batch M K"], smoothing: float, weights: Float[Tensor, "*batch M"] | None = None
) -> Float[Tensor, "*batch K"]:
    """mean_m ln((1 − γ)·p_m + γ/K): central smoothing keeps a vanished probability from an infinite logarithm.

    In float64, because a likely class's ln p̃ ≈ −γ is multiplied by a concentration that may be huge.
    """
    spoken = Categorical(members.double())
    log_probs = (spoken if weights is None else spoken.heard(weights)).log_probs
    if smoothing:
        log_probs = ((1 - smoothing) * log_probs.exp() + smoothing / members.shape[-1]).log()
    if weights is None:
        return log_probs.mean(-2)
    return (weights.unsqueeze(-1) * log_probs).sum(-2)


def _negative_log_likelihood(z: Tensor, log_mean: Tensor) -> tuple[Tensor, Tensor]:
    """−[lnΓ(α₀) − Σ lnΓ(α_k) + Σ (α_k − 1)·ℓ_k] for α = e^z, and its gradient α_k·(ψ(α_k) − ψ(α₀) − ℓ_k).

    With u = 1/(1 + α), s = α·u and b = ln(1 + α) − ln α: lnΓ(α) = α·(ln α − 1 + b) + ½ ln(1 + α) − ln α + s·G and
    α·ψ(α) = α·(ln α + b) − 1 + s·D. Their α·ln α is joined with α·ℓ into α·(ln m_k − ℓ_k), m = α/α₀, before anything
    is multiplied.
    """
    top = z.amax(-1, keepdim=True)
    share = (z - top).exp()
    size = row_sum(share).unsqueeze(-1)
    log_size = (size - 1).log1p()  # relatively exact even where one class has nearly everything
    a = z.exp()
    u = (1 + a).reciprocal()
    s = a * u
    smaller, positive = torch.minimum(u, s), z.clamp(min=0)
    beyond = smaller * logarithm_remainder(smaller)  # ln(1 + α) = positive + beyond
    gap = a * ((z - top) - log_size.to(z.dtype) - log_mean) + a * (positive - z + beyond)
    loss = row_sum(gap + 0.5 * (positive + beyond) - z + log_mean) + row_sum(s * lgamma_remainder(u))

    a0 = top.double().exp() * size
    u0 = (1 + a0).reciprocal().to(z.dtype)
    s0, beyond0, log_a0 = 1 - u0, a0.reciprocal().log1p(), top + log_size
    edge = (a0 + 0.5) * beyond0 - 0.5 * log_a0 + s0 * lgamma_remainder(u0)
    excess0 = a0 * beyond0 - 1 + s0 * digamma_remainder(u0)
    gradient = gap + s * digamma_remainder(u) - 1 - share * (excess0 / size).to(z.dtype)
    return (loss - edge.squeeze(-1)).to(z.dtype), gradient


def end2_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    smoothing: float = 1e-4,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·(−mean_m ln Dir(p̃_m | e^{z/T})), p̃_m the member's softmax(z_m/T) smoothed by γ; eq. 8 with its 1/M."""
    require_positive("temperature", temperature)
    log_mean = smoothed_log_mean(members / temperature, smoothing, weights)
    loss = temperature**2 * fused(_negative_log_likelihood, logits / temperature, log_mean)
    remedy = "beyond 88·T e^{z/T} overflows float32; lower the learning rate, and keep smoothing above 0"
    return require_finite_loss(loss, logits, remedy)


@dataclass(frozen=True)
class EnD2(Method):
    """Keeps the whole decomposition; for up to a few hundred classes (beyond, use ProxyDirichlet).

    The temperature stays at `initial_temperature` for a third of the training, falls linearly to 1 over the next third,
    and stays there: the paper's half-cycles.

    Predicts Dir(e^z) or, once fitted on held-out inputs, mean ∝ e^{z/T} + d with T = `mean_temperature` (to the
    ensemble's total, or to labels) and d = `mean_offset` (to labels), and α₀ = e^{a·lse(z) + b} with
    a = `precision_slope`, b = `precision_shift` (to the ensemble's knowledge).
    """

    initial_temperature: float = 10.0
    smoothing: float = 1e-4
    mean_temperature: float = 1.0
    mean_offset: float = 0.0
    precision_slope: float = 1.0
    precision_shift: float = 0.0

    def __post_init__(self) -> None:
        require_positive("initial_temperature", self.initial_temperature)
        require_fraction("smoothing", self.smoothing)
        require_map(*self._map)

    @property
    def _map(self) -> tuple[float, float, float, float]:
        return self.mean_temperature, self.mean_offset, self.precision_slope, self.precision_shift

    def temperature(self, progress: float) -> float:
        """T at this point of the training."""
        return linear(self.initial_temperature, 1.0, 1 / 3, 2 / 3)(progress)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        members, temperature = targets.members.logits, self.temperature(progress)
        return end2_loss(output, members, temperature, self.smoothing, targets.weights)

    def predict(self, output: Tensor) -> Dirichlet:
        return mapped(output, *self._map)

    def fitted(
        self,
        output: Float[Tensor, "N K"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "EnD2":
        temperature = fit_mean_temperature(output, total, auxiliary)
        sized = replace(self, mean_temperature=temperature, mean_offset=0.0)
        slope, shift = fit_precision(output, sized.predict(output).logits, knowledge, auxiliary)
        return replace(sized, precision_slope=slope, precision_shift=shift)
