"""Targets in users' own units: the shift and scale live in the network, as its last layer, and travel with it."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

_WIDEST = 20.0  # a standardised variance lies between e^−20 and e^20 (2·10⁻⁹ and 5·10⁸)


def in_units(outputs: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Standardised outputs in units of this mean and scale, as `Units` has them; each may have a member axis."""
    size = mean.shape[-1]
    location, log_variance, rest = outputs.split([size, size, outputs.shape[-1] - 2 * size], -1)
    bent = _WIDEST * torch.tanh(log_variance / _WIDEST)
    return torch.cat([location * scale + mean, bent + 2 * scale.log(), rest], -1)


class Units(nn.Module):
    """Standardised outputs (μ, ln σ², ...) in the target's units: μ·scale + mean, ln σ² + 2 ln scale, the rest as is.

    A likelihood changes by a constant only, so training does not notice; every loss, prediction and exported graph is
    in the units that users gave. ln σ² bends towards ±20 before that: a constant target must not send it to −∞.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, targets: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(targets))
        self.register_buffer("scale", torch.ones(targets))

    def learn(self, targets: Float[Tensor, "N *D"]) -> None:
        """Takes mean and scale from the training targets; a constant one is only shifted."""
        values = targets.reshape(len(targets), -1).double()
        if values.shape[1] != len(self.mean):
            raise ValueError(f"these units are for {len(self.mean)} targets, got {values.shape[1]}")
        spread = values.std(0, unbiased=False)
        self.mean.copy_(values.mean(0))
        self.scale.copy_(torch.where(spread > 1e-7 * values.abs().amax(0), spread, torch.ones_like(spread)))

    def inverse(self, outputs: Float[Tensor, " outputs"]) -> Float[Tensor, " outputs"]:
        """What must come in for `outputs` to come out."""
        size = len(self.mean)
        location, log_variance, rest = outputs.split([size, size, len(outputs) - 2 * size])
        bent = ((log_variance - 2 * self.scale.log()) / _WIDEST).clamp(-0.99, 0.99)
        return torch.cat([(location - self.mean) / self.scale, _WIDEST * bent.atanh(), rest])

    def forward(self, outputs: Float[Tensor, "*batch outputs"]) -> Float[Tensor, "*batch outputs"]:
        return in_units(outputs, self.mean, self.scale)


@torch.no_grad()
def begin_at(network: nn.Module, outputs: Float[Tensor, " outputs"]) -> None:
    """Sets the bias of the last linear layer so that a fresh network's answers scatter about `outputs`."""
    layers = [module for module in network.modules() if isinstance(module, (nn.Linear, Units))]
    while layers and isinstance(layers[-1], Units):
        outputs = layers.pop().inverse(outputs)  # type: ignore[union-attr]
    if layers and layers[-1].bias is not None and layers[-1].bias.shape == outputs.shape:
        layers[-1].bias.copy_(outputs)  # type: ignore[operator, union-attr]
