"""The ensemble's predictions, remembered on disk.

A folder of immutable safetensors shards and a `manifest.json`. Every shard holds the codec's columns (one row per
example, or per token of ragged sequences), `index` (which examples), `lengths` (how many rows each has) and
`fingerprints` (of the inputs that were asked about).
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.disk import inside, read_manifest
from solera.core.errors import DamagedFileError, MismatchError
from solera.core.renamed import RenamedAttribute, renamed_arguments
from solera.core.schema import reading, require_form
from solera.core.tensor_files import map_tensors
from solera.data import Batch, tensors_in
from solera.distributions.base import Targets
from solera.distributions.mixture import FEW, Mixture
from solera.teachers.base import Teacher, row_fingerprints
from solera.teachers.codecs import Codec, Columns, DenseCodec, codec_named

KIND, VERSION = "transfer set", 1
BOOKKEEPING = ("index", "lengths", "fingerprints")
LOGARITHMS = ("members", "mean", "kept")  # columns of log-probabilities


FORM = {  # of manifest.json
    "codec": {"name": str},
    "members": [str],
    "labels": (None, [str]),
    "vocabulary?": (None, str),
    "shards": [{"file": str, "sha256": str, "examples": int}],
    "complete": bool,
    "classes?": int,
    "tokens?": bool,
}


def read_own_manifest(file: Path) -> dict[str, Any]:
    """The manifest of a transfer set, every key as it must be."""
    found = read_manifest(file, KIND, VERSION)
    require_form(file, found, FORM)
    if found["shards"]:
        require_form(file, found, {"classes": int, "tokens": bool})
    return found


def open_shard(path: Path, entry: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of one shard, once its checksum is right and its columns have a row for every example or token."""
    file = inside(path, entry["file"])
    found = map_tensors(file, entry["sha256"])
    if missing := [name for name in BOOKKEEPING if name not in found]:
        raise DamagedFileError(f"{file} has no column {missing[0]!r}: restore it, or capture again")
    index, lengths = found["index"], found["lengths"]
    whole = index.dtype == lengths.dtype == np.int64 and found["fingerprints"].dtype == np.uint64
    flat = index.ndim == 1 and index.shape == lengths.shape == found["fingerprints"].shape
    if not (whole and flat) or (lengths < 0).any():
        raise DamagedFileError(f"{file}: its columns index, lengths and fingerprints do not belong together")
    rows = int(lengths.sum())
    if len(lengths) and int(lengths.max()) > rows:  # 64 bits do not hold the sum
        raise DamagedFileError(f"{file}: column 'lengths' has an example of {int(lengths.max())} rows of {rows}")
    for name, column in found.items():
        if name not in BOOKKEEPING and (column.ndim < 1 or len(column) != rows):
            raise DamagedFileError(f"{file}: column {name!r} has the shape {column.shape}, not {rows} rows")
    return found


def require_promised(file: Path, columns: dict[str, np.ndarray], codec: Codec, classes: int, tokens: bool) -> None:
    """Refuses a shard whose columns are not those that the codec writes for so many classes."""
    found = {name: column for name, column in columns.items() if name not in BOOKKEEPING}
    promised = codec.axes(found, classes)
    if other := sorted(promised.keys() ^ found.keys()):
        there = "has a" if other[0] in found else "has no"
        raise DamagedFileError(f"{file} {there} column {other[0]!r}, which its codec writes otherwise: capture again")
    members = {size for name, axes in promised.items() for size, axis in _pairs(found[name], axes) if axis is None}
    for name, axes in promised.items():
        column, kind = found[name], np.integer if name == "indices" else np.floating
        fits = column.ndim == 1 + len(axes) and all(axis in (None, size) for size, axis in _pairs(column, axes))
        if not fits or len(members) > 1 or 0 in members or not np.issubdtype(column.dtype, kind):
            raise DamagedFileError(
                f"{file}: column {name!r} is {column.dtype} {column.shape}, not what its codec writes for {classes} "
                "classes: capture again"
            )
    if not tokens and (columns["lengths"] != 1).any():
        raise DamagedFileError(f"{file}: column 'lengths' has examples of several rows, its manifest has no tokens")
    if "indices" in found:
        _require_kept(file, found, classes)


def _pairs(column: np.ndarray, axes: tuple[int | None, ...]) -> list[tuple[int, int | None]]:
    return list(zip(column.shape[1:], axes, strict=False))


def _require_kept(file: Path, columns: dict[str, np.ndarray], classes: int) -> None:
    """The kept classes are among all; where all are kept, nothing is left for the tail."""
    ids = columns["indices"]
    if classes > np.iinfo(ids.dtype).max + 1 or (ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < classes):
        raise DamagedFileError(f"{file}: column 'indices' does not name some of {classes} classes: capture again")
    if ids.shape[-1] == classes and columns["tail"].any():
        raise DamagedFileError(f"{file}: column 'tail' has more than the {classes} classes: capture again")


def _require_same_columns(files: list[Path], shards: list[dict[str, np.ndarray]]) -> None:
    """All shards have the columns of the first."""
    first = {name: (column.dtype, column.shape[1:]) for name, column in shards[0].items()}
    for file, shard in zip(files, shards, strict=True):
        if first != {name: (column.dtype, column.shape[1:]) for name, column in shard.items()}:
            raise DamagedFileError(f"{file} has other columns than {files[0].name}: capture again")


class TransferSet:
    """A teacher that remembers: it answers about the examples it was captured on, and only about those."""

    live = False

    labels = RenamedAttribute("class_names")

    @renamed_arguments(labels="class_names")
    def __init__(self, path: str | Path, teacher: Teacher | None = None, class_names: list[str] | None = None) -> None:
        """Reads every checksum first. With `teacher` or `class_names`, refuses predictions that belong to others."""
        self.path = Path(path)
        self.manifest = read_own_manifest(self.path / "manifest.json")
        if not self.manifest["complete"]:
            raise DamagedFileError(f"{self.path} was left unfinished: run the same capture again to complete it")
        if teacher is not None:
            require_same_members(self.path, self.manifest["members"], teacher.fingerprints)
        if class_names is not None and class_names != self.manifest["labels"]:
            raise MismatchError(
                f"{self.path} was captured with the class names {self.manifest['labels']}, "
                f"these are {class_names}: capture again"
            )
        if not self.manifest["shards"]:
            raise DamagedFileError(f"{self.path / 'manifest.json'} names no shards: capture again")
        with reading(self.path / "manifest.json", "codec"):
            self.codec = codec_named(**self.manifest["codec"])
        self.shards = self._opened()
        self._ids, self._place, self._lengths, self._fingerprints = self._bookkeeping()

    def _opened(self) -> list[dict[str, np.ndarray]]:
        """All shards, once they are what the manifest promises."""
        file, names, classes = self.path / "manifest.json", self.class_names, self.classes
        if classes < 1 or (names is not None and len(names) != classes):
            raise DamagedFileError(f"{file}: classes are {classes}, their names {names and len(names)}: capture again")
        files = [inside(self.path, entry["file"]) for entry in self.manifest["shards"]]
        shards = [open_shard(self.path, entry) for entry in self.manifest["shards"]]
        for file, shard in zip(files, shards, strict=True):
            require_promised(file, shard, self.codec, classes, self.manifest["tokens"])
        _require_same_columns(files, shards)
        return shards

    def _bookkeeping(self) -> tuple[np.ndarray, ...]:
        """Sorted example ids and, for each: (shard, first row), number of rows, fingerprint of its input."""
        ids = np.concatenate([s["index"] for s in self.shards])
        lengths = np.concatenate([s["lengths"] for s in self.shards])
        first = np.concatenate([np.cumsum(s["lengths"]) - s["lengths"] for s in self.shards])
        shard = np.repeat(np.arange(len(self.shards)), [len(s["index"]) for s in self.shards])
        fingerprints = np.concatenate([s["fingerprints"] for s in self.shards])
        order = np.argsort(ids, kind="stable")
        if (twice := np.diff(ids[order]) == 0).any():
            raise MismatchError(
                f"{self.path} holds example {ids[order][1:][twice][0]} twice: give every example its index"
            )
        return ids[order], np.stack([shard, first], -1)[order], lengths[order], fingerprints[order]

    @property
    def members(self) -> int:
        return len(self.manifest["members"])

    @property
    def fingerprints(self) -> list[str]:
        return self.manifest["members"]

    @property
    def classes(self) -> int:
        """K."""
        return self.manifest["classes"]

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes (or targets), if the ensemble had any."""
        return self.manifest["labels"]

    @property
    def vocabulary(self) -> str | None:
        """The fingerprint of the tokenizer that made the tokens, if there was one."""
        return self.manifest.get("vocabulary")

    def __len__(self) -> int:
        return len(self._ids)

    def _positions(self, batch: Batch) -> np.ndarray:
        wanted = batch.index.numpy()
        found = np.searchsorted(self._ids, wanted).clip(max=len(self._ids) - 1)
        if (missing := self._ids[found] != wanted).any():
            raise MismatchError(
                f"{self.path} has no prediction for example {wanted[missing][0]} (it remembers {len(self)} examples): "
                "capture these inputs, or pass the live Ensemble"
            )
        return found

    def check(self, batch: Batch) -> None:
        """Refuses inputs that are not the ones the ensemble was asked about."""
        found = self._positions(batch)
        if (other := self._fingerprints[found] != row_fingerprints(batch)).any():
            raise MismatchError(
                f"{self.path} was captured on other inputs: example {batch.index.numpy()[other][0]} is not what the "
                "ensemble saw under that index: pass the same data in the same order, or capture again"
            )

    def __call__(self, batch: Batch) -> Targets:
        found = self._positions(batch)
        device = (tensors_in(batch.inputs)[0] if batch.weight is None else batch.weight).device
        if self._members is not None:
            return self._members.rows(torch.from_numpy(found), device)
        weight = batch.weight if self.manifest["tokens"] else None
        columns = self._columns(found, None if weight is None else weight.shape[1])
        return self.codec.decode({k: v.to(device) for k, v in columns.items()}, self.classes)

    @cached_property
    def _members(self) -> Mixture | None:
        """What all members said about all examples, where that is little: read and measured once."""
        numbers = len(self) * self.members * self.classes
        if self.manifest["tokens"] or not isinstance(self.codec, DenseCodec) or numbers > FEW:
            return None
        try:
            return self.codec.decode(self._columns(np.arange(len(self)), None), self.classes)
        except DamagedFileError:  # told to whoever asks about that example
            return None

    def _columns(self, found: np.ndarray, width: int | None) -> Columns:
        """What was said about these examples; sequences are padded to `width` tokens, or to the longest."""
        columns = {name: self._gather(name, found, width) for name in self.shards[0] if name not in BOOKKEEPING}
        self._require_numbers(columns, found)
        return columns

    def _require_numbers(self, columns: Columns, found: np.ndarray) -> None:
        """Refuses answers that no teacher gave: NaN anywhere, or a probability that is infinite."""
        for name, column in columns.items():
            wrong = ~(column < torch.inf) if name in LOGARITHMS else column.isnan()
            if bool(wrong.any()):
                example = self._ids[found[int(wrong.reshape(len(column), -1).any(1).int().argmax())]]
                raise DamagedFileError(f"{self.path}: column {name!r} of example {example} is no number: capture again")

    def _gather(self, name: str, found: np.ndarray, width: int | None) -> Tensor:
        """Rows of one column in this order: `[B, ...]`, or `[B, T, ...]` padded with zeros for sequences."""
        shard, first = self._place[found].T
        column = self.shards[0][name]
        signed = {"uint16": np.int32, "uint32": np.int64}.get(
            column.dtype.name, column.dtype
        )  # torch gathers no unsigned
        if not self.manifest["tokens"]:
            result = np.empty((len(found), *column.shape[1:]), signed)
            for number in np.unique(shard):
                mine = shard == number
                result[mine] = self.shards[number][name][first[mine]]
            return torch.from_numpy(result)
        lengths = self._lengths[found]
        result = np.zeros((len(found), lengths.max() if width is None else width, *column.shape[1:]), signed)
        for row, (number, start, length) in enumerate(zip(shard, first, lengths, strict=True)):
            result[row, :length] = self.shards[number][name][start : start + length]
        return torch.from_numpy(result)


def require_same_members(path: Path, remembered: list[str], asked: list[str]) -> None:
    """Refuses a transfer set that another ensemble made, naming the first member that differs."""
    if len(remembered) != len(asked):
        raise MismatchError(
            f"{path} remembers {len(remembered)} members, this ensemble has {len(asked)}: capture again"
        )
    for number, (old, new) in enumerate(zip(remembered, asked, strict=True)):
        if old != new:
            raise MismatchError(
                f"{path} was captured from another ensemble: member {number} was {old}, this one is {new}: "
                "capture again into another folder"
            )
