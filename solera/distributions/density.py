"""The density of a Dirichlet at given probabilities, accurate and fast; and the smoothed members it is taken at."""

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.fused import fused, row_sum, stored
from solera.core.special import digamma_remainder, lgamma_remainder, logarithm_remainder
from solera.distributions.categorical import Categorical


def smoothed_log_probs(
    members: Float[Tensor, "*batch M K"], smoothing: float, weights: Float[Tensor, "*batch M"] | None = None
) -> Float[Tensor, "*batch M K"]:
    """ln((1 − γ)·p_m + γ/K): central smoothing keeps a vanished probability from an infinite logarithm.

    In float64, because a likely class's ln p̃ ≈ −γ is multiplied by a concentration that may be huge. Members of
    weight 0 are not read.
    """
    spoken = Categorical(members.double())
    log_probs = (spoken if weights is None else spoken.heard(weights)).log_probs
    return ((1 - smoothing) * log_probs.exp() + smoothing / members.shape[-1]).log() if smoothing else log_probs


def _negative_log_likelihood(z: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
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
    gap = a * ((z - top) - stored(log_size.to(z.dtype)) - log_probs) + a * (positive - z + beyond)
    loss = row_sum(gap + 0.5 * (positive + beyond) - z + log_probs) + row_sum(s * lgamma_remainder(u))

    a0 = top.double().exp() * size
    u0 = (1 + a0).reciprocal().to(z.dtype)
    s0, beyond0, log_a0 = 1 - u0, a0.reciprocal().log1p(), top + log_size
    edge = (a0 + 0.5) * beyond0 - 0.5 * log_a0 + s0 * lgamma_remainder(u0)
    excess0 = a0 * beyond0 - 1 + s0 * digamma_remainder(u0)
    gradient = gap + s * digamma_remainder(u) - 1 - share * stored((excess0 / size).to(z.dtype))
    return (loss - edge.squeeze(-1)).to(z.dtype), gradient


def dirichlet_nll(logits: Float[Tensor, "*batch K"], log_probs: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """−ln Dir(p | e^z) of probabilities given by their logarithms; −mean_m ln Dir(p_m | e^z) of mean logarithms."""
    return fused(_negative_log_likelihood, logits, log_probs)
