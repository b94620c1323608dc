"""Numbers as trees see them: by the pieces of their range."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

SMALLEST = 1e-6  # the shortest piece, in the units of standardised features
FEWEST = 4  # a feature's pieces: with fewer it is left as it is


class PiecewiseLinear(nn.Module):
    """Features and, beside them, how much of each of their pieces lies below them: 0 to 1, linear within the piece.

    `pieces[d]` is into how many pieces the range of feature d is cut; 0: not at all. The first linear layer of a
    network can then bend at every edge, nearly as sharply as a tree does (Gorishniy et al., 2022).
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


def edges_of(features: Float[Tensor, "N D"], most: int) -> list[Tensor]:
    """Where to cut every feature: at quantiles of its values and of its distinct values, `most` pieces by each.

    The distinct values are for features most of whose values are the same, such as sums of money that few people have.
    A feature that has too few values to be worth it has no edges.
    """
    shares, found = torch.linspace(0, 1, most + 1, dtype=torch.float64), []
    for values in features.double().T:
        distinct = values.unique()
        edges = torch.cat([_quantiles(values.sort().values, shares), _quantiles(distinct, shares)]).unique()
        apart = torch.cat([edges.new_ones(1, dtype=torch.bool), edges.diff() > SMALLEST])
        edges = edges[apart]
        found.append(edges.float() if len(edges) > FEWEST else edges[:1].float())
    return found


def _quantiles(ordered: Float[Tensor, " N"], shares: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Of values in order: the nearest one, so that an edge is a value."""
    return ordered[(shares * (len(ordered) - 1)).round().long()]
