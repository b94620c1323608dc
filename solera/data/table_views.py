"""Views of the rows of a table: words stay words, and what is missing stays missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.checks import require_positive
from solera.data.augment import OneOf, View
from solera.data.auto_views import default_views
from solera.data.draws import Draws
from solera.data.table import MISSING


def moments(numbers: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Mean and standard deviation of every column, in float64, over the rows where it is not missing."""
    values = numbers.double()
    there = values != MISSING
    count = there.sum(0).clamp(min=1)
    mean = torch.where(there, values, 0.0).sum(0) / count
    return mean, (torch.where(there, values - mean, 0.0).square().sum(0) / count).sqrt()


@dataclass(frozen=True, eq=False)
class TableJitter(View):
    """x′_d = x_d + scale·s_d·z_d with z ~ N(0, 1) for every number that is not missing; s_d is its deviation."""

    deviation: Float[Tensor, " D"]  # 0 for columns of words
    scale: float = 2.0

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    @property
    def keeps_class(self) -> bool:
        return False

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        moved = inputs + self.scale * self.deviation.to(inputs) * draws.normal(*inputs.shape).to(inputs)
        return torch.where(inputs == MISSING, inputs, moved)


def table_views(rows: Float[Tensor, "N D"], categories: Sequence[int], continuous: bool) -> View | None:
    """What `default_views` gives for rows, of a table whose columns know so many words (0: they hold numbers)."""
    plain = default_views(rows)
    if not continuous or not isinstance(plain, OneOf):
        return plain
    numbers = torch.tensor([size == 0 for size in categories])
    deviation = torch.where(numbers, moments(rows)[1], 0.0)
    return OneOf(*plain.views, *plain.views, TableJitter(deviation.float()))
