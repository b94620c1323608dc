"""Beam search with a length penalty, batched; the same answers as transformers gives."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from solera.decoding.base import Hypotheses, Step, reorder, require_length, top_log_probs


@dataclass(frozen=True)
class _Beams:
    """Hypotheses of some rows: tokens `[N, B, L]`, how many of them count `[N, B]`, and ln P `[N, B]`."""

    tokens: Tensor
    lengths: Tensor
    log_probs: Tensor

    def take(self, chosen: Int[Tensor, "N C"]) -> "_Beams":
        tokens = self.tokens.gather(1, chosen.unsqueeze(-1).expand(-1, -1, self.tokens.shape[-1]))
        return _Beams(tokens, self.lengths.gather(1, chosen), self.log_probs.gather(1, chosen))

    def rows(self, rows: Tensor) -> "_Beams":
        return _Beams(self.tokens[rows], self.lengths[rows], self.log_probs[rows])

    def put(self, rows: Tensor, others: "_Beams") -> None:
        self.tokens[rows], self.lengths[rows], self.log_probs[rows] = others.tokens, others.lengths, others.log_probs

    def scores(self, penalty: float) -> Tensor:
        return self.log_probs / self.lengths.clamp(min=1).double() ** penalty

    def best(self, count: int, penalty: float) -> "_Beams":
        return self.take(self.scores(penalty).topk(count).indices)

    def beside(self, other: "_Beams") -> "_Beams":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Beams(*(torch.cat(pair, 1) for pair in pairs))


def _continued(open_beams: _Beams, log_probs: Tensor, classes: Tensor, count: int) -> tuple[_Beams, Tensor]:
    """The `count` likeliest one token longer, of the likeliest tokens of each beam `[N, B, C]`; and their beams."""
    sums = (open_beams.log_probs.unsqueeze(-1) + log_probs).flatten(1)
    best, place = sums.topk(min(count, sums.shape[1]))
    origins = place // classes.shape[-1]
    candidates = open_beams.take(origins)
    tokens = classes.flatten(1).gather(1, place)
    candidates.tokens.scatter_(-1, candidates.lengths.unsqueeze(-1), tokens.unsqueeze(-1))
    return _Beams(candidates.tokens, candidates.lengths + 1, best), origins


def _split(candidates: _Beams, ended: Tensor, beams: int) -> tuple[_Beams, Tensor, _Beams]:
    """The open ones to go on with (and their places), and the ended among the best `beams`; −∞ where there is none."""
    still = candidates.log_probs.masked_fill(ended, -torch.inf)
    places = still.topk(min(beams, still.shape[1])).indices
    open_beams = candidates.take(places)
    open_beams = _Beams(open_beams.tokens, open_beams.lengths, still.gather(1, places))
    closed = candidates.log_probs.masked_fill(~ended, -torch.inf)[:, :beams]
    return open_beams, places, _Beams(candidates.tokens[:, :beams], candidates.lengths[:, :beams], closed)


def _hypotheses(found: _Beams, end: int, length_penalty: float) -> Hypotheses:
    exists = found.log_probs.isfinite()
    lengths = found.lengths * exists
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(-1)
    tokens = found.tokens[..., : mask.shape[-1]].masked_fill(~mask, end)
    return Hypotheses(tokens, mask, found.log_probs, found.scores(length_penalty))


@torch.no_grad()
def beam(
    step: Step,
    state: Any,
    start: Int[Tensor, "N"],
    end: int,
    longest: int,
    beams: int = 5,
    length_penalty: float = 1.0,
    early: bool = False,
) -> Hypotheses:
    """The `beams` best hypotheses for each row of `start`, of at most `longest` tokens, by ln P(y)/|y|^penalty.

    |y| counts the end of sequence. A row is done when nothing open can become better than its worst finished one; with
    `early`, when nothing open is better at its present length, as is usual elsewhere (and wrong at times).
    """
    require_length(longest)
    if beams < 1:
        raise ValueError(f"beams must be at least 1, got {beams}")
    found = _Beams(
        start.new_full((len(start), beams, longest), end),
        start.new_zeros(len(start), beams),
        torch.full((len(start), beams), -torch.inf, dtype=torch.double, device=start.device),
    )
    rows = torch.arange(len(start), device=start.device)  # those that are not done
    current = _Beams(found.tokens[:, :1], found.lengths[:, :1], torch.zeros_like(found.log_probs[:, :1]))
    last = start
    for length in range(1, longest + 1):
        prediction, state = step(state, last)
        likely = [part.unflatten(0, (len(rows), -1)) for part in top_log_probs(prediction, 2 * beams)]
        candidates, origins = _continued(current, *likely, 2 * beams)
        ended = (candidates.tokens[..., length - 1] == end) | (length == longest)
        current, places, closed = _split(candidates, ended, beams)
        finished = found.rows(rows).beside(closed).best(beams, length_penalty)
        found.put(rows, finished)
        bound = longest if length_penalty > 0 and not early else length
        hope = current.log_probs[:, 0] / bound**length_penalty
        alive = ((hope > finished.scores(length_penalty)[:, -1]) & hope.isfinite()).nonzero().squeeze(-1)
        if not len(alive):
            break
        firsts = likely[0].shape[1] * torch.arange(len(rows), device=start.device).unsqueeze(-1)
        state = reorder(state, (firsts + origins.gather(1, places))[alive].flatten())
        rows, current = rows[alive], current.rows(alive)
        last = current.tokens[..., length - 1].flatten()
    return _hypotheses(found, end, length_penalty)
