"""Data sets of others: torch's Dataset and DataLoader, Hugging Face's datasets; nothing is read before it is needed."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, TensorDataset

from solera.core.disk import fingerprint
from solera.core.seeds import generator, stream
from solera.data.arrays import as_array, as_inputs, as_target
from solera.data.batch import Batch, tensors_in
from solera.data.sequences import padded

Read = Callable[[Any, Tensor], Batch]  # what a collate function made of some examples, and which they are
TARGETS = ("labels", "label", "targets", "target", "y")  # under one of these names a dict holds its targets
SAMPLED = 64  # examples that stand for a data set in a fingerprint


def read_pair(raw: Any, index: Tensor) -> Batch:
    """What most collate functions give: inputs alone, a pair of inputs and targets, or a dict with a key `labels`."""
    if isinstance(raw, Batch):
        return raw
    if isinstance(raw, Mapping):
        found = [name for name in TARGETS if name in raw]
        weight = raw.get("weight")
        inputs = {str(k): v for k, v in raw.items() if k not in (*found[:1], "weight")}
        if len(inputs) == 1 and next(iter(inputs)) in ("inputs", "x"):
            (inputs,) = inputs.values()
        target = as_target(raw[found[0]]) if found else None
        return Batch(as_inputs(inputs), index, target, None if weight is None else torch.as_tensor(as_array(weight)))
    if isinstance(raw, (tuple, list)) and len(raw) == 1:
        (raw,) = raw
    if isinstance(raw, (tuple, list)) and len(raw) in (2, 3):
        weight = torch.as_tensor(as_array(raw[2])) if len(raw) == 3 else None
        if weight is not None and not weight.is_floating_point():
            raise ValueError(
                f"a triple is read as inputs, targets and weights, and here the third holds {weight.dtype}: give a "
                "dict with a key 'labels', or Loader(data, read=...), which says what is what"
            )
        return Batch(as_inputs(_tuples(raw[0])), index, as_target(raw[1]), weight)
    return Batch(as_inputs(_tuples(raw)), index)


def _tuples(nest: Any) -> Any:
    """torch's own collate function makes lists of tuples; a nest of tensors is made of tuples here."""
    return tuple(_tuples(part) for part in nest) if isinstance(nest, list) else nest


def collate(examples: list[Any]) -> Any:
    """Examples side by side, by their fields; numbers and arrays of one shape are stacked, sequences padded with 0."""
    first = examples[0]
    if isinstance(first, Mapping):
        return {key: _column(key, [example[key] for example in examples]) for key in first}
    if isinstance(first, tuple):
        return tuple(_column(number, list(part)) for number, part in enumerate(zip(*examples, strict=True)))
    return _column("", examples)


def _column(name: Any, values: list[Any]) -> Any:
    if isinstance(values[0], (Mapping, tuple)):
        return collate(values)
    tensors = [value if isinstance(value, Tensor) else _numbers(name, value) for value in values]
    if all(tensor.shape == tensors[0].shape for tensor in tensors):
        return torch.stack(tensors)
    return padded(tensors, 0)[0]


def _numbers(name: Any, value: Any) -> Tensor:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"field {name!r} of the data set holds {str(value)[:40]!r}, a network takes numbers: encode it, with "
            "a tokenizer, say, or remove the field"
        )
    return torch.as_tensor(array.astype(np.float32) if array.dtype == np.float64 else array)


class _Indexed(Dataset):
    """A data set whose examples come with their place; for a worker process to pick up."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, places: list[int]) -> list[tuple[int, Any]]:
        places = [int(place) for place in places]
        several = getattr(self.dataset, "__getitems__", None)
        found = several(places) if several is not None else [self.dataset[place] for place in places]
        return list(zip(places, found, strict=True))


class _Collate:
    """The places of some examples, and what a collate function makes of the examples themselves."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function

    def __call__(self, pairs: list[tuple[int, Any]]) -> tuple[Tensor, Any]:
        return torch.tensor([place for place, _ in pairs]), self.function([example for _, example in pairs])


class Loader:
    """A `DataLoader`, a map-style or iterable data set of torch's, or one of Hugging Face's `datasets`, as batches.

    `read` says what is input and what is target in what the collate function gives. Workers, batch size and collate
    function stay the loader's own. One that shuffles is shuffled by the training's seed, so that a run can be repeated
    and resumed. Iterables tell no length: `steps` batches make an epoch, and the next one goes on from the beginning.
    """

    names: list[str] | None = None

    def __init__(
        self,
        data: Any,
        *,
        batch_size: int = 128,
        read: Read = read_pair,
        steps: int | None = None,
        shuffle: bool = True,
    ) -> None:
        """`batch_size` and `shuffle` are for data sets; a loader has its own."""
        if not isinstance(data, DataLoader):
            stream = is_stream(data)
            order = None if stream else (RandomSampler if shuffle else SequentialSampler)(data)
            data = DataLoader(data, batch_size=batch_size, sampler=order, collate_fn=collate)
        self.loader, self.read, self.steps = data, read, steps
        ready = data.batch_size is None and data.batch_sampler is None  # the data set deals out whole batches
        self._stream = is_stream(data.dataset) or ready
        if self._stream and steps is None and not hasattr(data.dataset, "__len__"):
            raise ValueError(
                "an iterable data set does not say how long it is: pass Loader(data, steps=1000), the number of "
                "batches that make an epoch"
            )

    def __len__(self) -> int:
        return self.steps or len(self.loader)

    @property
    def _examples(self) -> int:
        """Of a data set that has places."""
        return len(self.loader.dataset)  # type: ignore[arg-type]  (torch does not say that they have a length)

    def _order(self, seed: int, epoch: int) -> Any:
        """The places of each batch of an epoch, as a batch sampler gives them."""
        loader, size = self.loader, self.loader.batch_size
        plain = isinstance(loader.sampler, (RandomSampler, SequentialSampler)) and size is not None
        if plain and not getattr(loader.sampler, "replacement", False):
            count = self._examples
            shuffled = isinstance(loader.sampler, RandomSampler)
            order = (
                torch.randperm(count, generator=generator(seed, "order", epoch)) if shuffled else torch.arange(count)
            )
            parts = [part.tolist() for part in order.split(size or 1)]
            return parts[: len(loader)] if loader.drop_last else parts
        own = loader.batch_sampler if loader.batch_sampler is not None else ([place] for place in loader.sampler)
        for sampler in (loader.batch_sampler, loader.sampler):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)  # type: ignore[union-attr]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(seed, "order", epoch))  # a sampler that draws from torch's own numbers
            return list(own)

    def _like(self, dataset: Any, **settings: Any) -> DataLoader:
        loader = self.loader
        workers = {"prefetch_factor": loader.prefetch_factor} if loader.num_workers else {}
        return DataLoader(
            dataset,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            **workers,
            **settings,
        )

    def _mapped(self, order: list[list[int]], seed: int, epoch: int) -> Iterator[Batch]:
        function = _Collate(self.loader.collate_fn or collate)
        draws = generator(seed, "workers", epoch)  # of the random numbers inside the workers
        for index, raw in self._like(
            _Indexed(self.loader.dataset), batch_sampler=order, collate_fn=function, generator=draws
        ):
            yield self.read(raw, index)

    def _streamed(self, epoch: int, start: int) -> Iterator[Batch]:
        count, dealt = 0, 0
        if hasattr(self.loader.dataset, "set_epoch"):
            self.loader.dataset.set_epoch(epoch)  # type: ignore[union-attr]
        rounds = itertools.count() if self.steps else range(1)
        for _ in rounds:
            before = dealt
            for raw in self.loader:
                batch = self.read(raw, torch.zeros(0, dtype=torch.long))
                size = len(tensors_in(batch.inputs)[0])
                batch, count = replace(batch, index=torch.arange(count, count + size)), count + size
                dealt += 1
                if dealt > start:
                    yield batch
                if dealt == self.steps:
                    return
            if dealt == before:
                raise ValueError("the iterable data set gave no batch: it is empty, or can be gone through only once")

    def __iter__(self) -> Iterator[Batch]:
        if self._stream:
            return self._streamed(0, 0)
        places, size = self._places()
        return self._mapped([part.tolist() for part in torch.tensor(places).split(size)], 0, 0)

    def _places(self) -> tuple[list[int], int]:
        """The examples that the loader's sampler picks, each once, in rising order; and how many make a batch."""
        loader, size = self.loader, self.loader.batch_size
        if isinstance(loader.sampler, (RandomSampler, SequentialSampler)) and size is not None:
            count = self._examples
            left_over = count % size if loader.drop_last and isinstance(loader.sampler, SequentialSampler) else 0
            return list(range(count - left_over)), size
        order = self._order(0, 0)
        return sorted({place for part in order for place in part}), size or max(map(len, order))

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """One epoch, from its batch `start` on: what comes before is not read, where the data have places."""
        if self._stream:
            return self._streamed(epoch, start)
        return self._mapped(list(self._order(seed, epoch))[start:], seed, epoch)

    def fingerprint(self) -> str:
        """By the kind of data, its length, and 64 examples: the whole is not read for this, unless it is in memory."""
        dataset = self.loader.dataset
        facts = [type(dataset).__qualname__, len(self), self.loader.batch_size, getattr(dataset, "_fingerprint", "")]
        name = hashlib.sha256(repr(facts).encode()).hexdigest()
        if self._stream:
            first = next(iter(self))
        else:
            count = self._examples
            most = count if isinstance(dataset, TensorDataset) else min(SAMPLED, count)
            places = torch.linspace(0, count - 1, most).long().tolist()
            first = next(self._mapped([places], 0, 0))
        tensors = {str(number): tensor for number, tensor in enumerate(tensors_in(first.inputs))}
        return fingerprint(tensors if first.target is None else {**tensors, "target": first.target}, name)


def is_stream(data: Any) -> bool:
    """Whether a data set can only be gone through: it has no places."""
    return isinstance(data, IterableDataset) or (hasattr(data, "__iter__") and not hasattr(data, "__getitem__"))


def is_data_set(data: Any) -> bool:
    """Whether this is a loader or a data set of torch's or Hugging Face's."""
    foreign = type(data).__module__.split(".")[0] == "datasets"
    return isinstance(data, (DataLoader, Dataset)) or foreign
