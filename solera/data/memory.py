"""Examples in memory, or mapped into it from a file."""

import copy
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from solera.core.disk import fingerprint
from solera.core.seeds import generator
from solera.data.arrays import as_inputs, as_tensor
from solera.data.batch import UNLABELLED, Batch, map_tensors, tensors_in
from solera.data.mapped import MappedFile
from solera.data.names import class_numbers, renumbered

SAMPLED = 64  # rows of a mapped file that stand for all of it in a fingerprint


def _nest_of(values: Any) -> list[Any]:
    """What stands in a nest of array-likes."""
    if isinstance(values, dict):
        return [leaf for value in values.values() for leaf in _nest_of(value)]
    return [leaf for value in values for leaf in _nest_of(value)] if isinstance(values, tuple) else [values]


def _joined(first: Any, second: Any) -> Any:
    """Two nests of tensors of one structure, one after the other."""
    if len(tensors_in(first)) != len(tensors_in(second)):
        raise ValueError("auxiliary inputs must be of the kind of the inputs: the same tensors, under the same names")
    for own, other in zip(tensors_in(first), tensors_in(second), strict=True):
        if own.shape[1:] != other.shape[1:]:
            raise ValueError(
                f"the inputs have rows of shape {tuple(own.shape[1:])}, the unlabelled or auxiliary ones "
                f"{tuple(other.shape[1:])}: pass the same columns, in the same order"
            )
    more = iter(tensors_in(second))
    return map_tensors(lambda tensor: torch.cat([tensor, next(more)]), first)


def _with_unlabelled(inputs: Any, target: Tensor | None, more: Any) -> tuple[Any, Tensor | None]:
    """Inputs and targets with more inputs after them, which have none."""
    if target is not None:
        none = float("nan") if target.is_floating_point() else UNLABELLED
        extra = target.new_full((len(tensors_in(more)[0]), *target.shape[1:]), none)
        target = torch.cat([target, extra])
    return _joined(inputs, more), target


class Batches:
    """Arrays dealt out in batches: in order, or shuffled by a seed. Iterate it as often as you like.

    Inputs are an array-like (NumPy, a memory map, a data frame, a tensor) or a dict or tuple of them; targets are class
    numbers, class names (then `names` is their order, sorted where not given) or real numbers. What is mapped from a
    file is read a batch at a time, so it may be larger than memory.
    """

    def __init__(
        self,
        inputs: Any,
        target: Any = None,
        *,
        weight: Float[Tensor, " N *rest"] | Float[np.ndarray, " N *rest"] | None = None,
        auxiliary: Any = None,
        batch_size: int = 128,
        index: Int[Tensor, " N"] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """`auxiliary` inputs (unlabelled, perhaps from elsewhere) are appended; they get no label."""
        self._files = [
            MappedFile(leaf)
            for leaf in _nest_of(inputs)
            if isinstance(leaf, np.memmap) and leaf.filename is not None and leaf.mode != "c"  # "c": changed in memory
        ]
        inputs, weight = as_inputs(inputs), None if weight is None else as_tensor(weight)
        self.names = None if names is None else list(names)
        if target is not None:
            target, self.names = class_numbers(target, self.names)
        sizes = {len(t) for t in tensors_in(inputs)} | {len(t) for t in (target, weight, index) if t is not None}
        if len(sizes) != 1:
            raise ValueError(f"inputs, target, weight and index must have one length, got {sorted(sizes)}")
        if sizes == {0}:
            raise ValueError("there are no examples: inputs are empty")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        own, elsewhere = sizes.pop(), None
        if auxiliary is not None:
            if weight is not None or index is not None:
                raise ValueError("auxiliary inputs are appended, so weight and index cannot be given beside them")
            inputs, target = _with_unlabelled(inputs, target, as_inputs(auxiliary))
            elsewhere = torch.arange(len(tensors_in(inputs)[0])) >= own
        size = len(tensors_in(inputs)[0])
        index = torch.arange(size) if index is None else index
        self._whole, self._rows = Batch(inputs, index, target, weight, elsewhere=elsewhere), None
        self.batch_size = batch_size

    @property
    def mapped(self) -> bool:
        """Whether examples are read from a file as they are dealt out."""
        return bool(self._files)

    @cached_property
    def all(self) -> Batch:
        """Every example at once; of a mapped file as a whole, nothing is read yet."""
        return self._whole if self._rows is None else self._whole.take(self._rows)

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self._whole) if self._rows is None else len(self._rows)

    def __len__(self) -> int:
        return -(-self.examples // self.batch_size)

    def take(self, rows: Tensor | slice) -> Batch:
        """Some examples; those of a mapped file are read from it."""
        if not self._files:
            return self.all.take(rows)
        chosen = rows if self._rows is None else self._rows[rows]

        def taken(tensor: Tensor) -> Tensor:
            file = next((file for file in self._files if file.holds(tensor)), None)
            found = tensor[chosen] if file is None else file.read(tensor, chosen)
            return found.float() if found.dtype == torch.float64 else found

        return replace(self._whole.changed(taken), index=self._whole.index[chosen])

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, self.examples, self.batch_size):
            yield self.take(slice(start, start + self.batch_size))

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Every example once, in an order that the seed and the epoch alone decide, from batch `start` on."""
        order = torch.randperm(self.examples, generator=generator(seed, "order", epoch))
        for rows in order.split(self.batch_size)[start:]:
            yield self.take(rows)

    def fingerprint(self) -> str:
        """Changes when any example does: which it is, what goes in, its label or its weight.

        A mapped file counts by its name, size, time of change and 64 of its rows: it is not read for this.
        """
        name, whole = "", self._whole
        if self._files:
            name = hashlib.sha256(repr([file.facts for file in self._files]).encode()).hexdigest()
            inputs = self.take(torch.linspace(0, self.examples - 1, min(SAMPLED, self.examples)).long()).inputs
        else:
            inputs, whole = self.all.inputs, self.all
        tensors = {"index": whole.index, "target": whole.target, "weight": whole.weight}
        tensors |= {f"inputs/{number}": tensor for number, tensor in enumerate(tensors_in(inputs))}
        return fingerprint({key: tensor for key, tensor in tensors.items() if tensor is not None}, name)

    def split(self, fraction: float, seed: int = 0) -> tuple["Batches", "Batches"]:
        """The rest, and this fraction of the examples held out; every example keeps its index."""
        held = round(fraction * self.examples)
        if not 0 < held < self.examples:
            raise ValueError(
                f"cannot hold out a fraction of {fraction} of {self.examples} examples: nothing would be left"
            )
        order = torch.randperm(self.examples, generator=generator(seed, "split"))
        return self.of(order[held:].sort().values), self.of(order[:held].sort().values)

    def _copy(self) -> "Batches":
        made = copy.copy(self)
        made.__dict__.pop("all", None)
        return made

    def of(self, rows: Tensor) -> "Batches":
        """Batches of some of the examples, which keep their index."""
        made = self._copy()
        made._rows = rows if self._rows is None else self._rows[rows]
        return made

    def with_unlabelled(self, inputs: Any, elsewhere: bool = False) -> "Batches":
        """These examples, and more that have no labels, of the same kind or from elsewhere (auxiliary).

        They are numbered on from the largest index.
        """
        own = self.all
        more, target = _with_unlabelled(own.inputs, own.target, as_inputs(inputs))
        extra = len(tensors_in(more)[0]) - len(own)
        weight = None if own.weight is None else torch.cat([own.weight, torch.ones(extra, *own.weight.shape[1:])])
        index = torch.cat([own.index, int(own.index.max()) + 1 + torch.arange(extra)])
        before = torch.zeros(len(own), dtype=torch.bool) if own.elsewhere is None else own.elsewhere
        made = Batches(more, target, weight=weight, batch_size=self.batch_size, index=index, names=self.names)
        return made.marked(torch.cat([before, torch.full((extra,), elsewhere)]))

    def marked(self, elsewhere: Bool[Tensor, " N"] | None) -> "Batches":
        """The same examples, and which of them are auxiliary."""
        made = self._copy()
        made._whole = replace(self._whole, elsewhere=elsewhere)
        return made

    def renumbered(self, names: Sequence[str]) -> "Batches":
        """The same examples, their classes numbered in the order of these names."""
        if self.names is None or self._whole.target is None or self.names == list(names):
            return self
        made = self._copy()
        made._whole = replace(self._whole, target=renumbered(self._whole.target, self.names, names))
        made.names = list(names)
        return made
