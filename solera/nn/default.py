"""A sensible student for inputs of a given shape."""

from torch import Tensor, nn

from solera.nn.convnet import ConvNet
from solera.nn.mlp import MLP
from solera.nn.piecewise import FEWEST, worth_cutting

MOST_PIECES = 48  # of a feature, by its values, and by its distinct values
ROWS_A_PIECE = 16  # at least
MOST_FEATURES = 2048  # that pieces may make, by values and by distinct values each


def network_for(inputs: Tensor, outputs: int, targets: Tensor | None = None) -> nn.Module:
    """Rows `[N, D]` get a standardising MLP, images `[N, C, H, W]` a small convnet.

    For regression, `targets` are some of the numbers to expect: rows only, and in their units.
    """
    if inputs.ndim == 2:
        return MLP.for_inputs(inputs, outputs, (128, 128), targets=targets, pieces=pieces_for(inputs, targets))
    if inputs.ndim == 4 and inputs.shape[1] <= 4 and targets is None:
        size = min(inputs.shape[2:])
        channels = tuple(16 << step for step in range(4) if size >> (step + 1) >= 2) or (16,)
        return ConvNet(tuple(inputs.shape[1:]), outputs, channels=channels, hidden=128)
    raise ValueError(
        f"there is no default student for inputs of shape {tuple(inputs.shape[1:])}: pass rows (N, D), images "
        "(N, channels, height, width), or a network of your own"
    )


def pieces_for(rows: Tensor, targets: Tensor | None = None) -> int:
    """Into how many pieces features of rows such as these are cut: fewer for few rows, or many features; 0: none.

    For classes, which students of trees then follow far better (docs/training.md); not for continuous `targets`.
    """
    if targets is not None:
        return 0
    columns = sum(worth_cutting(values) for values in rows.T)
    pieces = min(MOST_PIECES, len(rows) // ROWS_A_PIECE, MOST_FEATURES // max(columns, 1))
    return pieces if columns and pieces >= FEWEST else 0
