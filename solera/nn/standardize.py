"""Inputs in users' own units: the shift and scale live in the network and travel with it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Standardize(nn.Module):
    """(x − mean)/scale per feature; a constant feature is only shifted."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def learn(self, inputs: Float[Tensor, "N D"]) -> None:
        """Takes mean and scale from the training inputs."""
        spread = inputs.std(0, unbiased=False)
        self.mean.copy_(inputs.mean(0))
        self.scale.copy_(torch.where(spread > 0, spread, torch.ones_like(spread)))

    def forward(self, inputs: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        return (inputs - self.mean) / self.scale
