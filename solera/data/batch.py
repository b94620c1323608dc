"""What flows through the training loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

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


@runtime_checkable
class ManyBatches(Protocol):
    """A list of batches, a `Batches`, or anything else of known length that can be gone through again and again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


def in_order(batches: ManyBatches, seed: int, epoch: int) -> Iterator[Batch]:
    """One epoch: shuffled by the seed where the batches can be, in their own order otherwise."""
    return batches.shuffled(seed, epoch) if hasattr(batches, "shuffled") else iter(batches)  # type: ignore[union-attr]
