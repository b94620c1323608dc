"""Checks of what users pass in: the thing, the value and the remedy in one sentence."""

from torch import Tensor


def require_positive(name: str, value: float) -> None:
    """For temperatures, rates and steps."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}: choose a value above 0")


def require_fraction(name: str, value: float) -> None:
    """For shares and mixing weights."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def require_finite(name: str, values: Tensor) -> None:
    """For inputs and predictions: names the first row that holds a NaN or an infinity."""
    if values.is_floating_point() and not values.isfinite().all():
        position = (~values.isfinite()).nonzero()[0].tolist()
        value = values[tuple(position)].item()
        raise ValueError(f"{name} hold {value} at {position}: drop or impute such rows before you pass them")


def require_finite_loss(loss: Tensor, logits: Tensor, remedy: str) -> Tensor:
    """The loss, if all of it is finite; otherwise names the first element that is not, and its largest logit."""
    if not loss.isfinite().all():
        position = (~loss.isfinite()).nonzero()[0].tolist()
        largest = logits.detach().amax(-1)[tuple(position)].item()
        raise ValueError(f"the loss is {loss[tuple(position)].item()} at {position}, largest logit {largest}: {remedy}")
    return loss


def require_labels(name: str, labels: Tensor, classes: int) -> None:
    """For class labels: whole numbers from 0 to K − 1."""
    if labels.is_floating_point():
        raise ValueError(f"{name} must be whole numbers (0 to {classes - 1}), got {labels.dtype}: call .long() on them")
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        position = wrong[0].tolist()
        raise ValueError(
            f"{name} must lie between 0 and {classes - 1} for {classes} classes, got {labels[tuple(position)].item()} "
            f"at {position}: renumber the labels, or give the network more outputs"
        )
