"""What a task is: the owner of targets, from raw examples to the margins of a verdict."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from solera.data import Batch, read_pair, require_sound
from solera.distributions.base import Prediction, SecondOrder
from solera.distributions.families import Family, family_named

Columns = dict[str, np.ndarray]  # one number per element (example, token), by name: what metrics eat
Row = dict[str, float | None]  # metrics, by name, in the order of a table


@dataclass(frozen=True)
class Score:
    """A metric of the table: its name, which way is better (1: more, −1: less, 0: neither), and what it means."""

    name: str
    better: int
    help: str
    percent: bool = False  # a share, shown in per cent
    inflated: bool = False  # by chance, the more the fewer elements: a mean of absolute values


@dataclass(frozen=True)
class Margin:
    """By how much a student may be worse than its ensemble in a score and still have kept `what`."""

    what: str
    score: str
    most: float
    relative: bool = False  # `most` is a share of the ensemble's score
    column: str = ""  # where the score is a share: the true/false column that it is the mean of


@dataclass(frozen=True)
class ErrorKind:
    """What an error is called, whether it is a share, and which errors a user may want to stay below."""

    name: str
    percent: bool
    wanted: tuple[float, ...]
    relative: bool = False  # the wanted errors are shares of the error without rejection
    units: str = "inputs"  # what is kept or rejected


@dataclass(frozen=True)
class Figure:
    """One picture of how good a model's distributions are; the report draws it for all models, or for the chosen one.

    A `line` may say which share of the elements each point stands for; `bars` stand between the edges `x`.
    """

    name: str
    title: str
    caption: str
    kind: Literal["line", "bars", "points"]
    x: np.ndarray
    y: np.ndarray
    axes: tuple[str, str]
    hover: str  # in plotly's words
    percent: tuple[bool, bool] = (False, False)
    share: np.ndarray | None = None
    guide: Literal["diagonal", "even", "none"] = "none"  # where the points of a perfect model lie


class Task(ABC):
    """What a target is, and what can be measured of a prediction of it. Frozen dataclasses: fields are settings."""

    name: ClassVar[str]  # in files and on the command line
    family: ClassVar[Family]  # what one member says
    table: ClassVar[tuple[Score, ...]]  # what `scores` and `likeness` give
    margins: ClassVar[tuple[Margin, ...]]  # what the verdict judges
    shifted: ClassVar[tuple[str, ...]]  # the scores that other labelled sets get, too
    beside: ClassVar[tuple[str, ...]]  # the columns that `compare` gives
    detects: ClassVar[tuple[str, ...]] = ("total", "knowledge")  # the columns by which unfamiliar sets are told
    errors: ClassVar[ErrorKind]
    doubts: ClassVar[tuple[str, ...]] = ()  # columns that `rejected` has beside uncertainties, to reject by
    one_class: ClassVar[bool] = False  # whether a target is one class, and its loss −ln of that class's probability
    question: ClassVar[str]  # that the figures answer

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Task":
        """The task with these settings, as JSON has them."""
        return cls(**settings)

    def batch(self, raw: Any, index: Tensor) -> Batch:
        """What a collate function made of raw examples, as inputs, targets and weights; padding gets weight 0."""
        return read_pair(raw, index)

    def prepared(self, data: Any, models: Mapping[str, Any]) -> Any:
        """Data as people hold them for this task alone (sentences), as arrays or batches that these models take."""
        return data

    def check(self, batch: Batch, size: int) -> None:
        """Refuses inputs that are not finite, weights that are none, and targets that cannot be right for so many
        classes or dimensions."""
        require_sound(batch)
        if batch.target is not None:
            self.check_target(batch, size)

    @abstractmethod
    def check_target(self, batch: Batch, size: int) -> None:
        """Refuses targets that cannot be right, by the example; unlabelled ones pass."""

    @abstractmethod
    def outputs(self, target: Shaped[Tensor, "..."], size: int) -> int:
        """How many outputs a network needs for such targets; `size` is how many it has."""

    @abstractmethod
    def labelled(self, batch: Batch, axes: int | None = None) -> Bool[Tensor, "*batch"]:
        """Where there is a target at all; `axes` is the number of batch axes, where the batch does not tell."""

    @abstractmethod
    def filled(self, target: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """The targets with something harmless where there is none."""

    def mask(self, batch: Batch, shape: Sequence[int]) -> Bool[Tensor, "*batch"]:
        """Which elements, `shape` of them, count: those with a weight and, where the batch has targets, with one."""
        counts = torch.ones(*shape, dtype=torch.bool) if batch.weight is None else batch.weight.cpu() > 0
        counts = counts.reshape(*counts.shape, *[1] * (len(shape) - counts.ndim)).expand(*shape)
        return counts if batch.target is None else counts & self.labelled(batch, len(shape)).cpu()

    def weight(self, batch: Batch, shape: Sequence[int]) -> Float[Tensor, "*batch"] | None:
        """How much each element counts; None: all that count at all count alike."""
        if batch.weight is None:
            return None
        weight = batch.weight.cpu().double()
        return weight.reshape(*weight.shape, *[1] * (len(shape) - weight.ndim)).expand(*shape)

    def element_target(self, batch: Batch) -> Shaped[Tensor, "..."] | None:
        """The targets as an evaluation keeps them, one for each element; None: there are none."""
        return batch.target

    def label_loss(
        self, network: nn.Module, prediction: Prediction, batch: Batch, smoothing: float = 0.0
    ) -> Float[Tensor, "*batch"]:
        """−ln p(y), 0 where there is no target.

        A network with a likelihood of its own (CRF, CTC) is asked for it: its `label_loss(batch)`, unless that is None.
        """
        assert batch.target is not None
        own = network.label_loss(batch) if hasattr(network, "label_loss") else None  # type: ignore[operator]
        if own is not None:
            if smoothing:
                raise ValueError(
                    f"label_smoothing={smoothing} is for independent labels, and this {type(network).__name__} has a "
                    "likelihood of its own: pass label_smoothing=0"
                )
            return own
        loss = -prediction.log_prob(self.filled(batch.target))
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * self.smooth(prediction)
        return torch.where(self.labelled(batch, loss.ndim), loss, torch.zeros_like(loss))

    def smooth(self, prediction: Prediction) -> Float[Tensor, "*batch"]:
        """The loss against targets that could be anything, for label smoothing."""
        raise ValueError(f"label_smoothing is for classes, not for {self.name}: pass label_smoothing=0")

    def of_member(self, output: Any) -> Prediction:
        """What a member's raw output says."""
        return family_named(self.family).from_output(output)

    def recalibrated(self, prediction: Prediction, spread: Float[Tensor, " examples"]) -> Prediction | None:
        """A prediction made less sure (spread > 1) or surer (< 1), by a number for each example; None: there is no way.

        So that a verdict can say what calibration alone would give a single model.
        """
        return None

    @abstractmethod
    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """What a prediction says about each element `[*batch]` and, where the batch has targets, how wrong it is.

        Always `total` and, where they exist, `data` and `knowledge` (see `uncertainties`).
        """

    @abstractmethod
    def compare(self, prediction: Prediction, reference: Prediction) -> dict[str, Tensor | np.ndarray]:
        """How far a prediction is from another one, element by element: the columns that `beside` names."""

    @abstractmethod
    def likeness(self, columns: Columns) -> Row:
        """How close a model is to the reference, from the columns that `compare` gave."""

    def stands_in(self, likeness: Row) -> bool:
        """Whether a model that is so like its reference can stand in for it; where there is no rule, it can."""
        return True

    def rejected(self, columns: Columns) -> Columns:
        """The columns of what is kept or rejected one by one: the elements, or (entities) what they make up."""
        return columns

    @abstractmethod
    def error(self, columns: Columns) -> np.ndarray:
        """What rejecting an element saves: 0 or 1 (wrong), or a squared error."""

    @abstractmethod
    def scores(self, columns: Columns) -> Row:
        """The metrics of a labelled set, from its columns alone: so they can be had of any part of it."""

    @abstractmethod
    def overconfident(self, columns: Columns) -> bool:
        """Whether the model is far more confident than it is accurate."""

    @abstractmethod
    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        """The pictures of one model on the labelled test set."""

    @abstractmethod
    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        """What a prediction says about each of its examples (first axis), as a report shows it.

        `top`: the likeliest classes and their probabilities; or `mean`, `low` and `high`; of a sequence, `tokens`.
        """

    def label(self, target: Any, names: Sequence[str] | None) -> Any:
        """A target as a report shows it."""
        return target if np.ndim(target) == 0 else [self.label(one, names) for one in target]


def uncertainties(prediction: Prediction) -> dict[str, Tensor]:
    """`total` and, where they exist, `data` and `knowledge`."""
    found = {"total": prediction.total}
    if isinstance(prediction, SecondOrder):
        found |= {"data": prediction.data, "knowledge": prediction.knowledge}
    return found


def beside_examples(spread: Float[Tensor, " examples"], values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """One number for each example, so that it stands beside all numbers of that example."""
    return spread.to(values).reshape(-1, *[1] * (values.ndim - 1))


def mean_of(columns: Columns, name: str) -> float:
    """The mean of a column, weighted where the elements have weights."""
    return float(np.average(columns[name].astype(np.float64), axis=0, weights=columns.get("weight")).mean())
