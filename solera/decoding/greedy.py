"""The likeliest token at every step."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from solera.decoding.base import Hypotheses, Step, walk


@torch.no_grad()
def greedy(step: Step, state: Any, start: Int[Tensor, "N"], end: int, longest: int) -> Hypotheses:
    """One hypothesis for each row of `start` (its first token, not part of the answer), of at most `longest` tokens."""
    tokens, mask, log_probs = walk(step, state, start, end, longest, lambda log_probs: log_probs.argmax(-1))
    total = log_probs.unsqueeze(-1)
    return Hypotheses(tokens.unsqueeze(1), mask.unsqueeze(1), total, total)
