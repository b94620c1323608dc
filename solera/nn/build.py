"""Networks from what a saved student says of them: only Solera's own, and no larger than the weights beside them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import solera.nn
from solera.core.errors import DamagedFileError
from solera.core.schema import reading, require_form

# what may be named in a file, at any depth: networks that keep their settings
NAMES = (
    *("MLP", "VGG", "ConvNet", "CRF", "Heads", "Recogniser", "ResNet", "Subnetworks", "Tagger", "Translator"),
    *("EncoderDecoder", "WideResNet"),
)
MOST_LAYERS = 10_000  # of a network that a file describes
SPARE = 1000  # tensors that a network may make while it is built, beyond four for each that is stored
MOST_BUFFERS = 1 << 26  # bytes of what a network computes for itself and does not store, such as positions


def build(entry: Mapping[str, Any]) -> nn.Module:
    """A network by its name and settings; one inside another is built here, too."""
    name = entry["name"]
    if name not in NAMES:
        raise ValueError(f"there is no network {name!r} in this Solera: upgrade it, or choose among {', '.join(NAMES)}")
    return getattr(solera.nn, name)(**entry["settings"])


@contextmanager
def _bounded(tensors: int) -> Iterator[None]:
    """No network of many more layers or parameters than belong to so many tensors is made in this thread."""
    mine, left = threading.get_ident(), {"layers": MOST_LAYERS, "parameters": 4 * tensors + SPARE}

    def counting(what: str) -> Callable[..., None]:
        def added(*_: Any) -> None:
            if threading.get_ident() == mine:
                left[what] -= 1
                if left[what] < 0:
                    raise ValueError(f"it has more {what} than belong to {tensors:,} tensors of weights")

        return added

    handles = [
        torch_module.register_module_module_registration_hook(counting("layers")),
        torch_module.register_module_parameter_registration_hook(counting("parameters")),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def network_of(path: Path, entry: Mapping[str, Any], weights: Mapping[str, Tensor]) -> nn.Module:
    """The network of this entry in the file `path`, for these weights.

    It is first made without numbers, so that a description of a huge network beside small weights costs no memory.
    """
    if entry["name"] not in NAMES:
        raise ValueError(f"{path.parent} uses the network {entry['name']}, which this Solera does not have: upgrade it")
    require_form(path, entry["settings"], {"network?": {"name": str, "settings": dict}}, "network.settings")
    with reading(path, "network"), _bounded(len(weights)):
        with torch.device("meta"):
            sketch = build(entry)
        wanted = {name: tuple(tensor.shape) for name, tensor in sketch.state_dict().items()}
        own = sum(b.numel() * b.element_size() for b in sketch.buffers())
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise DamagedFileError(
                f"{path}: network describes {name} as {wanted.get(name, 'nothing')}, the weights have "
                f"{given.get(name, 'nothing')}: restore the folder, or make it again"
            )
    if own > MOST_BUFFERS + sum(tensor.numel() * tensor.element_size() for tensor in weights.values()):
        raise DamagedFileError(f"{path}: network takes {own:,} bytes beside its weights: that is none of Solera's")
    with reading(path, "network"):
        return build(entry)
