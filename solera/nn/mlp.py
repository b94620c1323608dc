"""A multilayer perceptron."""

from collections.abc import Sequence

from torch import Tensor, nn

from solera.nn.standardize import Standardize
from solera.nn.units import Units

ACTIVATIONS = {"relu": nn.ReLU, "softplus": nn.Softplus, "gelu": nn.GELU, "tanh": nn.Tanh}


class MLP(nn.Sequential):
    """Linear layers with ReLU (and dropout) between them; whatever the input's shape, it is flattened per example.

    With `targets`, a regressor of so many dimensions: its outputs are in the target's own units.
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
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        layers: list[nn.Module] = [nn.Flatten(), *([Standardize(inputs)] if standardize else [])]
        for before, after in zip([inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), ACTIVATIONS[activation](), *([nn.Dropout(dropout)] if dropout else [])]
        layers += [nn.Linear(hidden[-1] if hidden else inputs, outputs), *([Units(targets)] if targets else [])]
        super().__init__(*layers)
        self.settings = {
            "inputs": inputs,
            "outputs": outputs,
            "hidden": list(hidden),
            "dropout": dropout,
            "standardize": standardize,
            "activation": activation,
            "targets": targets,
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
    ) -> "MLP":
        """One that standardises inputs such as these and, for regression, answers in the units of these targets."""
        flat = inputs.flatten(1).float()
        size = 0 if targets is None else targets.reshape(len(targets), -1).shape[1]
        network = cls(flat.shape[1], outputs, hidden, dropout, True, activation, size)
        network[1].learn(flat)  # type: ignore[operator]
        if targets is not None:
            network[-1].learn(targets)  # type: ignore[operator]
        return network
