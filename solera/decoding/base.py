"""What every decoder works on: a step, `step(state, tokens) -> (prediction, state)`, and what it gives: hypotheses.

A step takes the last token of each row and a state (encoder outputs, key–value caches) and says what comes next. The
state is any nest of tuples, lists and dicts of tensors whose first axis is the rows, or an object with a method
`reorder(rows)`: decoders drop, repeat and exchange rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from solera.distributions.base import Prediction
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.mixture import Mixture

Step = Callable[[Any, Tensor], tuple[Prediction, Any]]


@dataclass(frozen=True)
class Hypotheses:
    """B sequences for each of N inputs, the best first; the end of sequence is their last token, if they came to it."""

    tokens: Int[Tensor, "N B L"]
    mask: Bool[Tensor, "N B L"]  # which tokens count
    log_probs: Float[Tensor, "N B"]  # Σ_t ln p(y_t), not divided by the length; −∞: there are fewer than B
    scores: Float[Tensor, "N B"]  # by which they are ordered

    def lists(self, end: int) -> list[list[list[int]]]:
        """The tokens without padding and without the end of sequence."""
        kept = self.mask & (self.tokens != end)
        return [[y[m].tolist() for y, m in zip(*row, strict=True)] for row in zip(self.tokens, kept, strict=True)]


def log_probs_of(prediction: Prediction) -> Float[Tensor, "*batch K"]:
    """ln p̄ of each class."""
    if isinstance(prediction, Categorical):
        return prediction.log_probs
    if isinstance(prediction, Mixture):
        return prediction.averaged.log_probs
    if isinstance(prediction, Dirichlet):
        return Categorical(prediction.logits).log_probs
    return prediction.mean.log()


def top_log_probs(prediction: Prediction, count: int) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """ln p̄ of the `count` likeliest classes, in float64, and which they are."""
    if isinstance(prediction, Categorical | Dirichlet):  # only what is asked for is normalised
        logits = prediction.logits
        best = logits.topk(min(count, logits.shape[-1]))
        return best.values.double() - logits.logsumexp(-1, keepdim=True).double(), best.indices
    log_probs = log_probs_of(prediction)
    best = log_probs.topk(min(count, log_probs.shape[-1]))
    return best.values.double(), best.indices


def reorder(state: Any, rows: Int[Tensor, "R"]) -> Any:
    """The state of these rows, in this order; a row may be left out or be there several times."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, dict):
        return {name: reorder(part, rows) for name, part in state.items()}
    if isinstance(state, list | tuple):
        parts = [reorder(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if hasattr(state, "reorder"):
        return state.reorder(rows)
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise ValueError(
        f"a decoder cannot choose rows of a state of type {type(state).__name__}: make it of tuples, lists, dicts and "
        "tensors, or give it a method reorder(rows)"
    )


def together(steps: Sequence[Step], average: Literal["probs", "log_probs"] = "probs") -> Step:
    """An ensemble as one step, whose state is the tuple of its members' states.

    "probs" gives the mixture p̄ = (1/M) Σ_m p_m with its members (for uncertainty along the way), "log_probs" the
    normalised geometric mean, which every member can veto.
    """
    if average not in ("probs", "log_probs"):
        raise ValueError(f"average must be 'probs' or 'log_probs', got {average!r}")
    if not steps:
        raise ValueError("an ensemble needs at least one step, got none")

    def step(states: Any, tokens: Tensor) -> tuple[Prediction, Any]:
        answers = [member(state, tokens) for member, state in zip(steps, states, strict=True)]
        said = torch.stack([log_probs_of(prediction) for prediction, _ in answers], -2)
        prediction = Mixture(Categorical(said)) if average == "probs" else Categorical(said.mean(-2))
        return prediction, tuple(state for _, state in answers)

    return step


def require_length(longest: int) -> None:
    """For the greatest number of tokens."""
    if longest < 1:
        raise ValueError(f"longest must be at least 1 token, got {longest}")


def walk(
    step: Step, state: Any, start: Int[Tensor, "R"], end: int, longest: int, choose: Callable[[Tensor], Tensor]
) -> tuple[Int[Tensor, "R L"], Bool[Tensor, "R L"], Float[Tensor, "R"]]:
    """One token after another, as `choose(log_probs)` says, until every row has come to its end."""
    require_length(longest)
    going = torch.arange(len(start), device=start.device)
    tokens, mask = start.new_full((len(start), longest), end), start.new_zeros((len(start), longest), dtype=torch.bool)
    total, last, length = torch.zeros(len(start), dtype=torch.double, device=start.device), start, 0
    while length < longest and len(going):
        prediction, state = step(state, last)
        log_probs = log_probs_of(prediction)
        last = choose(log_probs)
        total[going] += log_probs.gather(-1, last.unsqueeze(-1)).squeeze(-1).double()
        tokens[going, length], mask[going, length] = last, True
        length += 1
        rows = (last != end).nonzero().squeeze(-1)
        if len(rows) < len(going):
            going, last, state = going[rows], last[rows], reorder(state, rows)
    return tokens[:, :length], mask[:, :length], total
