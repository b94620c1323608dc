"""What a task is."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from solera.distributions.base import Prediction, SecondOrder
from solera.distributions.families import Family

Columns = dict[str, np.ndarray]  # one number per example, by name: what metrics eat
Row = dict[str, float | None]  # metrics, by name, in the order of a table


class Task(ABC):
    """What a target is, and what can be measured of a prediction of it."""

    family: ClassVar[Family]  # what one member says
    better: ClassVar[dict[str, int]]  # of every score: 1 if more is better, −1 if less is

    @abstractmethod
    def check(self, target: Shaped[Tensor, "..."], size: int) -> None:
        """Refuses targets that cannot be right for so many classes or dimensions; unlabelled ones pass."""

    @abstractmethod
    def labelled(self, target: Shaped[Tensor, "..."], axes: int) -> Bool[Tensor, "*batch"]:
        """Where there is a target at all; `axes` is the number of batch axes."""

    @abstractmethod
    def filled(self, target: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """The targets with something harmless where there is none."""

    @abstractmethod
    def columns(self, prediction: Prediction, target: Shaped[Tensor, "..."] | None = None) -> Columns:
        """What a prediction says about each example and, with targets, how wrong it is."""

    @abstractmethod
    def compare(self, prediction: Prediction, reference: Prediction) -> Columns:
        """How far a prediction is from another one, example by example."""

    @abstractmethod
    def error(self, columns: Columns) -> np.ndarray:
        """What rejecting an example saves: 0 or 1 (wrong), or a squared error."""

    @abstractmethod
    def scores(self, columns: Columns) -> Row:
        """The metrics of a labelled test set, from its columns alone: so they can be had of any part of it."""


def uncertainties(prediction: Prediction) -> dict[str, Tensor]:
    """`total` and, where they exist, `data` and `knowledge`."""
    found = {"total": prediction.total}
    if isinstance(prediction, SecondOrder):
        found |= {"data": prediction.data, "knowledge": prediction.knowledge}
    return found


def as_columns(found: dict[str, Tensor]) -> Columns:
    """Plain arrays."""
    return {name: column.detach().cpu().numpy() for name, column in found.items()}
