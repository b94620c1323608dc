"""Numbers as trees see them: by the pieces of their range."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

SMALLEST = 1e-6  # the shortest piece, in the units of standardised features
FEWEST = 4  # values of a feature: with no more of them it is left as it is
COMMON = 0.2  # of all values: from this share on, one value is common
ENOUGH = 100_000  # rows by which that is told, spread evenly over all of them


class PiecewiseLinear(nn.Module):
    """Features and, beside them, how much of each of their pieces lies below them: 0 to 1, linear within the piece.

    `pieces[d]` is into how many pieces the range of feature d is cut; 0: not at all. The first linear layer of a
    network can then bend at every edge, nearly as sharply as a tree does (piecewise-linear encoding, Gorishniy et al.,
    2022).
    """

    start: Tensor
    length: Tensor
    column: Tensor

    def __init__(self, pieces: Sequence[int]) -> None:
        super().__init__()
        if wrong := [number for number in pieces if number < 0]:
            raise ValueError(f"a feature has {wrong[0]} pieces: pass how many, 0 for none")
        self.pieces = list(pieces)
        self.outputs = len(self.pieces) + sum(self.pieces)
        self.register_buffer("start", torch.zeros(sum(self.pieces)))
        self.register_buffer("length", torch.ones(sum(self.pieces)))
        column = torch.zeros(sum(self.pieces), dtype=torch.long)
        if column.device.type != "meta":  # a sketch has no numbers
            for place, part in enumerate(column.split(self.pieces)):
                part.fill_(place)
        self.register_buffer("column", column, persistent=False)  # it follows from the pieces

    def learn(self, edges: Sequence[Tensor]) -> None:
        """Takes the edges of every feature's pieces."""
        self.start.copy_(torch.cat([each[:-1] for each in edges]))
        self.length.copy_(torch.cat([each.diff() for each in edges]))

    def forward(self, features: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch F"]:
        below = (features.index_select(-1, self.column) - self.start) / self.length
        return torch.cat([features, below.clamp(0, 1)], -1)


def worth_cutting(values: Float[Tensor, " N"]) -> bool:
    """Whether a feature has one common value and some others: a sum that most people do not have, a pixel mostly black.

    No mean and scale serves such a feature. A smooth one is served by them: cut into pieces, it brings a student no
    nearer to its ensemble on familiar inputs, and further from it on unfamiliar ones.
    """
    counts = _some(values).unique(return_counts=True)[1]
    return len(counts) > FEWEST and bool(counts.max() >= COMMON * counts.sum())


def edges_of(features: Float[Tensor, "N D"], most: int) -> list[Tensor]:
    """Where to cut every feature that is worth it: at quantiles of its values and of its distinct values.

    `most` pieces by each. The distinct values are for what lies beside the common value. The others have no piece.
    """
    shares, found = torch.linspace(0, 1, most + 1, dtype=torch.float64), []
    for values in _some(features).double().T:
        if not worth_cutting(values):
            found.append(values[:1].float())
            continue
        edges = torch.cat([_quantiles(some, shares) for some in (values.sort().values, values.unique())]).unique()
        apart = torch.cat([edges.new_ones(1, dtype=torch.bool), edges.diff() > SMALLEST])
        found.append(edges[apart].float())
    return found


def _some(rows: Float[Tensor, "N *D"]) -> Float[Tensor, "n *D"]:
    """Enough of them, in their order."""
    return rows[:: max(1, len(rows) // ENOUGH)]


def _quantiles(ordered: Float[Tensor, " N"], shares: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Of values in order: the nearest one, so that an edge is a value."""
    return ordered[(shares * (len(ordered) - 1)).round().long()]
