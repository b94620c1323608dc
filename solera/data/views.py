"""What is seen of an example: random augmentation, fresh in every epoch or seeded."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from solera.core.disk import fingerprint
from solera.core.seeds import generator
from solera.data.batch import UNLABELLED, Batch, Shuffling, tensors_in
from solera.data.draws import Keyed
from solera.data.view import View

Augment = Callable[[Tensor, torch.Generator], Tensor]  # examples and random numbers -> what is seen of them


def _seen(batch: Batch, inputs: Any, augment: Augment) -> Batch:
    """The batch with these inputs; what was changed by a view that does not keep the class has no label."""
    seen = replace(batch, inputs=inputs)
    if batch.target is None or not isinstance(augment, View) or augment.keeps_class:
        return seen
    pairs = zip(tensors_in(inputs), tensors_in(batch.inputs), strict=True)
    parts = torch.stack([(new != old).reshape(len(old), -1).any(1) for new, old in pairs])
    changed = parts.any(0).reshape(-1, *[1] * (batch.target.ndim - 1))
    none = float("nan") if batch.target.is_floating_point() else UNLABELLED
    return replace(seen, target=batch.target.masked_fill(changed, none))


class Augmented:
    """Fresh random views in every epoch, a batch at a time; examples keep their index.

    So a live teacher is asked about what the student sees, while one that remembers answers for the plain example.
    In order, unshuffled, the examples are dealt out plain. Labels stay, but for those of examples that were changed by
    a named view which does not keep the class (`Resample`, `Blend`).
    """

    def __init__(self, batches: Shuffling, augment: Augment, seed: int = 0) -> None:
        self.batches, self.augment, self.seed = batches, augment, seed

    @property
    def names(self) -> list[str] | None:
        """Of the classes, where the plain examples have some."""
        return getattr(self.batches, "names", None)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Every example once, in an order and by random numbers that seeds and epoch alone decide."""
        for step, batch in enumerate(self.batches.shuffled(seed, epoch, start), start):
            draw = generator(self.seed, "augment", seed, epoch, step)
            seen = _seen(batch, self.augment(batch.inputs, draw), self.augment)
            yield replace(seen, plain=batch.inputs)

    def fingerprint(self) -> str:
        """That of the plain examples."""
        return self.batches.fingerprint()


class Views:
    """Seeded augmentation: V views of every example, each always the same: remembered targets match them exactly.

    View v of example i has index i·V + v and random numbers that the seed and this index alone decide, whatever batch
    it comes in. The named views of `solera.data.augment` change a batch at a time, any other function gets one example
    at a time. In order, all views are dealt out (to capture them); shuffled, every example once per epoch, its views
    taking turns. Labels are as with `Augmented`.
    """

    def __init__(self, batches: Shuffling, augment: Augment, views: int, seed: int = 0) -> None:
        if views < 1:
            raise ValueError(f"there must be at least one view of each example, got views={views}")
        self.batches, self.augment, self.views, self.seed = batches, augment, views, seed

    @property
    def names(self) -> list[str] | None:
        """Of the classes, where the plain examples have some."""
        return getattr(self.batches, "names", None)

    def __len__(self) -> int:
        return len(self.batches)

    def _seen(self, batch: Batch, view: Tensor) -> Batch:
        index = batch.index * self.views + view
        if isinstance(self.augment, View):
            inputs = self.augment.seen(batch.inputs, Keyed(self.seed, index))
        else:
            pairs = zip(batch.inputs, index, strict=True)
            inputs = torch.stack([self.augment(x, generator(self.seed, "view", int(i))) for x, i in pairs])
        return replace(_seen(batch, inputs, self.augment), index=index)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            for view in range(self.views):
                yield self._seen(batch, torch.full((len(batch),), view))

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Every example once, as its view of this epoch."""
        for batch in self.batches.shuffled(seed, epoch, start):
            yield self._seen(batch, (batch.index + epoch) % self.views)

    def fingerprint(self) -> str:
        """That of the plain examples and of the views of the first of them: `augment` is part of the data."""
        first = next(iter(self))
        seen = fingerprint({str(number): tensor for number, tensor in enumerate(tensors_in(first.inputs))})
        return f"{self.batches.fingerprint()} {self.views} views {self.seed} {seen}"
