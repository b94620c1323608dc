"""How a network is asked: a tensor as it is, a dict by keywords where the network takes them."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from solera.data import map_tensors, tensors_in


@lru_cache(maxsize=256)
def _parameters(kind: type[nn.Module]) -> tuple[frozenset[str], bool, bool]:
    """The names its forward takes, whether it takes any other, and whether it is a Hugging Face model."""
    found = inspect.signature(kind.forward).parameters
    names = frozenset(
        name for name, p in found.items() if name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    )
    anything = any(p.kind is p.VAR_KEYWORD for p in found.values())
    return names, anything, any(base.__name__ == "PreTrainedModel" for base in kind.__mro__)


def takes_keywords(network: nn.Module, inputs: Any) -> bool:
    """Whether a dict of inputs goes in by keywords: all its keys are names of arguments, or it is a transformer."""
    if not isinstance(inputs, Mapping):
        return False
    names, anything, transformer = _parameters(type(network))
    return transformer or all(key in names for key in inputs) or (anything and not names)


def _accepted(network: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What this transformer takes of what its tokenizer gave."""
    names, anything, transformer = _parameters(type(network))
    return {key: value for key, value in inputs.items() if key in names or (anything and not transformer)}


def tensor_of(answer: Any) -> Any:
    """A network's tensor: its answer, or that answer's `logits`."""
    if isinstance(answer, Tensor):
        return answer
    logits = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    return answer if logits is None else logits


def _single(network: nn.Module, inputs: Any) -> Any:
    """Numbers of double precision as a network of single precision takes them."""
    if not any(tensor.dtype == torch.float64 for tensor in tensors_in(inputs)):
        return inputs
    own = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float64)
    return map_tensors(lambda t: t.to(own) if t.dtype == torch.float64 else t, inputs)


@contextmanager
def naming_inputs(who: str, inputs: Any) -> Iterator[None]:
    """For the first call: torch's error about a size or a type becomes one that says what `who` was given."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError or "allocate" in str(error):  # too little memory: the inputs may be right
            raise
        given = " and ".join(f"{str(t.dtype)[6:]} inputs of shape {tuple(t.shape[1:])}" for t in tensors_in(inputs))
        raise ValueError(
            f"{who} does not take {given} ({str(error).strip()}): build it for that many inputs, or pass inputs of the "
            "shape and type that it takes"
        ) from error


def call(network: nn.Module, inputs: Any, wrapped: nn.Module | None = None) -> Any:
    """What the network says about these inputs; `wrapped` is the same network as several processes share it."""
    asked, inputs = wrapped or network, _single(network, inputs)
    if takes_keywords(network, inputs):
        return tensor_of(asked(**_accepted(network, inputs)))
    return tensor_of(asked(inputs))


_CHANNELS_LAST: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # which networks take such images


def _passes(network: nn.Module, images: Tensor) -> bool:
    """Whether images pass through: tried in evaluation and with random numbers of its own, so that nothing changes."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call(network, images)
    except Exception:  # whoever asks next is told what is wrong with the network or with its inputs
        return False
    finally:
        for part, training in modes:
            part.training = training
    return True


def _overruns(part: nn.Conv2d) -> bool:
    """Whether its weights' gradient corrupts memory on channels-last images, and with it aborts the process.

    With AVX2 and nothing later, oneDNN writes behind its buffer where a 1×1 convolution with a stride has fewer than
    eight input channels.
    """
    return part.kernel_size == (1, 1) and part.stride != (1, 1) and part.in_channels // part.groups < 8


def _takes_channels_last(network: nn.Module, images: Tensor) -> bool:
    """Whether it convolves, and such images pass through it: a `view` behind a convolution refuses them."""
    if network not in _CHANNELS_LAST:
        few = images[:2].detach()
        convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
        convolves = bool(convolutions) and not any(map(_overruns, convolutions))
        found = convolves and _passes(network, few.to(memory_format=torch.channels_last))
        if convolves and not found and not _passes(network, few):
            return False  # these are no images for it in any layout
        _CHANNELS_LAST[network] = found
    return _CHANNELS_LAST[network]


def laid_out(network: nn.Module, inputs: Any) -> Any:
    """Images channels-last for a network with convolutions: on a CPU its pooling alone is then several times faster.

    One image alone is not worth the change, and a network that refuses such images gets them as they come.
    """
    if not isinstance(inputs, Tensor) or inputs.ndim != 4 or inputs.device.type != "cpu" or len(inputs) < 2:
        return inputs
    return inputs.to(memory_format=torch.channels_last) if _takes_channels_last(network, inputs) else inputs
