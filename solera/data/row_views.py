"""Views of rows `(examples, features)`."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.checks import require_fraction, require_positive
from solera.data.draws import Draws
from solera.data.table import MISSING, moments
from solera.data.view import View, require_like

MOST_JITTER = 0.5  # standard deviations: what moves a row further is no longer of its class


@dataclass(frozen=True, eq=False)
class _OfOtherRows(View):
    """Each feature comes from other rows, of a table, with probability `share`: the row is no longer of its class."""

    table: Float[Tensor, "N D"]
    share: float = 0.3

    def __post_init__(self) -> None:
        require_fraction("share", self.share)

    @property
    def keeps_class(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Resample(_OfOtherRows):
    """x′_d = t_d with probability `share`, else x_d; t_d is feature d of a row of the table drawn anew for each d.

    Values stay among those that the feature has (categories, counts); features no longer go together as they did.
    """

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        require_like(self.table, inputs)
        taken = draws.uniform(*inputs.shape) < self.share
        rows = draws.below(len(self.table), *inputs.shape)
        other = self.table.gather(0, rows).to(inputs)
        return torch.where(taken.to(inputs.device), other, inputs)


def _standardised(inputs: Tensor, table: Tensor) -> tuple[Float[Tensor, "B D"], Float[Tensor, "N D"]]:
    """Both in the standard deviations of the table's features."""
    deviation = table.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return (inputs / scale).float(), (table / scale).float()


def _distance(rows: Float[Tensor, "B D"], others: Float[Tensor, "N D"]) -> Float[Tensor, "B N"]:
    """Difference by difference: a row has the same distances whatever batch it is in."""
    return torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(frozen=True, eq=False)
class Munge(_OfOtherRows):
    """x′_d ~ N(n_d, (|x_d − n_d|/sharpness)²) with probability `share`, else x_d (MUNGE; Bucilă et al., 2006).

    n is the nearest row of the table, in standard deviations of each feature, that is not x itself: what goes with what
    is kept, more than by `Resample`.
    """

    share: float = 0.5
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("sharpness", self.sharpness)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        require_like(self.table, inputs)
        table = self.table.to(inputs)
        distance = _distance(*_standardised(inputs, table))
        nearest = table[distance.masked_fill(distance == 0, torch.inf).argmin(-1)]
        moved = nearest + (inputs - nearest).abs() / self.sharpness * draws.normal(*inputs.shape).to(inputs)
        return torch.where((draws.uniform(*inputs.shape) < self.share).to(inputs.device), moved, inputs)


@dataclass(frozen=True, eq=False)
class Gibbs(_OfOtherRows):
    """One sweep of a Gibbs sampler: x′_d = n_d with probability `share`, else x_d, for one feature d after another.

    n is one of the table's rows that are nearest to x′ in all features but d (in standard deviations): a draw from what
    feature d is where the others are as they are. The result is likelier than that of `Resample`, and less new.
    """

    neighbours: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("neighbours", self.neighbours)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        require_like(self.table, inputs)
        table = self.table.to(inputs)
        rows, others = _standardised(inputs, table)
        away = _distance(rows, others).square()
        count = min(self.neighbours, len(table))
        taken = (draws.uniform(*inputs.shape) < self.share).to(inputs.device)
        which = draws.below(count, *inputs.shape).to(inputs.device)
        seen = inputs.clone()
        for d, (mine, pick) in enumerate(zip(taken.unbind(1), which.split(1, 1), strict=True)):
            without = away - (rows[:, d, None] - others[:, d]).square()
            chosen = without.topk(count, largest=False).indices.gather(1, pick).squeeze(1)
            seen[:, d] = torch.where(mine, table[chosen, d], seen[:, d])
            rows[:, d] = torch.where(mine, others[chosen, d], rows[:, d])
            away = without + (rows[:, d, None] - others[:, d]).square()
        return seen


@dataclass(frozen=True, eq=False)
class Jitter(View):
    """x′_d = x_d + scale·s_d·z_d with z ~ N(0, 1) and s_d the standard deviation of feature d in the table.

    A scale of 2 leads off the table's range: there the student hears what the ensemble does not know. What is missing
    stays missing, and the columns in `words`, which hold numbers of words, stay as they are.
    """

    table: Float[Tensor, "N D"]
    scale: float = 0.1
    words: tuple[int, ...] = ()
    deviation: Float[Tensor, " D"] = field(init=False, repr=False)  # of each feature; 0 for words

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)
        deviation = moments(self.table)[1]
        deviation[list(self.words)] = 0.0
        object.__setattr__(self, "deviation", deviation)

    @property
    def keeps_class(self) -> bool:
        return self.scale <= MOST_JITTER

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        require_like(self.table, inputs)
        moved = inputs + self.scale * self.deviation.to(inputs) * draws.normal(*inputs.shape).to(inputs)
        return torch.where(inputs == MISSING, inputs, moved)
