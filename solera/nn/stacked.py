"""Several networks of one architecture, run as one computation."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from solera.nn.heads import chain, side_by_side
from solera.nn.side_by_side import PLAIN
from solera.nn.standardize import Standardize
from solera.nn.units import Units, in_units


def _flat_chain(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """Its layers with their names, where it flattens its inputs and then is a chain of linear and pointwise layers."""
    names, layers = {id(module): name for name, module in network.named_modules()}, chain(network)
    flat = isinstance(layers[0], nn.Flatten) and (layers[0].start_dim, layers[0].end_dim) == (1, -1)
    known = flat and all(type(layer) in PLAIN for layer in layers)
    return [(names[id(layer)], layer) for layer in layers] if known else []


class Stacked(nn.Module):
    """M networks side by side: their parameters are stacked and every layer becomes one batched operation.

    A chain of linear and pointwise layers runs as plain matrix products, any other network through `torch.func.vmap`.
    """

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
        self._chain = _flat_chain(self._skeleton[0])

    def forward(self, inputs: Float[Tensor, "B M *shape"]) -> Float[Tensor, "B *rest M K"]:
        """Each network has inputs of its own: the member axis is 1 on the way in and −2 on the way out."""
        self._skeleton[0].train(self.training)
        stack = dict(zip(self.names, self.parameters_, strict=True))
        stack |= {name: getattr(self, f"buffer_{number}") for number, name in enumerate(self.buffer_names)}
        if self._chain:
            return self._multiplied(inputs, stack)

        def one(parameters: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(self._skeleton[0], parameters, (x,))

        return vmap(one, in_dims=(0, 1), out_dims=-2, randomness="different")(stack, inputs)

    def _multiplied(self, inputs: Tensor, stack: dict[str, Tensor]) -> Tensor:
        outputs = inputs.transpose(0, 1)
        for name, layer in self._chain:
            if isinstance(layer, nn.Flatten):
                outputs = outputs.flatten(2)
            elif isinstance(layer, nn.Linear):
                outputs = side_by_side(outputs, stack[f"{name}.weight"], stack.get(f"{name}.bias"))
            elif isinstance(layer, (Standardize, Units)):
                mean, scale = (stack[f"{name}.{key}"].unsqueeze(1) for key in ("mean", "scale"))
                outputs = in_units(outputs, mean, scale) if isinstance(layer, Units) else (outputs - mean) / scale
            else:
                outputs = layer(outputs)
        return outputs.transpose(0, 1)

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
