"""M heads on one body: the last layers of any network, copied M times and run as one batched computation."""

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.func import functional_call, vmap
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import solera.nn
from solera.nn.build import build
from solera.nn.units import Units

# what acts on each element, or on the last axis, alone: it does not notice a member axis before that
LAST_AXIS = (
    *(Units, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU),
    *(nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Hardtanh, nn.Tanhshrink, nn.Sigmoid, nn.LogSigmoid, nn.Hardsigmoid),
    *(nn.Hardswish, nn.Softplus, nn.Softsign, nn.Softshrink, nn.Hardshrink, nn.Threshold),
)
_CACHED = 1 << 17  # elements of a layer's activations: more of them leave the cache before the next layer reads them
_SWAP = threading.RLock()  # functional_call puts tensors into a module and takes them out: one thread at a time


def _owner(name: str) -> str:
    """The layer a module belongs to: a parametrised weight (`torch.nn.utils.parametrize`) is part of its layer."""
    return f".{name}".split(".parametrizations")[0][1:]


def _layers(network: nn.Module) -> list[str]:
    """The layers that have parameters of their own, in order."""
    owners = [_owner(n) for n, module in network.named_modules() if any(True for _ in module.parameters(recurse=False))]
    return list(dict.fromkeys(owners))


def _first(network: nn.Module, head: int | str) -> str:
    """The name of the first layer that is copied."""
    layers, order = _layers(network), [name for name, _ in network.named_modules()]
    if isinstance(head, str) and head in order:
        for layer in layers:
            if order.index(layer) >= order.index(head):
                return layer
    elif isinstance(head, int) and 1 <= head <= len(layers):
        return layers[-head]
    raise ValueError(
        f"head={head!r} is no place to cut this {type(network).__name__}: pass a number from 1 to {len(layers)}, or "
        f"the name of one of its layers that have parameters: {', '.join(layers)}"
    )


def _has_state(module: nn.Module) -> bool:
    """Whether training changes it: it has parameters or running statistics."""
    return bool(list(module.parameters(recurse=False))) or isinstance(module, _NormBase)


def _stack(network: nn.Module, first: str, members: int) -> Iterator[tuple[str, nn.Module, str]]:
    """Copies the parameters and buffers of every layer from `first` on M times, in place, and says where they are.

    One that the body uses too (tied weights) stays single there; one that the head uses twice stays tied.
    """
    order = [_owner(name) for name, _ in network.named_modules()]
    copies: dict[int, Tensor] = {}
    for name, module in list(network.named_modules())[order.index(first) :]:
        for store in (module._parameters, module._buffers) if _has_state(module) else ():
            for key, value in store.items():
                if value is None:
                    continue
                if id(value) not in copies:
                    stack = torch.stack([value.detach()] * members)
                    is_parameter = isinstance(value, nn.Parameter)
                    copies[id(value)] = nn.Parameter(stack, value.requires_grad) if is_parameter else stack
                store[key] = copies[id(value)]  # type: ignore[assignment]
                yield f"{name}.{key}".removeprefix("."), module, key


def chain(module: nn.Module) -> list[nn.Module]:
    """The layers of nested Sequentials, one after the other; anything else is one layer."""
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return [layer for child in module for layer in chain(child)]
    return [module]


def _split(chain: list[nn.Module], head: list[nn.Module]) -> tuple[tuple[nn.Module, ...], tuple[nn.Module, ...]]:
    """The chain before the head and from there on; no tail where the head is not linear and last-axis layers alone."""
    start = next((place for place, layer in enumerate(chain) if layer in head), len(chain))
    body, tail = tuple(chain[:start]), tuple(chain[start:])
    plain = all(type(layer) in (nn.Linear, *LAST_AXIS) and not layer._forward_pre_hooks for layer in tail)
    return (body, tail) if plain and all(layer in tail for layer in head) else ((), ())


def fan_out(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same inputs for M linear layers, as one product: [*batch, I] → [*batch, M, O]."""
    members, outputs, features = weight.shape
    every = linear(inputs, weight.reshape(-1, features), None if bias is None else bias.reshape(-1))
    return every.view(*inputs.shape[:-1], members, outputs)


def side_by_side(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """M linear layers, each with inputs of its own: [M, rows, I] → [M, rows, O]."""
    if bias is None:
        return torch.bmm(inputs, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)


def _tensors(layer: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Its weight and bias; `layer.weight` is a search through the module: microseconds that a batch of one feels."""
    own = layer._parameters
    assert own["weight"] is not None
    return own["weight"], own["bias"]


class _Once(TorchFunctionMode):
    """Inside a vmap: what hangs on no head is computed outside it, once, so that the body has one dropout for all."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(leaf, Tensor) and is_batchedtensor(leaf) for leaf in tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        with temporarily_pop_interpreter_stack():
            return func(*args, **kwargs)


class Heads(nn.Module):
    """A copy of `network` with M heads, all alike at first; its output gains a member axis: `[*batch, M, K]`.

    Parameters keep their names; those of the head gain a first axis M. A head of linear and pointwise layers at the end
    of a Sequential runs as plain matrix products, any other through `torch.func.vmap`, which leaves the body unbatched.
    `network` may also be the name and settings of one of Solera's networks, as a saved student has them.
    """

    def __init__(self, network: nn.Module | Mapping[str, Any], members: int, head: int | str = 1) -> None:
        super().__init__()
        if members < 1:
            raise ValueError(f"there must be at least one head, got members={members}")
        if isinstance(network, Mapping):
            network = build(network)
        assert isinstance(network, nn.Module)
        name = type(network).__name__
        if hasattr(network, "settings") and type(network) is getattr(solera.nn, name, None):
            inner = {"name": name, "settings": copy.deepcopy(network.settings)}
            self.settings = {"network": inner, "members": members, "head": head}
        network = copy.deepcopy(network)
        self.members = members
        self._stacked = list(_stack(network, _first(network, head), members))
        self._body, self._tail = _split(chain(network), [module for _, module, _ in self._stacked])
        self._deep = sum(type(layer) is nn.Linear for layer in self._tail) > 1
        self._inner = (network,)  # a tuple hides it: its parts are this module's own, under the names they had
        for part in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[part] = network.__dict__[part]
        self.training = network.training

    def extra_repr(self) -> str:
        return f"members={self.members}"

    def train(self, mode: bool = True) -> "Heads":
        self._inner[0].training = mode
        return super().train(mode)

    def forward(self, inputs: Any) -> Any:
        """`[*batch, M, K]`; inputs are whatever the network takes as its one argument."""
        if not self._tail:
            return self._mapped(inputs)
        for layer in self._body:
            inputs = layer(inputs)
        return self._multiplied(inputs)

    def _multiplied(self, features: Tensor) -> Tensor:
        outputs = fan_out(features, *_tensors(self._tail[0]))
        if not self._deep:
            for layer in self._tail[1:]:
                outputs = layer(outputs)
            return outputs
        outputs = outputs.view(-1, *outputs.shape[-2:]).transpose(0, 1)
        few = self.members  # or as many as have activations that stay in the cache together
        if not torch.compiler.is_compiling():
            few = max(1, _CACHED // max(1, outputs[0].numel()))
        parts = [self._deeper(outputs[m : m + few], slice(m, m + few)) for m in range(0, self.members, few)]
        outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
        return outputs.transpose(0, 1).reshape(*features.shape[:-1], self.members, outputs.shape[-1])

    def _deeper(self, outputs: Tensor, heads: slice) -> Tensor:
        """What comes after the first linear layer, of some of the heads: [m, rows, H] → [m, rows, K]."""
        for layer in self._tail[1:]:
            if isinstance(layer, nn.Linear):
                weight, bias = _tensors(layer)
                outputs = side_by_side(outputs, weight[heads], None if bias is None else bias[heads])
            else:
                outputs = layer(outputs)
        return outputs

    def _mapped(self, inputs: Any) -> Any:
        def one(head: dict[str, Tensor]) -> Any:
            with _Once() if self.training else nullcontext():
                return functional_call(self._inner[0], head, (inputs,))

        def stack() -> dict[str, Tensor]:
            return {name: getattr(module, key) for name, module, key in self._stacked}

        if torch.compiler.is_compiling():  # torch.export cannot trace a vmap; a compiler finds the body's repetitions
            each = [{name: tensor[m] for name, tensor in stack().items()} for m in range(self.members)]
            return torch.stack([functional_call(self._inner[0], head, (inputs,)) for head in each], -2)
        with _SWAP:
            return vmap(one, out_dims=-2, randomness="different")(stack())


def grow(network: nn.Module, members: int, head: int | str = 1) -> nn.Module:
    """A copy of `network` with M heads: each starts as the last `head` layers that have parameters.

    A name instead of a number cuts at that submodule: it and every layer after it are copied. A network that has M
    heads already is returned as it is.
    """
    if not isinstance(network, Heads):
        return Heads(network, members, head)
    if network.members != members:
        raise ValueError(
            f"this network has {network.members} heads already and cannot grow to {members}: pass the network that "
            "they were grown from"
        )
    return network
