"""Files that are whole or not there: atomic writes, checksums, manifests that know when they were damaged."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from solera.core.errors import DamagedFileError, InUseError


def write_bytes(path: Path, content: bytes) -> None:
    """Through a temporary file, flushed to the disk before it takes its name: a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> tuple[bytes, str]:
    """What a safetensors file of these holds, and its sha256."""
    content = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()}, metadata)
    return content, hashlib.sha256(content).hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """One safetensors file; returns its sha256."""
    content, checksum = tensor_bytes(tensors, metadata)
    write_bytes(path, content)
    return checksum


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_checksum(path: Path, expected: str) -> None:
    """A missing or changed file is refused by name."""
    if not path.is_file():
        raise DamagedFileError(f"{path} is missing: restore it, or make it again")
    if (found := sha256(path)) != expected:
        raise DamagedFileError(
            f"{path} is damaged: its sha256 is {found[:12]}…, its manifest says {expected[:12]}…: "
            "restore it, or delete its folder and make it again"
        )


def fingerprint(tensors: dict[str, Tensor], name: str = "") -> str:
    """sha256 of names, shapes and bytes, shortened."""
    digest = hashlib.sha256(name.encode())
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()[:16]


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_manifest(path: Path, kind: str, version: int, content: dict[str, Any]) -> None:
    """JSON with what it is, its schema version and a checksum of itself."""
    body = {"kind": kind, "version": version, **content}
    write_bytes(path, json.dumps({**body, "sha256": _digest(body)}, indent=1).encode())


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Refuses, by name, what is missing, damaged, of another kind, or written by a later Solera."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} holds no {kind}: there is no {path.name} in it")
    try:
        body = json.loads(path.read_bytes())
        checksum = body.pop("sha256", None)
    except (ValueError, AttributeError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged or cut short: restore it, or make its folder again") from error
    if checksum is None and "kind" not in body:
        raise ValueError(f"{path.parent} holds no {kind}: its {path.name} is not one that Solera wrote")
    if _digest(body) != checksum:
        raise DamagedFileError(f"{path} is damaged, its checksum does not match: restore it, or make its folder again")
    if body["kind"] != kind:
        raise ValueError(f"{path.parent} holds a {body['kind']}, not a {kind}")
    if body["version"] > version:
        raise ValueError(f"{path} was written by a later Solera (schema {body['version']}, this one reads {version})")
    return body


@contextmanager
def only_writer(folder: Path, what: str = "") -> Iterator[None]:
    """Holds the folder for this process: a second writer is told so at once. A kill releases it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".lock{what}", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"{folder} is being written by another process: wait for it, or choose another folder"
            ) from None
        yield


_NUMPY = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I64": "<i8",
    "I32": "<i4",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
}


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, memory-mapped: nothing is read until it is asked for."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    whole = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)  # the memmap subclass halves small reads
    return {
        name: whole[slice(*(8 + length + o for o in entry["data_offsets"]))]
        .view(_NUMPY[entry["dtype"]])
        .reshape(entry["shape"])
        for name, entry in header.items()
    }
