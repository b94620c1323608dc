"""Some examples at a time: what flows through the training loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from solera.core.checks import require_example_weights, require_finite

UNLABELLED = -100  # the class of an example that has none (auxiliary inputs): the teacher speaks for it, no label does


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Any) -> Any:
    """The same nest of tuples, lists and dicts with every tensor changed."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        return {key: map_tensors(function, value) for key, value in inputs.items()}
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):  # a named tuple takes its fields one by one
        return type(inputs)(*(map_tensors(function, value) for value in inputs))
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
    """Some examples: what goes in, which ones they are, and, where known, their targets and weights.

    Sequences are padded: `weight` says which tokens of the target count, `masks`, a nest such as `inputs`, which
    numbers of the inputs are no padding.
    """

    inputs: Any  # a tensor, or a nest of tensors, first axis B
    index: Int[Tensor, " B"]  # which examples these are, so that a transfer set can be asked about them
    target: Shaped[Tensor, "..."] | None = None  # a class per element of *batch, or real numbers
    weight: Float[Tensor, "*batch"] | None = None  # 0 where a token is padding
    share: float = 1.0  # this part's weight in the whole batch, times the number of parts
    masks: Any = None  # true where the inputs are no padding
    plain: Any = None  # what a random view was made from: a teacher that remembers answers for that
    elsewhere: Bool[Tensor, "..."] | None = None  # which are auxiliary, from another source; None: it was not said

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

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """With every tensor but the index changed: moved, cut."""
        columns = {key: getattr(self, key) for key in ("target", "weight", "elsewhere")}
        columns = {key: None if column is None else change(column) for key, column in columns.items()}
        masks = None if self.masks is None else map_tensors(change, self.masks)
        return replace(self, inputs=map_tensors(change, self.inputs), masks=masks, **columns)

    def to(self, device: torch.device) -> "Batch":
        """On that device."""
        return self.changed(lambda tensor: tensor.to(device))

    def take(self, rows: Tensor | slice) -> "Batch":
        """Some of the examples."""
        return replace(self.changed(lambda tensor: tensor[rows]), index=self.index[rows])

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


def require_finite_inputs(batch: Batch) -> None:
    """Names the first example whose inputs hold a NaN or an infinity."""
    for tensor in tensors_in(batch.inputs):
        require_finite("inputs", tensor, batch.index)


def require_sound(batch: Batch) -> None:
    """Names the first example whose inputs are not finite, or whose weight is negative or not finite."""
    require_finite_inputs(batch)
    if batch.weight is not None:
        require_example_weights(batch.weight, batch.index)


@runtime_checkable
class ManyBatches(Protocol):
    """A list of batches, a `Batches`, or anything else of known length that can be gone through again and again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


@runtime_checkable
class Shuffling(ManyBatches, Protocol):
    """Batches that come in another order in every epoch, and know what they are made of."""

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """One epoch from its batch number `start` on, in an order that the seed and the epoch alone decide."""
        ...

    def fingerprint(self) -> str:
        """Changes when the data do."""
        ...
