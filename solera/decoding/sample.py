"""Sequences drawn from the model."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from solera.core.checks import require_positive
from solera.decoding.base import Hypotheses, Step, reorder, walk


@torch.no_grad()
def sample(
    step: Step,
    state: Any,
    start: Int[Tensor, "N"],
    end: int,
    longest: int,
    samples: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Hypotheses:
    """`samples` sequences for each row, each token drawn from p^{1/T}; `log_probs` are those of p itself, at T = 1."""
    require_positive("temperature", temperature)
    require_positive("samples", samples)
    rows = torch.arange(len(start), device=start.device).repeat_interleave(samples)

    def choose(log_probs: Tensor) -> Tensor:
        probs = (log_probs.double() / temperature).softmax(-1)
        return torch.multinomial(probs, 1, generator=generator).squeeze(-1)

    found = walk(step, reorder(state, rows), start[rows], end, longest, choose)
    tokens, mask, log_probs = (values.unflatten(0, (len(start), samples)) for values in found)
    return Hypotheses(tokens, mask, log_probs, log_probs)
