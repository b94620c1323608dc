"""Connectionist temporal classification: the best path of frame-wise predictions."""

import torch
from jaxtyping import Shaped
from torch import Tensor

from solera.decoding.base import Hypotheses, log_probs_of
from solera.distributions.base import Prediction


@torch.no_grad()
def ctc(frames: Prediction, mask: Shaped[Tensor, "N T"] | None = None, blank: int = 0) -> Hypotheses:
    """The likeliest token of each frame `[N, T]`, repetitions merged, blanks left out.

    `log_probs` are those of this one path: the probability of the text, summed over its paths, is larger.
    """
    best = log_probs_of(frames).max(-1)
    counted = torch.ones_like(best.indices, dtype=torch.bool) if mask is None else mask.bool()
    path = best.indices.masked_fill(~counted, blank)
    before = torch.cat([torch.full_like(path[:, :1], blank), path[:, :-1]], -1)
    said = (path != blank) & (path != before)
    longest = int(said.sum(-1).max()) if said.numel() else 0
    place = torch.sort((~said).long(), dim=-1, stable=True).indices[:, :longest]
    kept = said.gather(-1, place).unsqueeze(1)
    tokens = path.gather(-1, place).unsqueeze(1).masked_fill(~kept, blank)
    log_probs = best.values.double().masked_fill(~counted, 0.0).sum(-1, keepdim=True)
    return Hypotheses(tokens, kept, log_probs, log_probs)
