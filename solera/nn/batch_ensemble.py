"""BatchEnsemble: M subnetworks in one network, told apart by rank-one factors of its weights (Wen et al., 2020)."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _NormBase

import solera.nn
from solera.core.seeds import generator
from solera.data import map_tensors, tensors_in
from solera.nn.build import build

Average = Literal["products", "factors"]
Factors = Literal["ones", "normal", "signs"]
Norms = Literal["shared", "own"]

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# torch's short cut for transformers at inference reads the weights and never calls the layers: this word forbids it
_SHORT_CUTS = {nn.TransformerEncoder: "use_nested_tensor", nn.TransformerEncoderLayer: "activation_relu_or_gelu"}
_rows: ContextVar[int] = ContextVar("rows", default=0)  # of the tiled batch, while a network runs


def _rows_of_each(inputs: Tensor, members: int) -> list[int | torch.SymInt]:
    """How many rows of the first axis are each member's; axes that the network has flattened into it do not disturb."""
    if inputs.shape[0] % (_rows.get() or members):  # not len: a graph with a free batch axis has none
        raise ValueError(
            f"a layer was given a tensor of shape {tuple(inputs.shape)}, whose first axis is not that of the batch, "
            f"{_rows.get()} rows of {members} members: keep the batch axis first in the network (batch_first=True)"
        )
    return [inputs.shape[0] // members] * members


def _factors(layer: Any) -> tuple[Tensor, Tensor]:
    """r [M, in] and s [M, out]; their gradients are M times the loss's own: of the sum over members, not the mean."""
    r, s = layer.input_excess, layer.output_excess
    if torch.is_grad_enabled():
        r, s = (e + (len(e) - 1) * (e - e.detach()) for e in (r, s))
    return 1 + r, 1 + s


def _products(r: Tensor, s: Tensor, weight: Tensor, groups: int) -> Tensor:
    """s rᵀ in the shape of the weight, [*, out, in/groups, 1, ...], from r [*, in] and s [*, out]."""
    outer = s.unflatten(-1, (groups, -1)).unsqueeze(-1) * r.unflatten(-1, (groups, -1)).unsqueeze(-2)
    return outer.flatten(-3, -2)[(..., *(None,) * (weight.ndim - 2))]


def _convolved(layer: Any, inputs: Tensor) -> Tensor:
    """Each member's rows with weights of its own, W ∘ s_m r_mᵀ: smaller than the maps that r and s would scale."""
    weights = layer.weight * _products(*_factors(layer), layer.weight, layer.groups)
    parts = zip(inputs.split(_rows_of_each(inputs, len(weights))), weights, strict=True)  # keeps channels last
    return torch.cat([layer._conv_forward(rows, weight, layer.bias) for rows, weight in parts])


class BatchEnsembleLinear(nn.Linear):
    """y = s_m ∘ (W (r_m ∘ x)) + b, the batch being member 0's rows, then member 1's, ..."""

    def forward(self, input: Tensor) -> Tensor:
        r, s = _factors(self)
        rows = input.unflatten(0, (len(r), _rows_of_each(input, len(r))[0]))
        shape = (len(r), *(1,) * (rows.ndim - 2), -1)
        outputs = linear(rows * r.view(shape), self.weight) * s.view(shape)
        return (outputs if self.bias is None else outputs + self.bias).flatten(0, 1)


class BatchEnsembleConv1d(nn.Conv1d):
    """y = s_m ∘ (W ∗ (r_m ∘ x)) + b, a factor for each channel."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolved(self, input)


class BatchEnsembleConv2d(nn.Conv2d):
    """y = s_m ∘ (W ∗ (r_m ∘ x)) + b, a factor for each channel."""

    def forward(self, input: Tensor) -> Tensor:
        return _convolved(self, input)


class OwnNorms(nn.ModuleList):
    """One norm layer for each member."""

    def forward(self, input: Tensor) -> Tensor:
        """The batch being member 0's rows, then member 1's, ..."""
        parts = input.split(_rows_of_each(input, len(self)))
        return torch.cat([norm(rows) for norm, rows in zip(self, parts, strict=True)])


_KINDS = {nn.Linear: BatchEnsembleLinear, nn.Conv1d: BatchEnsembleConv1d, nn.Conv2d: BatchEnsembleConv2d}
_PLAIN = {kind: plain for plain, kind in _KINDS.items()}


def _layers(network: nn.Module) -> list[Any]:
    """The layers that get factors: of exactly these classes, and with a weight that no other layer has."""
    uses = Counter(id(p) for module in network.modules() for p in module._parameters.values())
    weights = [(module, module._parameters.get("weight")) for module in network.modules() if type(module) in _KINDS]
    return [module for module, weight in weights if weight is not None and uses[id(weight)] == 1]


def _excess(factors: Factors, members: int, size: int, weight: Tensor, random: torch.Generator) -> nn.Parameter:
    """r − 1 or s − 1: what is stored, so that ordinary weight decay pulls the factors to one."""
    draw = None if weight.is_meta else random  # a network without numbers needs none here
    start = {
        "ones": torch.zeros(members, size),
        "normal": 0.5 * torch.randn(members, size, generator=draw),
        "signs": -2.0 * torch.randint(2, (members, size), generator=draw),
    }
    return nn.Parameter(start[factors].to(weight))


def _diversify(network: nn.Module, members: int, factors: Factors, norms: Norms, seed: int) -> None:
    """Gives every layer its factors, in place; names, tensors and hooks stay."""
    random = generator(seed, "factors")
    for layer in _layers(network):
        sizes = layer.weight.shape[1] * getattr(layer, "groups", 1), layer.weight.shape[0]
        layer.__class__ = _KINDS[type(layer)]
        layer.input_excess, layer.output_excess = (
            _excess(factors, members, size, layer.weight, random) for size in sizes
        )
    for module in list(network.modules()):
        for kind, word in _SHORT_CUTS.items():
            if isinstance(module, kind) and hasattr(module, word):
                module._short_cut, module.__dict__[word] = getattr(module, word), False
    if norms == "own":
        own: dict[int, nn.Module] = {}
        for parent in list(network.modules()):
            for name, child in parent._modules.items():
                if isinstance(child, _NORMS):
                    copies = (copy.deepcopy(child) for _ in range(members))
                    parent._modules[name] = own.setdefault(id(child), OwnNorms(copies))


class Subnetworks(nn.Module):
    """A copy of `network` as M subnetworks, W ∘ s_m r_mᵀ; its output gains a member axis: `[*batch, M, K]`.

    Every `Linear`, `Conv1d` and `Conv2d` gets factors r and s, stored as what they exceed one by; `factors` says how
    they start: all "ones", "normal" N(1, ½²) or random "signs" ±1. Biases and all other layers are shared, norm layers
    too unless `norms="own"`. Shared, too, are subclasses of those three, all of `nn.MultiheadAttention` (it reads its
    packed weights itself) and a weight that several layers have (tied embeddings).

    The first axis of every input tensor is the batch, tiled here: all of member 0, then member 1, ... One vector of
    numbers alone is one example. `network` may also be the name and settings of one of Solera's networks.
    """

    def __init__(
        self,
        network: nn.Module | Mapping[str, Any],
        members: int,
        factors: Factors = "ones",
        norms: Norms = "shared",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if members < 1:
            raise ValueError(f"there must be at least one subnetwork, got members={members}")
        if factors not in ("ones", "normal", "signs"):
            raise ValueError(f"factors must be 'ones', 'normal' or 'signs', got {factors!r}")
        if norms not in ("shared", "own"):
            raise ValueError(f"norms must be 'shared' or 'own', got {norms!r}")
        if isinstance(network, Mapping):
            network = build(network)
        assert isinstance(network, nn.Module)
        name = type(network).__name__
        if not _layers(network):
            raise ValueError(
                f"this {name} has no Linear, Conv1d or Conv2d layer of its own: there is nothing to factor"
            )
        if hasattr(network, "settings") and type(network) is getattr(solera.nn, name, None):
            inner = {"name": name, "settings": copy.deepcopy(network.settings)}
            rest = {"members": members, "factors": factors, "norms": norms, "seed": seed}
            self.settings = {"network": inner, **rest}
        self.members, self.norms, self.training = members, norms, network.training
        self.network = copy.deepcopy(network)
        _diversify(self.network, members, factors, norms, seed)

    def extra_repr(self) -> str:
        return f"members={self.members}"

    def factors(self) -> list[nn.Parameter]:
        """The parameters that tell the subnetworks apart: every layer's r − 1 and s − 1."""
        layers: list[Any] = [module for module in self.network.modules() if type(module) in _PLAIN]
        return [excess for layer in layers for excess in (layer.input_excess, layer.output_excess)]

    def shared(self) -> list[nn.Parameter]:
        """The parameters that all subnetworks have in common (`norms="own"`: and those of the norm layers)."""
        apart = {id(excess) for excess in self.factors()}
        return [parameter for parameter in self.parameters() if id(parameter) not in apart]

    def forward(self, inputs: Any) -> Tensor:
        """`[*batch, M, K]`; inputs are whatever the network takes as its one argument."""
        alone = isinstance(inputs, Tensor) and inputs.ndim == 1 and inputs.is_floating_point()
        inputs = inputs.unsqueeze(0) if alone else inputs
        before = _rows.set(self.members * tensors_in(inputs)[0].shape[0])
        try:  # torch.cat, unlike repeat, keeps images channels-last
            outputs = self.network(map_tensors(lambda t: torch.cat([t] * self.members), inputs))
        finally:
            _rows.reset(before)
        outputs = outputs.unflatten(0, (self.members, outputs.shape[0] // self.members)).movedim(0, -2)
        return outputs.squeeze(0) if alone else outputs


def branch(
    network: nn.Module, members: int, factors: Factors = "ones", norms: Norms = "shared", seed: int = 0
) -> Subnetworks:
    """A copy of `network` as M subnetworks; one that has as many already is returned as it is."""
    if not isinstance(network, Subnetworks):
        return Subnetworks(network, members, factors, norms, seed)
    if network.members != members:
        raise ValueError(
            f"this network has {network.members} subnetworks already and cannot have {members}: pass the network that "
            "they were made from"
        )
    return network


def require_mergeable(network: Subnetworks) -> None:
    """Refuses subnetworks that differ in more than their factors."""
    if any(isinstance(module, OwnNorms) for module in network.modules()):
        raise ValueError("subnetworks with norm layers of their own cannot be merged into one: use norms='shared'")


def _unfactor(layer: Any, averaged: Callable[[Tensor], Tensor], average: Average) -> None:
    """A layer with factors becomes a plain one, in place."""
    if type(layer) not in _PLAIN:
        return
    r, s = _factors(layer)
    groups = getattr(layer, "groups", 1)
    if average == "factors":
        factor = _products(averaged(r), averaged(s), layer.weight, groups)
    else:
        factor = averaged(_products(r, s, layer.weight, groups))
    layer.weight.mul_(factor)
    del layer.input_excess, layer.output_excess
    layer.__class__ = _PLAIN[type(layer)]


@torch.no_grad()
def merge(network: Subnetworks, average: Average = "products", shares: Sequence[float] | None = None) -> nn.Module:
    """One plain network of the original classes and parameter names: W ∘ mean_m(s_m r_mᵀ), eq. 5 of Nam et al. (2022).

    `average="factors"` is W ∘ s̄ r̄ᵀ, as in their released code. `shares` weigh the members instead of 1/M each: (1, 0)
    is the first of two subnetworks, (1 − t, t) lies on the line between them (eq. 15).
    """
    require_mergeable(network)
    if average not in ("products", "factors"):
        raise ValueError(f"average must be 'products' or 'factors', got {average!r}")
    if shares is not None and len(shares) != network.members:
        raise ValueError(f"there must be one share for each of {network.members} members, got {len(shares)}")

    def averaged(values: Tensor) -> Tensor:
        return values.mean(0) if shares is None else torch.tensordot(values.new_tensor(shares), values, 1)

    plain = copy.deepcopy(network.network)
    for layer in plain.modules():
        _unfactor(layer, averaged, average)
        for kind, word in _SHORT_CUTS.items():
            if isinstance(layer, kind) and "_short_cut" in layer.__dict__:
                layer.__dict__[word] = layer.__dict__.pop("_short_cut")
    return plain
