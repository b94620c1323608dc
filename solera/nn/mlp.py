"""A multilayer perceptron."""

from collections.abc import Sequence

from torch import nn


class MLP(nn.Sequential):
    """Linear layers with ReLU (and dropout) between them; whatever the input's shape, it is flattened per example."""

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int] = (64, 64), dropout: float = 0.0) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in zip([inputs, *hidden], hidden, strict=False):
            layers += [nn.Linear(before, after), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        super().__init__(*layers, nn.Linear(hidden[-1] if hidden else inputs, outputs))
        self.settings = {"inputs": inputs, "outputs": outputs, "hidden": list(hidden), "dropout": dropout}
