"""Examples in memory."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from solera.core.disk import fingerprint
from solera.core.seeds import generator
from solera.data.batch import UNLABELLED, Batch, tensors_in


class Batches:
    """Arrays in memory, dealt out in batches: in order, or shuffled by a seed. Iterate it as often as you like."""

    def __init__(
        self,
        inputs: Any,
        target: Shaped[Tensor, " N *rest"] | None = None,
        *,
        weight: Float[Tensor, " N *rest"] | None = None,
        auxiliary: Any = None,
        batch_size: int = 128,
        index: Int[Tensor, " N"] | None = None,
    ) -> None:
        """`auxiliary` inputs (unlabelled, perhaps from elsewhere) are appended; they get no label."""
        sizes = {len(t) for t in tensors_in(inputs)} | {len(t) for t in (target, weight, index) if t is not None}
        if len(sizes) != 1:
            raise ValueError(f"inputs, target, weight and index must have one length, got {sorted(sizes)}")
        if sizes == {0}:
            raise ValueError("there are no examples: inputs are empty")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if auxiliary is not None:
            if weight is not None or index is not None:
                raise ValueError("auxiliary inputs are appended, so weight and index cannot be given beside them")
            extra = len(auxiliary)
            inputs = torch.cat([inputs, auxiliary])
            if target is not None:
                none = float("nan") if target.is_floating_point() else UNLABELLED
                target = torch.cat([target, target.new_full((extra, *target.shape[1:]), none)])
        size = len(tensors_in(inputs)[0])
        index = torch.arange(size) if index is None else index
        self.all = Batch(inputs, index, target, weight)
        self.batch_size = batch_size

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self.all)

    def __len__(self) -> int:
        return -(-self.examples // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, self.examples, self.batch_size):
            yield self.all.take(slice(start, start + self.batch_size))

    def shuffled(self, seed: int, epoch: int = 0) -> Iterator[Batch]:
        """Every example once, in an order that the seed and the epoch alone decide."""
        order = torch.randperm(self.examples, generator=generator(seed, "order", epoch))
        for rows in order.split(self.batch_size):
            yield self.all.take(rows)

    def fingerprint(self) -> str:
        """Changes when any example does: which it is, what goes in, its label or its weight."""
        whole = self.all
        tensors = {"index": whole.index, "target": whole.target, "weight": whole.weight}
        tensors |= {f"inputs/{number}": tensor for number, tensor in enumerate(tensors_in(whole.inputs))}
        return fingerprint({name: tensor for name, tensor in tensors.items() if tensor is not None})

    def split(self, fraction: float, seed: int = 0) -> tuple["Batches", "Batches"]:
        """The rest, and this fraction of the examples held out; every example keeps its index."""
        held = round(fraction * self.examples)
        if not 0 < held < self.examples:
            raise ValueError(
                f"cannot hold out a fraction of {fraction} of {self.examples} examples: nothing would be left"
            )
        order = torch.randperm(self.examples, generator=generator(seed, "split"))
        first, second = (self.all.take(rows.sort().values) for rows in (order[held:], order[:held]))
        return self._like(first), self._like(second)

    def _like(self, part: Batch) -> "Batches":
        return Batches(part.inputs, part.target, weight=part.weight, batch_size=self.batch_size, index=part.index)
