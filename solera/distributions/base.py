"""What a model may answer: one prediction per batch element.

Axes, everywhere in this library: `*batch` first (examples, tokens, decoding steps), then `M` members, then `K` classes.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal

from jaxtyping import Float, Shaped
from torch import Tensor


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


class Targets(SecondOrder):
    """What a teacher said about a batch: every member's prediction, or a summary of them."""

    @property
    def family(self) -> Literal["categorical", "gaussian"]:
        """What the members predict: "categorical" (classes) or "gaussian" (continuous targets)."""
        return "categorical"

    members: Any  # the members' own predictions, member axis −2; a summary raises a ValueError that names the remedy
    weights: Float[Tensor, "*batch M"] | None  # how much each member counts, summing to one; None: all alike
