"""Ask the teacher once about every example and keep the answers."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.checks import require_several_classes
from solera.core.disk import only_writer, require_room, write_manifest
from solera.core.errors import MismatchError
from solera.core.processes import await_first, present, rank_and_world, require_nobody
from solera.core.progress import progress, tell
from solera.core.renamed import renamed_arguments
from solera.core.tensor_files import write_tensors
from solera.data import Batch, Batches, as_batches, require_finite_inputs
from solera.data.names import Names, as_names
from solera.tasks import Task
from solera.teachers.base import Teacher, row_fingerprints
from solera.teachers.codecs import Codec, Columns, codec_named
from solera.teachers.manifests import MANIFEST, gather_leftovers, join, nothing, opened, part_name, settings_of
from solera.teachers.transfer_set import KIND, VERSION, TransferSet, open_shard, require_same_members
from solera.teachers.truth import (
    OURS,
    Indices,
    answered,
    require_distinct,
    require_finite_answers,
    require_own_shard,
)

ROUNDING = 0.005  # of a mean probability that was kept in 16 bits; of continuous targets, relative to max(1, |mean|)
_BOOKKEEPING_BYTES = 24  # index, length and fingerprint of an example


def lengths_of(batch: Batch) -> Tensor:
    """How many rows each example has: one, or its tokens up to the last with a weight."""
    if batch.weight is None or batch.weight.ndim < 2:
        return torch.ones(len(batch), dtype=torch.int64)
    valid = batch.weight > 0
    return (torch.arange(1, valid.shape[1] + 1) * valid).amax(1)


class _Shard:
    """Rows that wait to be written."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []
        self.bytes = 0

    def add(self, batch: Batch, encoded: Columns, fingerprints: np.ndarray) -> None:
        lengths = lengths_of(batch)
        if batch.weight is not None and batch.weight.ndim > 1:
            kept = torch.arange(batch.weight.shape[1]) < lengths[:, None]
            encoded = {name: column[kept] for name, column in encoded.items()}
        part = {name: column.cpu() for name, column in encoded.items()}
        part |= {"index": batch.index.cpu(), "lengths": lengths}
        part["fingerprints"] = torch.from_numpy(fingerprints)
        self.parts.append(part)
        self.bytes += sum(column.numel() * column.element_size() for column in part.values())

    def joined(self) -> Columns:
        """All rows of each column; through NumPy, for torch cannot join unsigned numbers."""
        names = self.parts[0]
        return {name: torch.from_numpy(np.concatenate([part[name].numpy() for part in self.parts])) for name in names}


class _Known:
    """The examples that an earlier capture has already written."""

    def __init__(self, path: Path, shards: list[dict[str, Any]]) -> None:
        self.path = path
        arrays = [open_shard(path, entry) for entry in shards]
        self.ids = np.concatenate([a["index"] for a in arrays]) if arrays else np.zeros(0, np.int64)
        prints = np.concatenate([a["fingerprints"] for a in arrays]) if arrays else np.zeros(0, np.uint64)
        order = np.argsort(self.ids, kind="stable")
        self.ids, self.prints = self.ids[order], prints[order]

    def has(self, batch: Batch, fingerprints: np.ndarray) -> bool:
        """Whether these examples are there; the same index with another input is refused."""
        if not len(self.ids):
            return False
        wanted = batch.index.numpy()
        place = np.searchsorted(self.ids, wanted).clip(max=len(self.ids) - 1)
        there = self.ids[place] == wanted
        changed = there & (self.prints[place] != fingerprints)
        if changed.any():
            what = f"example {wanted[changed][0]} has changed"
            raise MismatchError(f"{self.path} was begun on other inputs, {what}: choose another folder")
        if there.any() and not there.all():
            what = f"example {wanted[there][0]} but not {wanted[~there][0]}"
            raise MismatchError(f"{self.path} has {what}, of one batch: capture with the same batches as before")
        return bool(there.all())


def _names(teacher: Teacher, class_names: Names | None) -> list[str] | None:
    """The class names to remember: the teacher's own, or others for the same columns."""
    own = getattr(teacher, "class_names", None)
    if class_names is None:
        return own
    given = as_names(class_names)
    if own is not None and given != own and (len(given) != len(own) or set(given) == set(own)):
        raise ValueError(
            f"class_names are {given}, but the teacher's columns are {own}, in that order: leave them out, or pass "
            "them to the Ensemble, which puts its members' columns into their order"
        )
    return given


def forecast(batches: Iterable[Batch], encoded: Columns, batch: Batch) -> int | None:
    """The bytes a capture will write, from one encoded batch; None where the number of rows cannot be known."""
    if not isinstance(batches, (Batches, list, tuple)) or (isinstance(batches, Batches) and batches.mapped):
        return None
    axes = 2 if batch.weight is not None and batch.weight.ndim > 1 else 1
    row = sum(column[(0,) * axes].numel() * column.element_size() for column in encoded.values())
    parts = [batches.all] if isinstance(batches, Batches) else batches
    return sum(int(lengths_of(part).sum()) * row + len(part) * _BOOKKEEPING_BYTES for part in parts)


def _require_room(path: Path, need: int | None) -> None:
    free = shutil.disk_usage(path).free
    if need is None:
        tell(f"capture into {path}: {free / 1e9:.1f} GB free")
        return
    tell(f"capture into {path}: {need:,} bytes ({need / 1e6:.1f} MB), {free / 1e9:.1f} GB free")
    require_room(path, need, "make room, choose another folder, or a smaller codec ('top_k')")


class _Writer:
    """Writes shards of the answers, and after each of them a manifest that names it."""

    def __init__(self, path: Path, file: str, prefix: str, manifest: dict[str, Any], begun: int) -> None:
        self.path, self.file, self.prefix, self.manifest, self.begun = path, file, prefix, manifest, begun
        self.shard = _Shard()

    def add(self, batch: Batch, encoded: Columns, fingerprints: np.ndarray, shard_bytes: int) -> None:
        self.shard.add(batch, encoded, fingerprints)
        if self.shard.bytes >= shard_bytes:
            self.flush()

    def flush(self) -> None:
        if self.shard.parts:
            number = self.begun + len(self.manifest["shards"])  # above that of every shard there is: names are new
            file, columns = f"{self.prefix}-{number:05d}.safetensors", self.shard.joined()
            require_own_shard(self.path / file)
            checksum = write_tensors(self.path / file, columns, OURS)
            self.manifest["shards"].append({"file": file, "sha256": checksum, "examples": len(columns["index"])})
            self.write()
            self.shard = _Shard()

    def finish(self) -> None:
        self.flush()
        self.manifest["complete"] = True
        self.write()

    def write(self) -> None:
        write_manifest(self.path / self.file, KIND, VERSION, self.manifest)


def _ask(
    teacher: Teacher, batches: Iterable[Batch], codec: Codec, known: _Known, writer: _Writer, shard_bytes: int
) -> None:
    """What the teacher says about this process's share of the batches, but for what is already known."""
    (rank, world), asked, indices = rank_and_world(), False, Indices()
    total = len(range(rank, len(batches), world)) if hasattr(batches, "__len__") else 0  # type: ignore[arg-type]
    with progress(f"capture into {writer.path}", total) as advance:
        for batch in islice(iter(batches), rank, None, world):
            indices.add(batch.index.numpy())
            fingerprints = row_fingerprints(batch)  # before anybody is asked: of what is answered
            if not known.has(batch, fingerprints):
                require_finite_inputs(batch)
                targets = answered(teacher, batch, fingerprints)
                encoded = codec.encode(targets)
                require_finite_answers(batch, encoded)
                if not asked:
                    _require_room(writer.path, forecast(batches, encoded, batch))
                    tokens, classes = batch.weight is not None and batch.weight.ndim > 1, targets.mean.shape[-1]
                    if targets.family == "categorical":
                        require_several_classes(classes)
                    names = writer.manifest["labels"]
                    if names is not None and len(names) != classes:
                        raise ValueError(f"there are {len(names)} class names for {classes} classes: {names}")
                    writer.manifest |= {"classes": classes, "tokens": tokens}
                    asked = True
                writer.add(batch, encoded, fingerprints, shard_bytes)
            advance("")


@torch.no_grad()
@renamed_arguments(labels="class_names")
def capture(
    teacher: Teacher,
    data: Any,
    path: str | Path,
    codec: Codec | str = "dense",
    *,
    task: Task | None = None,
    class_names: Names | None = None,
    shard_bytes: int = 64 << 20,
) -> TransferSet:
    """Remembers what `teacher` says about `data` (arrays, batches, a loader, a data set) in the folder `path`.

    Codecs: "dense" (every member), "mean", "top_k" (size independent of members and classes), or one with settings,
    such as `TopKCodec(keep=32)`. Stopped at any moment, killed even, the same call goes on where it was; called with
    more batches than last time, it adds the new ones. Under `torchrun` the processes share the work; if one of them
    dies, the others say so once they have finished their own shares.

    The class names are the teacher's; `class_names` gives them where it has none, or other ones for the same columns.
    """
    path, codec = Path(path), codec_named(codec) if isinstance(codec, str) else codec
    batches = data if isinstance(data, Iterator) else as_batches(data, read=None if task is None else task.batch)
    asked = {"codec": settings_of(codec), "members": teacher.fingerprints, "labels": _names(teacher, class_names)}
    asked["vocabulary"] = getattr(batches, "vocabulary", None)
    rank, world = rank_and_world()
    require_distinct(batches)
    opened(path, asked)  # refuses, if it must, before anybody waits
    if rank:
        await_first(path)
    with only_writer(path, part_name(rank) if rank else MANIFEST):
        if rank == 0:
            require_nobody(path)
            gather_leftovers(path, asked)
        with present(path, rank) if world > 1 else nullcontext():
            whole = opened(path, asked)
            known = _Known(path, whole["shards"])
            if world == 1:
                writer = _Writer(path, MANIFEST, "shard", whole, 0)
            else:
                part = {**whole, "shards": []}
                writer = _Writer(path, part_name(rank), f"shard-{rank}", part, len(whole["shards"]))
            _ask(teacher, batches, codec, known, writer, shard_bytes)
            writer.flush()
            if world == 1 and not whole["shards"]:
                raise nothing(path)
            writer.finish()
            if world > 1:
                join(path, whole, rank, world)
    return TransferSet(path)


@torch.no_grad()
def verify(remembered: TransferSet, teacher: Teacher, batches: Iterable[Batch], examples: int = 256) -> float:
    """Compares a sample with the live teacher; returns the largest difference of a mean probability.

    More than rounding explains is a MismatchError: another teacher answers under these names. Opening the transfer set
    has already re-read every checksum.
    """
    require_same_members(remembered.path, remembered.fingerprints, teacher.fingerprints)
    worst, seen = 0.0, 0
    for batch in batches:
        remembered.check(batch)
        live, kept = teacher(batch).mean, remembered(batch).mean
        gap = ((live - kept).abs() / live.abs().clamp(min=1)).amax(-1)
        if batch.weight is not None:
            gap = gap * (batch.weight > 0)
        if not gap.isfinite().all():
            raise MismatchError(f"this teacher's answers are not finite: they cannot be those in {remembered.path}")
        worst, seen = max(worst, float(gap.max())), seen + len(batch)
        if seen >= examples:
            break
    if not seen:
        raise ValueError(f"there is nothing to compare {remembered.path} with: pass at least one batch")
    keep = getattr(remembered.codec, "keep", None)
    if not worst <= (allowed := ROUNDING + (0.0 if keep is None else 1 / (keep + 1))):  # a class not kept is no larger
        raise MismatchError(
            f"this teacher's answers differ from those in {remembered.path} by {worst:.3g}, rounding explains "
            f"{allowed:.3g}: it is another teacher under the same fingerprints, capture again into another folder"
        )
    return worst
