"""A multilayer perceptron."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from solera.data.table import MISSING
from solera.nn.piecewise import PiecewiseLinear, edges_of
from solera.nn.standardize import Standardize
from solera.nn.table import Table
from solera.nn.units import Units

ACTIVATIONS = {"relu": nn.ReLU, "softplus": nn.Softplus, "gelu": nn.GELU, "tanh": nn.Tanh}


class MLP(nn.Sequential):
    """Linear layers with ReLU (and dropout) between them; whatever the input's shape, it is flattened per example.

    With `targets`, a regressor of so many dimensions: its outputs are in the target's own units. A `table`, settings of
    `solera.nn.Table`, reads rows with words and missing values, and standardises in the place of `standardize`. With
    `pieces`, so many of every feature, it sees numbers as trees do: `solera.nn.PiecewiseLinear`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.0,
        standardize: bool = False,
        activation: str = "relu",
        targets: int = 0,
        table: Mapping[str, Sequence[int]] | None = None,
        pieces: Sequence[int] = (),
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        layers: list[nn.Module] = [nn.Flatten()]
        first = None if table is None else Table(**table)
        if first is not None and len(first.settings["categories"]) != inputs:
            raise ValueError(f"a table of {len(first.settings['categories'])} columns is no inputs={inputs}: pass both")
        if first is not None or standardize:
            layers.append(Standardize(inputs) if first is None else first)
        width = inputs if first is None else first.outputs
        if pieces:
            if len(pieces) != width:
                raise ValueError(f"pieces are of {len(pieces)} features, there are {width}: pass one number for each")
            second = PiecewiseLinear(pieces)
            layers, width = [*layers, second], second.outputs
        for before, after in zip([width, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), ACTIVATIONS[activation](), *([nn.Dropout(dropout)] if dropout else [])]
        layers += [nn.Linear(hidden[-1] if hidden else width, outputs), *([Units(targets)] if targets else [])]
        super().__init__(*layers)
        self.settings = {
            "inputs": inputs,
            "outputs": outputs,
            "hidden": list(hidden),
            "dropout": dropout,
            "standardize": standardize,
            "activation": activation,
            "targets": targets,
            **({} if first is None else {"table": first.settings}),
            **({"pieces": list(pieces)} if pieces else {}),
        }

    @classmethod
    def for_inputs(
        cls,
        inputs: Tensor,
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.0,
        activation: str = "relu",
        targets: Tensor | None = None,
        pieces: int = 0,
    ) -> "MLP":
        """One that standardises inputs such as these and, for regression, answers in the units of these targets.

        With `pieces`, features that have a common value are cut at so many quantiles of their values, and as many of
        their distinct ones.
        """
        flat = inputs.flatten(1).float()
        settings = {"dropout": dropout, "activation": activation, "standardize": True}
        return cls._learned(Standardize(flat.shape[1]), flat, outputs, hidden, targets, pieces, **settings)

    @classmethod
    def for_table(
        cls,
        rows: Tensor,
        categories: Sequence[int],
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        targets: Tensor | None = None,
        pieces: int = 0,
    ) -> "MLP":
        """One that reads rows of a table such as these; see `solera.nn.Table` for `categories`."""
        gone = (rows == MISSING).any(0).tolist()
        table = {"categories": list(categories), "missing": [place for place, some in enumerate(gone) if some]}
        return cls._learned(Table(**table), rows, outputs, hidden, targets, pieces, table=table)

    @classmethod
    def _learned(
        cls,
        first: Standardize | Table,
        rows: Tensor,
        outputs: int,
        hidden: Sequence[int],
        targets: Tensor | None,
        pieces: int,
        **settings: Any,
    ) -> "MLP":
        """One that begins with `first`, which learns from these rows, as the pieces do, and the units from targets."""
        first.learn(rows)
        edges = edges_of(first(rows), pieces) if pieces else []
        cut = [len(each) - 1 for each in edges] if any(len(each) > 1 for each in edges) else []
        network = cls(rows.shape[1], outputs, hidden, targets=_dimensions(targets), pieces=cut, **settings)
        network[1].load_state_dict(first.state_dict())
        if isinstance(second := network[2], PiecewiseLinear):
            second.learn(edges)
        if targets is not None:
            last = network[-1]
            assert isinstance(last, Units)
            last.learn(targets)
        return network


def _dimensions(targets: Tensor | None) -> int:
    """Of continuous targets; 0 where there are none."""
    return 0 if targets is None else targets.reshape(len(targets), -1).shape[1]
