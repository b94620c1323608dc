"""Data in any supported form, as batches."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from solera.data.batch import Batch, ManyBatches, Shuffling
from solera.data.loaders import Loader, Read, is_data_set, read_pair
from solera.data.memory import Batches
from solera.data.sequences import Sequences, is_ragged


def _dealt(data: Any) -> bool:
    """Whether this deals out batches already: one of ours, or a list of them."""
    if isinstance(data, (list, tuple)):
        return all(isinstance(batch, Batch) for batch in data)
    if isinstance(data, (Tensor, dict)) or hasattr(data, "__array__"):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__iter__")


def as_batches(
    data: Any,
    target: Any = None,
    *,
    batch_size: int = 128,
    read: Read | None = None,
    names: Sequence[str] | None = None,
) -> ManyBatches:
    """Batches of arrays (with targets beside them), lists of sequences, a data set, a loader, or batches as they are.

    `read` says what is input and what is target in what a loader's collate function gives (a task's `batch`). Classes
    with names are numbered in the order of `names`.
    """
    beside = None
    if is_data_set(data):
        beside, made = "the data set", Loader(data, batch_size=batch_size, read=read or read_pair)
    elif _dealt(data):
        beside, made = "the batches", data
    elif is_ragged(data):
        made = Sequences(data, target)
    else:
        made = Batches(data, target, batch_size=batch_size)
    if beside is not None and target is not None:
        raise ValueError(f"targets are given beside {beside}, which bring their own: leave them out")
    return made.renumbered(names) if names and isinstance(made, Batches) else made


def one_epoch(batches: ManyBatches, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
    """One epoch from its batch `start` on: shuffled by the seed where the batches can be, else in their own order."""
    if isinstance(batches, Shuffling):
        return batches.shuffled(seed, epoch, start)
    return islice(iter(batches), start, None)


def shuffling(batches: ManyBatches) -> Shuffling:
    """Batches that can be shuffled by a seed, or an error that says what can."""
    if not isinstance(batches, Shuffling):
        raise ValueError(f"a {type(batches).__name__} cannot be shuffled by a seed: pass Batches or a Loader")
    return batches


def fingerprint_of(batches: ManyBatches) -> str:
    """Changes when the data do, whatever holds them."""
    if isinstance(batches, Shuffling):
        return batches.fingerprint()
    parts = [Batches(b.inputs, b.target, weight=b.weight, index=b.index).fingerprint() for b in batches]
    return " ".join(parts)
