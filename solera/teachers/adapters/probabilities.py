"""Checks that answers are probabilities, log-probabilities or logits, and takes their logarithm."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SUM_TOLERANCE = 1e-3
SMOOTHING = 1e-4  # what the EnD² paper smooths by


def first(wrong: Bool[Tensor, "*rows"], axes: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """Where the first wrong row is, as an index and in words: "example 3, member 1"."""
    row = tuple(wrong.nonzero()[0].tolist())
    named = [f"{axis} {place}" for axis, place in zip(axes, row, strict=False)]
    return row, ", ".join(named)


def shown(values: Float[Tensor, " K"]) -> str:
    """A row for an error message: all of it, or its beginning."""
    numbers = ", ".join(f"{v:.4g}" for v in values[:8].tolist())
    return f"[{numbers}{', ...' if len(values) > 8 else ''}]"


def require_rows(values: Float[Tensor, "*rows K"], who: str, axes: Sequence[str]) -> None:
    """Refuses what is not a number."""
    if values.isnan().any():
        _, place = first(values.isnan().any(-1), axes)
        raise ValueError(f"{who} hold NaN for {place}: every member must answer")


def require_sums(probabilities: Float[Tensor, "*rows K"], who: str, axes: Sequence[str]) -> None:
    """Refuses rows that do not sum to one."""
    sums = probabilities.detach().double().sum(-1)
    wrong = ~((sums - 1).abs() <= SUM_TOLERANCE)
    if wrong.any():
        row, place = first(wrong, axes)
        raise ValueError(
            f"{who} must sum to one over the classes: {place} sums to {sums[row]:.6g}: "
            "if they are logits, pass their softmax"
        )


def without_zeros(probabilities: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
    """A row with a 0 in it becomes (1 − γ)·p + γ/K: a forest says 0 and means "never among my trees", not "never"."""
    smoothed = (1 - SMOOTHING) * probabilities + SMOOTHING / probabilities.shape[-1]
    return torch.where((probabilities == 0).any(-1, keepdim=True), smoothed, probabilities)


def log_of_probabilities(
    values: Float[Tensor, "*rows K"], who: str, axes: Sequence[str] = ("row",)
) -> Float[Tensor, "*rows K"]:
    """ln p, finite; anything else is refused, with the row and the value."""
    require_rows(values, who, axes)
    if (values < 0).any():
        row, place = first((values < 0).any(-1), axes)
        raise ValueError(
            f"{who} are not probabilities: {place} is {shown(values[row])}: if they are logits, pass their softmax"
        )
    require_sums(values, who, axes)
    return without_zeros(values).log()


def log_probs_of_either(
    values: Float[Tensor, "*rows K"], who: str, axes: Sequence[str] = ("row",)
) -> Float[Tensor, "*rows K"]:
    """ln p of probabilities, or of log-probabilities: their signs and sums say which."""
    require_rows(values, who, axes)
    if (values >= 0).all():
        return log_of_probabilities(values, who, axes)
    if not (values <= 0).all():
        row, place = first((values < 0).any(-1), axes)
        raise ValueError(
            f"{who} are neither probabilities nor log-probabilities: {place} is {shown(values[row])}: "
            "if they are logits, pass their softmax"
        )
    require_sums(values.exp(), who, axes)
    impossible = (values == -math.inf).any(-1, keepdim=True)
    return torch.where(impossible, without_zeros(values.exp()).log(), values)


def require_logits(answer: Float[Tensor, "*rows K"], who: str) -> None:
    """Refuses probabilities where logits are meant: a softmax of a softmax would make every prediction nearly flat."""
    answer = answer.detach()
    if answer.shape[-1] < 2 or not len(answer) or (answer < 0).any():
        return
    if ((answer.double().sum(-1) - 1).abs() < 1e-4).all():
        raise ValueError(
            f"{who} should answer with logits, but every row sums to one (the first is "
            f"{shown(answer.flatten(0, -2)[0])}): if these are probabilities, wrap it: "
            "solera.teachers.adapters.Function(model, probabilities=True); if they are not, probabilities=False"
        )
