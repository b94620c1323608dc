"""What a view is: what is shown of an example, to the student and to its teacher alike.

Every view is a function (inputs, generator) → inputs of the same shape, for a batch. All random numbers come from the
generator; what is taken from other examples comes from a reference table, never from the rest of the batch, so the
view of an example does not hang on its neighbours.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from solera.core.checks import require_positive
from solera.data.draws import Draws, Fresh


class View(ABC):
    """A change of a batch's inputs by random numbers.

    Where it does not keep an example's class (or continuous target), what it changes loses its label (see `Augmented`):
    the teacher alone speaks for it.
    """

    of_real_numbers: ClassVar[bool] = True

    @property
    def keeps_class(self) -> bool:
        """Whether the label of an example is also that of its view."""
        return True

    def __call__(self, inputs: Shaped[Tensor, "B *rest"], draw: torch.Generator) -> Shaped[Tensor, "B *rest"]:
        """A random view of every example."""
        return self.seen(inputs, Fresh(draw))

    def seen(self, inputs: Tensor, draws: Draws) -> Tensor:
        """A random view of every example, by these random numbers."""
        if self.of_real_numbers and not inputs.is_floating_point():
            raise ValueError(
                f"{type(self).__name__} changes real numbers, the inputs are {inputs.dtype}: token ids and class "
                "numbers have no such views (texts have Reword); convert others by inputs.float(), or pass views=None"
            )
        return self.change(inputs, draws)

    @abstractmethod
    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        """The view itself."""


def require_like(table: Tensor, inputs: Tensor) -> None:
    """A reference table of another kind than the inputs is a ValueError."""
    if table.shape[1:] != inputs.shape[1:]:
        raise ValueError(
            f"the view's reference table holds examples of shape {tuple(table.shape[1:])}, the inputs are "
            f"{tuple(inputs.shape[1:])}: make the view from inputs of the same kind"
        )


def per_example(values: Tensor, inputs: Tensor) -> Tensor:
    """One number per example beside all of its inputs."""
    return values.to(inputs).reshape(-1, *[1] * (inputs.ndim - 1))


@dataclass(frozen=True, eq=False)
class Plain(View):
    """x′ = x."""

    of_real_numbers = False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        return inputs


@dataclass(frozen=True, eq=False)
class Blend(View):
    """x′ = a·x + (1 − a)·t with a ~ U(0, 1) and t another example of the table (mixup): rows or images."""

    table: Float[Tensor, "N *rest"]

    @property
    def keeps_class(self) -> bool:
        return False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        require_like(self.table, inputs)
        share = per_example(draws.uniform(len(inputs)), inputs)
        other = self.table[draws.below(len(self.table), len(inputs))].to(inputs)
        return share * inputs + (1 - share) * other


@dataclass(frozen=True, eq=False)
class Noise(View):
    """x′ = x + scale·z with z ~ N(0, 1), in the units of the inputs."""

    scale: float = 0.1

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        return inputs + self.scale * draws.normal(*inputs.shape).to(inputs)


class _Several(View):
    """Made of other views."""

    of_real_numbers = False

    def __init__(self, *views: View) -> None:
        self.views = views

    @property
    def keeps_class(self) -> bool:
        return all(view.keeps_class for view in self.views)


class InTurn(_Several):
    """One view after another: x′ = f_n(… f_1(x))."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        for view in self.views:
            inputs = view.seen(inputs, draws)
        return inputs


class OneOf(_Several):
    """One of these views of every example, each with the same probability."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        which = draws.below(len(self.views), len(inputs)).to(inputs.device)
        result = inputs
        for number, view in enumerate(self.views):
            mine = (which == number).reshape(-1, *[1] * (inputs.ndim - 1))
            result = torch.where(mine, view.seen(inputs, draws), result)
        return result
