"""Ask the teacher once about every example and keep the answers."""

from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.batch import Batch
from solera.core.disk import only_writer, read_manifest, write_manifest, write_tensors
from solera.core.errors import DamagedFileError, MismatchError
from solera.core.progress import progress
from solera.teachers.base import Teacher, row_fingerprints
from solera.teachers.codecs import CODECS, Codec, Columns, Dense
from solera.teachers.transfer_set import KIND, VERSION, TransferSet, open_shard, require_same_members


class _Shard:
    """Rows that wait to be written."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        self.bytes = 0

    def add(self, batch: Batch, encoded: Columns) -> None:
        """Keeps the rows of these examples; of a sequence, those up to its last token with a weight."""
        tokens = batch.weight is not None and batch.weight.ndim > 1
        lengths = torch.ones(len(batch), dtype=torch.int64)
        if tokens and batch.weight is not None:
            valid = batch.weight > 0
            positions = torch.arange(1, valid.shape[1] + 1) * valid
            lengths = positions.amax(1)
            kept = torch.arange(valid.shape[1]) < lengths[:, None]
            encoded = {name: column[kept] for name, column in encoded.items()}
        part: Columns = {
            **{name: column.cpu() for name, column in encoded.items()},
            "index": batch.index.cpu(),
            "lengths": lengths,
            "fingerprints": torch.from_numpy(row_fingerprints(batch).view(np.int64)).view(torch.uint64),
        }
        self.columns.append(part)
        self.bytes += sum(c.numel() * c.element_size() for c in part.values())

    def joined(self) -> Columns:
        """All rows of each column."""

        def join(parts: list[Tensor]) -> Tensor:
            if parts[0].dtype == torch.uint64:  # torch cannot concatenate unsigned numbers
                return torch.cat([p.view(torch.int64) for p in parts]).view(torch.uint64)
            return torch.cat(parts)

        return {name: join([part[name] for part in self.columns]) for name in self.columns[0]}


def _start(path: Path, codec: Codec, teacher: Teacher) -> dict[str, Any]:
    """A new manifest, or the one an earlier capture left, once it is sure to belong to this ensemble and codec."""
    name = next(key for key, kind in CODECS.items() if isinstance(codec, kind))
    settings = {"name": name, **asdict(codec)}  # type: ignore[call-overload]
    if not (path / "manifest.json").exists():
        shards: list[dict[str, Any]] = []
        return {"codec": settings, "members": teacher.fingerprints, "solera": version("solera"), "shards": shards}
    manifest = read_manifest(path / "manifest.json", KIND, VERSION)
    if manifest["codec"] != settings:
        raise MismatchError(f"{path} was begun with codec {manifest['codec']}, not {settings}: choose another folder")
    require_same_members(path, manifest["members"], teacher.fingerprints)
    return {k: v for k, v in manifest.items() if k not in ("kind", "version")}


class _Known:
    """The examples that an earlier capture has already written."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.fingerprints: dict[int, int] = {}
        for entry in manifest["shards"]:
            arrays = open_shard(path, entry)
            self.fingerprints.update(zip(arrays["index"].tolist(), arrays["fingerprints"].tolist(), strict=True))

    def has(self, batch: Batch) -> bool:
        """Whether these examples are there; the same index with another input is refused."""
        if not self.fingerprints:
            return False
        there = [i in self.fingerprints for i in batch.index.tolist()]
        for index, new, known in zip(batch.index.tolist(), row_fingerprints(batch).tolist(), there, strict=True):
            if known and self.fingerprints[index] != new:
                raise MismatchError(
                    f"{self.path} was begun on other inputs: example {index} has changed: choose another folder"
                )
        if any(there) and not all(there):
            raise DamagedFileError(
                f"{self.path} holds some examples of a batch but not all: capture with the same batches as before"
            )
        return all(there)


@torch.no_grad()
def capture(
    teacher: Teacher,
    batches: Iterable[Batch],
    path: str | Path,
    codec: Codec | None = None,
    *,
    shard_bytes: int = 64 << 20,
) -> TransferSet:
    """Remembers what `teacher` says about `batches` in the folder `path`.

    Stopped at any moment, killed even, the same call goes on where it was; called with more batches than last time, it
    adds the new ones.
    """
    path, codec = Path(path), codec or Dense()
    with only_writer(path):
        manifest = _start(path, codec, teacher)
        manifest["complete"] = False
        known = _Known(path, manifest)
        shard = _Shard()

        def flush() -> None:
            nonlocal shard
            if shard.columns:
                file = f"shard-{len(manifest['shards']):05d}.safetensors"
                columns = shard.joined()
                checksum = write_tensors(path / file, columns)
                manifest["shards"].append({"file": file, "sha256": checksum, "examples": len(columns["index"])})
                write_manifest(path / "manifest.json", KIND, VERSION, manifest)
                shard = _Shard()

        total = len(batches) if hasattr(batches, "__len__") else 0  # type: ignore[arg-type]
        with progress(f"capture into {path}", total) as advance:
            for batch in batches:
                if not known.has(batch):
                    targets = teacher(batch)
                    tokens = batch.weight is not None and batch.weight.ndim > 1
                    manifest |= {"classes": targets.mean.shape[-1], "tokens": tokens}
                    shard.add(batch, codec.encode(targets))
                    if shard.bytes >= shard_bytes:
                        flush()
                advance("")
        flush()
        if not manifest["shards"]:
            raise ValueError(f"there is nothing to capture into {path}: the batches are empty")
        manifest["complete"] = True
        write_manifest(path / "manifest.json", KIND, VERSION, manifest)
    return TransferSet(path)
