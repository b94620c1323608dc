"""What flows through the training loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from solera.core.disk import fingerprint
from solera.core.seeds import generator

UNLABELLED = -100  # the class of an example that has none (auxiliary inputs): the teacher speaks for it, no label does


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Any) -> Any:
    """The same nest of tuples, lists and dicts with every tensor changed."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        return {key: map_tensors(function, value) for key, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return type(inputs)(map_tensors(function, value) for value in inputs)
    raise TypeError(f"inputs must be tensors, or tuples, lists or dicts of them, got {type(inputs).__name__}")


def tensors_in(inputs: Any) -> list[Tensor]:
    """Every tensor in such a nest, in order."""
    found: list[Tensor] = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, inputs)
    return found


@dataclass(frozen=True)
class Batch:
    """Some examples: what goes in, which ones they are, and, where known, their labels and weights."""

    inputs: Any  # a tensor, or a nest of tensors, first axis B
    index: Int[Tensor, " B"]  # which examples these are, so that a transfer set can be asked about them
    target: Shaped[Tensor, "..."] | None = None  # a class per element of *batch, or real numbers
    weight: Float[Tensor, "*batch"] | None = None  # 0 where a token is padding
    share: float = 1.0  # this part's weight in the whole batch, times the number of parts

    def __len__(self) -> int:
        return len(self.index)

    def average(self, loss: Float[Tensor, "*batch"]) -> Float[Tensor, ""]:
        """The weighted mean: the only reduction in the library. Parts of a batch average to the whole's average."""
        if self.weight is None:
            return self.share * loss.mean()
        size = self.weight.sum()
        if size == 0:
            return (loss * self.weight).sum()
        return self.share * (loss * self.weight).sum() / size

    def to(self, device: torch.device) -> "Batch":
        """On that device."""
        moved = [t if t is None else t.to(device) for t in (self.target, self.weight)]
        inputs = map_tensors(lambda t: t.to(device), self.inputs)
        return replace(self, inputs=inputs, target=moved[0], weight=moved[1])

    def take(self, rows: Tensor | slice) -> "Batch":
        """Some of the examples."""
        chosen = [t if t is None else t[rows] for t in (self.target, self.weight)]
        inputs = map_tensors(lambda t: t[rows], self.inputs)
        return replace(self, inputs=inputs, index=self.index[rows], target=chosen[0], weight=chosen[1])

    def part(self, rank: int, count: int) -> "Batch":
        """The part of one process out of `count`; the mean over parts of `average` is the whole batch's average."""
        if count == 1:
            return self
        mine = self.take(slice(rank, None, count))
        if len(mine) == 0:  # fewer examples than processes: stand in with one that counts nothing
            mine = self.take(slice(0, 1))
            like = mine.target if mine.weight is None and mine.target is not None else mine.weight
            weight = torch.zeros(1) if like is None else torch.zeros(like.shape)
            return replace(mine, weight=weight, share=0.0)
        if self.weight is None:
            return replace(mine, share=count * len(mine) / len(self))
        whole = float(self.weight.sum())
        return replace(
            mine, share=count * float(mine.weight.sum()) / whole if whole and mine.weight is not None else 0.0
        )


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


Augment = Callable[[Tensor, torch.Generator], Tensor]  # examples and random numbers -> what is seen of them


class Augmented:
    """Fresh random views in every epoch, a batch at a time; examples keep their index.

    So a live teacher is asked about what the student sees, while one that remembers answers for the plain example.
    In order, unshuffled, the examples are dealt out plain.
    """

    def __init__(self, batches: Batches, augment: Augment, seed: int = 0) -> None:
        self.batches, self.augment, self.seed = batches, augment, seed

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    def shuffled(self, seed: int, epoch: int = 0) -> Iterator[Batch]:
        """Every example once, in an order and by random numbers that seeds and epoch alone decide."""
        for step, batch in enumerate(self.batches.shuffled(seed, epoch)):
            yield replace(batch, inputs=self.augment(batch.inputs, generator(self.seed, "augment", seed, epoch, step)))

    def fingerprint(self) -> str:
        """That of the plain examples."""
        return self.batches.fingerprint()


class Views:
    """Seeded augmentation: V views of every example, each always the same: remembered targets match them exactly.

    `augment` gets one example at a time. View v of example i has index i·V + v and random numbers of its own. In order,
    all views are dealt out (to capture them); shuffled, every example once per epoch, its views taking turns.
    """

    def __init__(self, batches: Batches, augment: Augment, views: int, seed: int = 0) -> None:
        if views < 1:
            raise ValueError(f"there must be at least one view of each example, got views={views}")
        self.batches, self.augment, self.views, self.seed = batches, augment, views, seed

    def __len__(self) -> int:
        return len(self.batches)

    def _seen(self, batch: Batch, view: Tensor) -> Batch:
        index = batch.index * self.views + view
        seen = [self.augment(x, generator(self.seed, "view", int(i))) for x, i in zip(batch.inputs, index, strict=True)]
        return replace(batch, inputs=torch.stack(seen), index=index)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            for view in range(self.views):
                yield self._seen(batch, torch.full((len(batch),), view))

    def shuffled(self, seed: int, epoch: int = 0) -> Iterator[Batch]:
        """Every example once, as its view of this epoch."""
        for batch in self.batches.shuffled(seed, epoch):
            yield self._seen(batch, (batch.index + epoch) % self.views)


@runtime_checkable
class ManyBatches(Protocol):
    """A list of batches, a `Batches`, or anything else of known length that can be gone through again and again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


def in_order(batches: ManyBatches, seed: int, epoch: int) -> Iterator[Batch]:
    """One epoch: shuffled by the seed where the batches can be, in their own order otherwise."""
    return batches.shuffled(seed, epoch) if hasattr(batches, "shuffled") else iter(batches)  # type: ignore[union-attr]
