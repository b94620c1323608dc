"""What a model may answer: one prediction per batch element.

Axes, everywhere in this library: `*batch` first (examples, tokens, decoding steps), then `M` members, then `K` classes.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

Ends = tuple[Float[Tensor, "*batch D"], Float[Tensor, "*batch D"]]  # of an interval: low, high


class Prediction(ABC):
    """A distribution over the answer y. Uncertainty is in nats (classes) or variance (continuous targets)."""

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "*batch K"]:
        """The probability of each class (or the expected value)."""

    @property
    @abstractmethod
    def total(self) -> Float[Tensor, "*batch"]:
        """All the uncertainty in the answer."""

    @abstractmethod
    def log_prob(self, y: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """ln p(y) of a class `[*batch]`, or the density at continuous targets `[*batch, D]` (`[*batch]` if D = 1)."""

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Where the central interval of probability `level` begins and ends, of continuous targets."""
        raise ValueError("classes have no order and so no interval: take the likeliest classes of mean")

    if not TYPE_CHECKING:  # for whoever asks a student of EnD for it

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # there is one, and it failed: by what it needs that is not there
                return object.__getattribute__(self, name)
            if name in ("data", "knowledge"):
                raise AttributeError(
                    f"a {type(self).__name__} has a total uncertainty but no {name} of its own: distil by a method "
                    "that keeps the split, such as ProxyDirichlet, EnD2, Hydra or NormalWishart"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class SecondOrder(Prediction):
    """A distribution over predictions: `total = data + knowledge`."""

    @property
    @abstractmethod
    def data(self) -> Float[Tensor, "*batch"]:
        """What would remain if we had seen everything: the input is ambiguous."""

    @property
    @abstractmethod
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """What more data would remove: we have not seen its like."""

    @property
    @abstractmethod
    def rmi(self) -> Float[Tensor, "*batch"]:
        """Reverse mutual information: how far the mean is from the predictions it averages."""

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """Expected pairwise KL divergence = knowledge + rmi."""
        return self.knowledge + self.rmi


def measures_of(prediction: Prediction) -> tuple[str, ...]:
    """What a prediction says, by name: an exported graph's outputs, a service's columns."""
    return ("mean", "total", "data", "knowledge") if isinstance(prediction, SecondOrder) else ("mean", "total")


class Targets(SecondOrder):
    """What a teacher said about a batch: every member's prediction, or a summary of them."""

    @property
    def family(self) -> Literal["categorical", "gaussian"]:
        """What the members predict: "categorical" (classes) or "gaussian" (continuous targets)."""
        return "categorical"

    @property
    def wrong(self) -> Bool[Tensor, "*batch M"] | None:
        """Which members say NaN; None of a summary."""
        return None

    members: Any  # the members' own predictions, member axis −2; a summary raises a ValueError that names the remedy
    averaged: Any  # the one prediction that they average to, where they have one
    weights: Float[Tensor, "*batch M"] | None  # how much each member counts, summing to one; None: all alike
