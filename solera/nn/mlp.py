"""A multilayer perceptron."""

from collections.abc import Sequence

from torch import Tensor, nn

from solera.nn.standardize import Standardize


class MLP(nn.Sequential):
    """Linear layers with ReLU (and dropout) between them; whatever the input's shape, it is flattened per example."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.0,
        standardize: bool = False,
    ) -> None:
        layers: list[nn.Module] = [nn.Flatten(), *([Standardize(inputs)] if standardize else [])]
        for before, after in zip([inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        super().__init__(*layers, nn.Linear(hidden[-1] if hidden else inputs, outputs))
        self.settings = {
            "inputs": inputs,
            "outputs": outputs,
            "hidden": list(hidden),
            "dropout": dropout,
            "standardize": standardize,
        }

    @classmethod
    def for_inputs(cls, inputs: Tensor, outputs: int, hidden: Sequence[int] = (64, 64), dropout: float = 0.0) -> "MLP":
        """One that standardises inputs such as these."""
        flat = inputs.flatten(1).float()
        network = cls(flat.shape[1], outputs, hidden, dropout, standardize=True)
        network[1].learn(flat)  # type: ignore[operator]
        return network
