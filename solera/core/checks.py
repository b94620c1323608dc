"""Checks of what users pass in: the thing, the value and the remedy in one sentence."""

import math
from collections.abc import Mapping

from jaxtyping import Int
from torch import Tensor

from solera.core.errors import DivergedError


def require_positive(name: str, value: float) -> None:
    """For temperatures, rates and steps."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value}: choose a finite value above 0")


def require_fraction(name: str, value: float) -> None:
    """For shares and mixing weights."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def _place(wrong: Tensor, index: Int[Tensor, " B"] | None) -> tuple[tuple[int, ...], str]:
    """The first place where something is wrong, and how to say it: by the example, where it is known which it is."""
    place: tuple[int, ...] = tuple(wrong.nonzero()[0].tolist())
    if index is None or len(place) == 0:
        return place, f"at {list(place)}"
    inside = f", at {list(place[1:])}" if len(place) > 1 else ""
    return place, f"in example {int(index[place[0]])}{inside}"


def require_finite(name: str, values: Tensor, index: Int[Tensor, " B"] | None = None) -> None:
    """For inputs and predictions: names the first place that holds a NaN or an infinity, by its example's index."""
    if not values.is_floating_point() or math.isfinite(values.sum().item()):
        return  # a sum is finite only if all its terms are; it may still overflow over finite ones
    if values.isfinite().all():
        return
    place, where = _place(~values.isfinite(), index)
    value = values[place].item()
    raise ValueError(f"{name} hold {value} {where}: drop or impute such rows before you pass them")


def require_example_weights(weight: Tensor, index: Int[Tensor, " B"]) -> None:
    """For how much examples or tokens count: finite numbers from 0 on."""
    if not weight.numel() or (weight.min() >= 0 and weight.max() < math.inf):
        return  # the least of numbers with a NaN among them is NaN
    place, where = _place(~((weight >= 0) & (weight < math.inf)), index)
    raise ValueError(
        f"weight must be finite and not negative, got {weight[place].item()} {where}: give an example that must not "
        "count the weight 0"
    )


def first_not_finite(weights: Mapping[str, Tensor]) -> str | None:
    """The name of the first weight that holds a NaN or an infinity; None if all are finite."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return name
    return None


def require_finite_weights(weights: Mapping[str, Tensor], what: str, remedy: str) -> None:
    """For networks that are kept: one that holds a NaN or an infinity answers with nothing else."""
    if (name := first_not_finite(weights)) is not None:
        raise DivergedError(f"{what}: {name} is not finite: {remedy}")


def require_several_classes(classes: int) -> None:
    """Of a single class everybody is always certain: there is nothing to learn, and its uncertainties are 0/0."""
    if classes < 2:
        raise ValueError(
            f"there must be at least two classes, got {classes}: for yes or no give the network two outputs, for a "
            "continuous target pass floating-point targets"
        )


def require_finite_loss(loss: Tensor, logits: Tensor, remedy: str) -> Tensor:
    """The loss, if all of it is finite; otherwise names the first element that is not, and its largest logit."""
    if not loss.isfinite().all():
        position = (~loss.isfinite()).nonzero()[0].tolist()
        largest = logits.detach().amax(-1)[tuple(position)].item()
        value = loss[tuple(position)].item()
        raise DivergedError(f"the loss is {value} at {position}, where the largest logit is {largest:.4g}: {remedy}")
    return loss


def require_members(logits: Tensor, members: Tensor) -> None:
    """For losses: the members' logits [*batch, M, K] beside the student's [*batch, K]."""
    if members.ndim < 2 or (*members.shape[:-2], members.shape[-1]) != tuple(logits.shape):
        raise ValueError(
            f"members of shape {tuple(members.shape)} do not belong to logits of shape {tuple(logits.shape)}: they are "
            "[*batch, M, K] beside [*batch, K], with the axis of the members before that of the classes"
        )


def require_labels(name: str, labels: Tensor, classes: int, index: Int[Tensor, " B"] | None = None) -> None:
    """For class labels: whole numbers from 0 to K − 1."""
    if labels.is_floating_point():
        raise ValueError(f"{name} must be whole numbers (0 to {classes - 1}), got {labels.dtype}: call .long() on them")
    if not labels.numel() or (labels.min() >= 0 and labels.max() < classes):
        return
    place, where = _place((labels < 0) | (labels >= classes), index)
    raise ValueError(
        f"{name} must lie between 0 and {classes - 1} for {classes} classes, got {labels[place].item()} {where}: "
        "renumber the labels, or give the network more outputs"
    )
