"""Several networks of one architecture, run as one computation."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from solera.nn.standardize import Standardize
from solera.nn.units import Units


class Stacked(nn.Module):
    """M networks side by side: their parameters are stacked and every layer becomes one batched operation."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        parameters, buffers = stack_module_state(list(networks))  # type: ignore[arg-type]
        self.names = list(parameters)
        self.parameters_ = nn.ParameterList([nn.Parameter(p.detach()) for p in parameters.values()])
        self.buffer_names = list(buffers)
        for number, buffer in enumerate(buffers.values()):
            self.register_buffer(f"buffer_{number}", buffer)
        # a list hides the skeleton from this module's own parameters
        self._skeleton = [copy.deepcopy(networks[0]).to("meta")]

    def forward(self, inputs: Float[Tensor, "B M *shape"]) -> Float[Tensor, "B *rest M K"]:
        """Each network has inputs of its own: the member axis is 1 on the way in and −2 on the way out."""
        self._skeleton[0].train(self.training)

        def one(parameters: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(self._skeleton[0], parameters, (x,))

        stack = dict(zip(self.names, self.parameters_, strict=True))
        stack |= {name: getattr(self, f"buffer_{number}") for number, name in enumerate(self.buffer_names)}
        return vmap(one, in_dims=(0, 1), out_dims=-2, randomness="different")(stack, inputs)

    @torch.no_grad()
    def unstack(self, networks: Sequence[nn.Module]) -> None:
        """Writes each network's parameters back into it."""
        for number, network in enumerate(networks):
            own = dict(network.named_parameters())
            for name, stack in zip(self.names, self.parameters_, strict=True):
                own[name].copy_(stack[number])


def stackable(network: nn.Module, largest: int = 200_000) -> bool:
    """Whether training it stacked pays and changes nothing: small, fully connected, no state that training changes."""
    plain = (nn.Linear, nn.ReLU, nn.GELU, nn.Tanh, nn.Softplus, nn.Dropout, nn.Flatten, nn.Sequential, nn.LayerNorm)
    plain += (nn.Identity, Standardize, Units)
    size = sum(p.numel() for p in network.parameters())
    return size <= largest and all(isinstance(module, plain) for module in network.modules())
