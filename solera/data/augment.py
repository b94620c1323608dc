"""Named views: what is shown of an example, to the student and to its teacher alike.

Every view is a function (inputs, generator) → inputs of the same shape, for a batch. All random numbers come from the
generator; what is taken from other examples comes from a reference table, never from the rest of the batch, so the
view of an example does not hang on its neighbours.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from solera.core.checks import require_fraction, require_positive
from solera.data.draws import Draws, Fresh

MOST_JITTER = 0.5  # standard deviations: what moves a row further is no longer of its class


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


def _rows_of(table: Tensor, inputs: Tensor, rows: Int[Tensor, " B"]) -> Tensor:
    """Some rows of the reference table, once it is of the inputs' kind."""
    _require_like(table, inputs)
    return table[rows].to(inputs)


def _require_like(table: Tensor, inputs: Tensor) -> None:
    if table.shape[1:] != inputs.shape[1:]:
        raise ValueError(
            f"the view's reference table holds examples of shape {tuple(table.shape[1:])}, the inputs are "
            f"{tuple(inputs.shape[1:])}: make the view from inputs of the same kind"
        )


def _per_example(values: Tensor, inputs: Tensor) -> Tensor:
    """One number per example beside all of its inputs."""
    return values.to(inputs).reshape(-1, *[1] * (inputs.ndim - 1))


@dataclass(frozen=True, eq=False)
class Plain(View):
    """x′ = x."""

    of_real_numbers = False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        return inputs


@dataclass(frozen=True, eq=False)
class Resample(View):
    """x′_d = t_d with probability `share`, else x_d; t_d is feature d of another row of the table for every d.

    Values stay among those that the feature has (categories, counts); what goes with what is broken up.
    """

    table: Float[Tensor, "N D"]
    share: float = 0.3

    def __post_init__(self) -> None:
        require_fraction("share", self.share)

    @property
    def keeps_class(self) -> bool:
        return False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_like(self.table, inputs)
        taken = draws.uniform(*inputs.shape) < self.share
        rows = draws.below(len(self.table), *inputs.shape)
        other = self.table.gather(0, rows).to(inputs)
        return torch.where(taken.to(inputs.device), other, inputs)


@dataclass(frozen=True, eq=False)
class Munge(View):
    """x′_d ~ N(n_d, (|x_d − n_d|/sharpness)²) with probability `share`, else x_d (MUNGE; Bucilă et al., 2006).

    n is the nearest row of the table, in standard deviations of each feature, that is not x itself: what goes with what
    is kept, more than by `Resample`.
    """

    table: Float[Tensor, "N D"]
    share: float = 0.5
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        require_fraction("share", self.share)
        require_positive("sharpness", self.sharpness)

    @property
    def keeps_class(self) -> bool:
        return False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_like(self.table, inputs)
        table = self.table.to(inputs)
        deviation = table.std(0, correction=0)
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        rows, others = ((values / scale).float() for values in (inputs, table))
        distance = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = table[distance.masked_fill(distance == 0, torch.inf).argmin(-1)]
        moved = nearest + (inputs - nearest).abs() / self.sharpness * draws.normal(*inputs.shape).to(inputs)
        return torch.where((draws.uniform(*inputs.shape) < self.share).to(inputs.device), moved, inputs)


@dataclass(frozen=True, eq=False)
class Jitter(View):
    """x′_d = x_d + scale·s_d·z_d with z ~ N(0, 1) and s_d the standard deviation of feature d in the table.

    A scale of 2 leads off the table's range: there the student hears what the ensemble does not know.
    """

    table: Float[Tensor, "N D"]
    scale: float = 0.1

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    @property
    def keeps_class(self) -> bool:
        return self.scale <= MOST_JITTER

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_like(self.table, inputs)
        deviation = self.table.double().std(0, correction=0).to(inputs)
        return inputs + self.scale * deviation * draws.normal(*inputs.shape).to(inputs)


@dataclass(frozen=True, eq=False)
class Blend(View):
    """x′ = a·x + (1 − a)·t with a ~ U(0, 1) and t another example of the table (mixup): rows or images."""

    table: Float[Tensor, "N *rest"]

    @property
    def keeps_class(self) -> bool:
        return False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        share = _per_example(draws.uniform(len(inputs)), inputs)
        other = _rows_of(self.table, inputs, draws.below(len(self.table), len(inputs)))
        return share * inputs + (1 - share) * other


@dataclass(frozen=True, eq=False)
class Noise(View):
    """x′ = x + scale·z with z ~ N(0, 1), in the units of the inputs."""

    scale: float = 0.1

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        return inputs + self.scale * draws.normal(*inputs.shape).to(inputs)


def _require_images(view: View, inputs: Tensor) -> None:
    if inputs.ndim != 4:
        raise ValueError(
            f"{type(view).__name__} takes images (examples, channels, height, width), got inputs of shape "
            f"{tuple(inputs.shape)}: for rows there are Resample, Jitter and Blend"
        )


def _moved(images: Tensor, pixels: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """x′[h, w] = x[h + a, w + b] with a, b uniform in −pixels … pixels, edges repeated; and where that is inside."""
    by = draws.below(2 * pixels + 1, len(images), 2).to(images.device) - pixels
    height, width = images.shape[-2:]
    down = torch.arange(height, device=images.device) + by[:, :1]
    right = torch.arange(width, device=images.device) + by[:, 1:]
    inside = ((down >= 0) & (down < height))[:, None, :, None] & ((right >= 0) & (right < width))[:, None, None, :]
    down = down.clamp(0, height - 1)[:, None, :, None].expand(-1, images.shape[1], -1, width)
    right = right.clamp(0, width - 1)[:, None, None, :].expand(-1, images.shape[1], height, -1)
    return images.gather(2, down).gather(3, right), inside


@dataclass(frozen=True, eq=False)
class Shift(View):
    """x′[h, w] = x[h + a, w + b] with a and b uniform in −pixels … pixels, 0 where that is outside."""

    pixels: int = 2

    def __post_init__(self) -> None:
        require_positive("pixels", self.pixels)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        moved, inside = _moved(inputs, self.pixels, draws)
        return torch.where(inside, moved, torch.zeros((), dtype=inputs.dtype, device=inputs.device))


@dataclass(frozen=True, eq=False)
class Crop(View):
    """Padded by `pixels` on all sides, the edges repeated, and cut to the old size at a random place."""

    pixels: int = 2

    def __post_init__(self) -> None:
        require_positive("pixels", self.pixels)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        return _moved(inputs, self.pixels, draws)[0]


@dataclass(frozen=True, eq=False)
class Flip(View):
    """Left and right exchanged in every second image, at random: not for digits or letters."""

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        _require_images(self, inputs)
        return torch.where(_per_example(draws.uniform(len(inputs)), inputs) < 0.5, inputs.flip(-1), inputs)


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
