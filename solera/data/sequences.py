"""Sequences of many lengths: padded batch by batch, those of about one length together."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.disk import fingerprint
from solera.core.seeds import generator
from solera.data.arrays import as_array, as_tensor
from solera.data.batch import UNLABELLED, Batch


def _columns(inputs: Any) -> dict[str, Sequence[Any]]:
    """The lists of sequences that a nest is made of, by name; a single list has the name ''."""
    if isinstance(inputs, dict):
        return {str(key): value for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return {str(number): value for number, value in enumerate(inputs)}
    return {"": inputs}


def padded(rows: Sequence[Tensor], value: float) -> tuple[Tensor, Tensor]:
    """Sequences `[T, ...]` side by side, `[B, longest, ...]`, and where each is no padding, `[B, longest]`."""
    lengths = torch.tensor([len(row) for row in rows])
    whole = rows[0].new_full((len(rows), int(lengths.max()), *rows[0].shape[1:]), value)
    for place, row in zip(whole, rows, strict=True):
        place[: len(row)] = row
    return whole, torch.arange(whole.shape[1]) < lengths[:, None]


class Sequences:
    """Lists of sequences, dealt out in batches of at most `tokens` tokens, padding included.

    `inputs` is a list of arrays `[T]` or `[T, D]`, or a dict or tuple of such lists (a tokenizer's answer, source and
    prefix); `target` is a list of one target per token, or an array of one per sequence. Sequences of about one
    length share a batch; which ones, and the order of the batches, change in every epoch. Padding has weight 0.
    """

    def __init__(
        self,
        inputs: Any,
        target: Any = None,
        *,
        tokens: int = 2048,
        padding: float | dict[str, float] = 0,
        index: Tensor | None = None,
        per_token: bool | None = None,
        names: Sequence[str] | None = None,
        texts: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """`padding` fills up inputs: one number, or one for each input by name. `index` says which examples these are.

        Without targets each token is an element of its own (`per_token=False`: each sequence is). `names` are those of
        the classes, `texts` the tokens of each sequence as a person reads them, for reports.
        """
        self._nest, self.names = inputs, None if names is None else list(names)
        self.texts = None if texts is None else list(texts)
        self._inputs = {key: [as_tensor(row) for row in rows] for key, rows in _columns(inputs).items()}
        sizes = {len(rows) for rows in self._inputs.values()} | ({len(target)} if target is not None else set())
        if len(sizes) != 1 or sizes == {0}:
            raise ValueError(f"inputs and target must be lists of one length, at least 1, got {sorted(sizes)}")
        self.target = None if target is None else [_target(row) for row in target]
        if per_token is None:
            per_token = self.target is None or self.target[0].ndim > 0
        self.per_token, self.padding = per_token, padding
        self.index = torch.arange(self.examples) if index is None else index
        self.lengths = np.array([max(len(rows[i]) for rows in self._inputs.values()) for i in range(self.examples)])
        self._check(tokens)
        self.tokens = tokens
        self._cuts = _cuts(np.sort(self.lengths), tokens)

    def _check(self, tokens: int) -> None:
        if (empty := np.flatnonzero(self.lengths == 0)).size:
            raise ValueError(f"sequence {int(self.index[empty[0]])} is empty: leave it out")
        if (long := np.flatnonzero(self.lengths > tokens)).size:
            raise ValueError(
                f"sequence {int(self.index[long[0]])} has {self.lengths[long[0]]} tokens, a batch holds {tokens}: cut "
                f"it, or pass tokens={self.lengths.max()} or more"
            )
        first = next(iter(self._inputs.values()))
        for i, target in enumerate(self.target or []):
            if self.per_token and len(self._inputs) == 1 and len(target) != len(first[i]):
                raise ValueError(
                    f"sequence {int(self.index[i])} has {len(first[i])} tokens and {len(target)} targets: give one each"
                )

    @property
    def examples(self) -> int:
        """How many sequences there are."""
        return len(next(iter(self._inputs.values())))

    def __len__(self) -> int:
        return len(self._cuts) - 1

    @property
    def padding_share(self) -> float:
        """The share of all places in the batches that hold padding."""
        lengths = np.sort(self.lengths)
        places = sum((b - a) * lengths[b - 1] for a, b in itertools.pairwise(self._cuts))
        return 1 - float(lengths.sum() / places)

    def take(self, rows: Sequence[int] | np.ndarray | Tensor) -> Batch:
        """These sequences as one batch."""
        chosen = [int(row) for row in rows]
        filled, masks = {}, {}
        for key, column in self._inputs.items():
            value = self.padding.get(key, 0) if isinstance(self.padding, dict) else self.padding
            filled[key], masks[key] = padded([column[i] for i in chosen], value)
        index = self.index[torch.tensor(chosen)]
        target, weight = self._targets(chosen, next(reversed(masks.values())))
        return Batch(self._nested(filled), index, target, weight, masks=self._nested(masks))

    def _targets(self, chosen: list[int], mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if not self.per_token:
            target = None if self.target is None else torch.stack([self.target[i] for i in chosen])
            return target, None
        if self.target is None:
            return None, mask.float()
        none = float("nan") if self.target[0].is_floating_point() else UNLABELLED
        target, mask = padded([self.target[i] for i in chosen], none)
        return target, mask.float()

    def _nested(self, columns: dict[str, Any]) -> Any:
        if isinstance(self._nest, dict):
            return columns
        return tuple(columns.values()) if isinstance(self._nest, tuple) else columns[""]

    def _batches(self, order: np.ndarray) -> list[np.ndarray]:
        """The order, sorted by length (ties stay as they are), cut into batches."""
        by_length = order[np.argsort(self.lengths[order], kind="stable")]
        return [by_length[a:b] for a, b in itertools.pairwise(self._cuts)]

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._batches(np.arange(self.examples)):
            yield self.take(rows)

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Every sequence once, in batches and in an order that the seed and the epoch alone decide."""
        draw = generator(seed, "order", epoch)
        batches = self._batches(torch.randperm(self.examples, generator=draw).numpy())
        for number in torch.randperm(len(batches), generator=draw)[start:]:
            yield self.take(batches[int(number)])

    def fingerprint(self) -> str:
        """Changes when any sequence or target does."""
        tensors = {"index": self.index, "lengths": torch.from_numpy(self.lengths)}
        for key, column in self._inputs.items():
            tensors[f"inputs/{key}"] = torch.cat([row.reshape(-1) for row in column])
        if self.target is not None:
            tensors["target"] = torch.cat([row.reshape(-1) for row in self.target])
        return fingerprint(tensors)

    def split(self, fraction: float, seed: int = 0) -> tuple["Sequences", "Sequences"]:
        """The rest, and this fraction of the sequences held out; every one keeps its index."""
        held = round(fraction * self.examples)
        if not 0 < held < self.examples:
            raise ValueError(f"cannot hold out a fraction of {fraction} of {self.examples} sequences: nothing is left")
        order = torch.randperm(self.examples, generator=generator(seed, "split"))
        return self.of(order[held:].sort().values), self.of(order[:held].sort().values)

    def of(self, rows: Tensor) -> "Sequences":
        """Some of the sequences, which keep their index."""
        chosen = rows.tolist()
        inputs = {key: [column[i] for i in chosen] for key, column in self._inputs.items()}
        return Sequences(
            self._nested(inputs),
            None if self.target is None else [self.target[i] for i in chosen],
            tokens=self.tokens,
            padding=self.padding,
            index=self.index[rows],
            per_token=self.per_token,
            names=self.names,
            texts=None if self.texts is None else [self.texts[i] for i in chosen],
        )

    def text(self, example: int) -> Sequence[str] | None:
        """The tokens of the example of this index as a person reads them, where they are known."""
        return None if self.texts is None else self.texts[int((self.index == example).nonzero()[0])]


def _target(row: Any) -> Tensor:
    return row if isinstance(row, Tensor) else torch.as_tensor(as_array(row))


def _cuts(lengths: np.ndarray, tokens: int) -> list[int]:
    """Where sequences of these (rising) lengths are cut into batches of at most so many places."""
    cuts = [0]
    for place, length in enumerate(lengths.tolist()):
        if (place + 1 - cuts[-1]) * length > tokens and place > cuts[-1]:
            cuts.append(place)
    return [*cuts, len(lengths)]


def is_ragged(data: Any) -> bool:
    """Whether these are lists of sequences of several lengths: no array, and no list of batches."""
    if isinstance(data, (dict, tuple)) and data:
        values = list(data.values()) if isinstance(data, dict) else list(data)
        return all(is_ragged(value) for value in values)
    rows = isinstance(data, list) and bool(data) and all(hasattr(row, "__len__") for row in data)
    return rows and not any(isinstance(row, (str, dict, Batch)) for row in data)
