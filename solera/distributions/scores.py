"""What the scores of a hypothesis's own tokens say: which members foresaw it, and what a Dirichlet expects of them."""

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.special import digamma_excess, trigamma_deficit

NEAR = 2.0**-16  # of a: below it a step r is so short that a difference is better taken by the derivative


def prefix_weights(
    log_probs: Float[Tensor, "*batch T M"], prior: Float[Tensor, "*batch T M"] | None = None
) -> Float[Tensor, "*batch T M"]:
    """w_m(t) ∝ w_m·Π_{s<t} p_m(y_s), summed in logarithms; where no member could have said the prefix, w_m."""
    before = torch.cat([torch.zeros_like(log_probs[..., :1, :]), log_probs[..., :-1, :].cumsum(-2)], -2)
    even = torch.zeros_like(before) if prior is None else prior.log()
    logits = before + even
    impossible = (logits == -torch.inf).all(-1, keepdim=True)
    return torch.where(impossible, even, logits).softmax(-1)


def dirichlet_score_rmi(chosen: Float[Tensor, "*batch"], rest: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """E[−ln π_y] + ln E[π_y] = ψ(α₀) − ψ(α_y) + ln(α_y/α₀) = h(a) − h(a + r), a = α_y, r = α₀ − α_y.

    h(a) = ln a − ψ(a) = 1/a − (ψ(a + 1) − ln a) falls like 1/2a. Where r is nothing beside a, the difference is
    −r·h′(x) at the middle, x = a + r/2, with −h′(x) = ψ₁(x) − 1/x = 1/x² − Q/(x·(1 + x)).
    """
    x = chosen + rest / 2
    u = (1 + x).reciprocal()
    near = rest * (1 / x - u * trigamma_deficit(u)) / x
    whole = chosen + rest
    far = (1 / chosen - digamma_excess(chosen)) - (1 / whole - digamma_excess(whole))
    return torch.where(rest < NEAR * chosen, near, far)
