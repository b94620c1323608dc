"""Atomic writes, checksums, and manifests that notice damage: a file is whole or not there."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from solera.core.errors import DamagedFileError, InUseError, UnwritableError

PARTIAL = ".solera-partial"  # how the name of a file ends while it is written: nobody else has such files
Content = bytes | bytearray | memoryview


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A disk that is full or read-only is told with the file: what `write` raises names none."""
    try:
        yield
    except UnwritableError:
        raise
    except OSError as error:
        raise UnwritableError(error.errno, path) from error


def _is_still(path: Path, file: BinaryIO) -> bool:
    """Whether this open file still has that name."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _begun(folder: Path) -> tuple[Path, BinaryIO]:
    """A new file to be written, with a lock that tells others that its writer lives."""
    while True:
        path = folder / f".{secrets.token_hex(8)}{PARTIAL}"
        file = open(path, "xb")  # noqa: SIM115, the caller closes it
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_still(path, file):  # else somebody took it for a leftover before it was locked
            return path, file
        file.close()


def remove_leftovers(folder: Path) -> None:
    """Removes what killed writers left half written in this folder; a living writer's files stay."""
    for path in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):  # of a read-only disk, or already gone
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(number)


def make_folder(folder: Path) -> None:
    """With those above it; where that is not possible, the error names it."""
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """The names in it are on the disk, too."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_bytes(path: Path, *content: Content) -> None:
    """Through a temporary file, flushed to the disk before it takes its name: a reader sees all of it or none."""
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, file = _begun(path.parent)
        with file:
            try:
                for part in content:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


def require_room(path: Path, need: int, remedy: str = "make room, or choose another folder") -> None:
    """Before long work: what it will write there fits on the disk."""
    free = shutil.disk_usage(path).free
    if need > free:
        raise ValueError(f"writing into {path} takes {need:,} bytes, its disk has {free:,} free: {remedy}")


def read_bytes(path: Path) -> bytearray:
    """All of a regular file; a pipe or a device, which may never end, is not one."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError(f"{path} is no regular file: restore it, or make it again")
        content = bytearray(found.st_size)
        size = file.readinto(content)
    del content[size:]
    return content


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checked(path: Path, expected: str) -> bytearray:
    """What a file holds, if that is what its manifest says; a missing or changed file is refused by name.

    The bytes that are returned are those that were checked: the file is read once.
    """
    try:
        content = read_bytes(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DamagedFileError(f"{path} is missing: restore it, or make it again") from None
    require_digest(path, hashlib.sha256(content).hexdigest(), expected)
    return content


def require_digest(path: Path, found: str, expected: str) -> None:
    """Refuses a file whose checksum is another."""
    if found != expected:
        raise DamagedFileError(
            f"{path} is damaged: its sha256 is {found[:12]}…, its manifest says {expected[:12]}…: "
            "restore it, or make it again"
        )


def inside(folder: Path, name: str) -> Path:
    """The path of a file that a manifest names; one outside the manifest's folder is refused."""
    parts = Path(name).parts
    if not name or "\0" in name or Path(name).is_absolute() or ".." in parts or not parts:
        raise DamagedFileError(f"{folder} has a manifest that names the file {name!r}, which is not in the folder")
    found = folder / name
    if not found.resolve().is_relative_to(folder.resolve()):
        raise DamagedFileError(f"{found} is a link to a file outside {folder}: put the file itself there")
    return found


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


def read_json(path: Path) -> dict[str, Any]:
    """An object in a JSON file; anything else, or one nested too deeply to be read, is damage."""
    try:
        body = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged or cut short: restore it, or make its folder again") from error
    if not isinstance(body, dict):
        raise DamagedFileError(f"{path} holds no object of JSON: restore it, or make its folder again")
    return body


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Refuses, by name, what is missing, damaged, of another kind, or written by a later Solera."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} holds no {kind}: there is no {path.name} in it")
    remove_leftovers(path.parent)
    body = read_json(path)
    checksum = body.pop("sha256", None)
    try:
        found = _digest(body)
    except RecursionError as error:
        raise DamagedFileError(f"{path} is nested too deeply to be one that Solera wrote") from error
    if checksum is None and "kind" not in body:
        raise ValueError(f"{path.parent} holds no {kind}: its {path.name} is not one that Solera wrote")
    if found != checksum:
        raise DamagedFileError(f"{path} is damaged, its checksum does not match: restore it, or make its folder again")
    if body.get("kind") != kind:
        raise ValueError(f"{path.parent} holds a {body.get('kind')}, not a {kind}")
    if not isinstance(body.get("version"), int):
        raise DamagedFileError(f"{path}: version must be a whole number, got {body.get('version')!r}")
    if body["version"] > version:
        raise ValueError(f"{path} was written by a later Solera (schema {body['version']}, this one reads {version})")
    return body


@contextmanager
def only_writer(folder: Path, what: str = "") -> Iterator[None]:
    """Holds the folder for this process: a second writer is told so at once. A kill releases it.

    A folder that cannot be written is refused here, before any work.
    """
    lock = folder / f".lock{what}"
    make_folder(folder)
    remove_leftovers(folder)
    with _locked(lock, folder):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # while it is still held: the next one makes its own


@contextmanager
def _locked(lock: Path, folder: Path) -> Iterator[None]:
    while True:
        with _named(lock):
            # no link is followed, nothing is cut short, and what is no file does not keep anybody waiting
            number = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        with os.fdopen(number, "wb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise UnwritableError(errno.EINVAL, lock)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(
                    f"{folder} is being written by another process: wait for it, or choose another folder"
                ) from None
            if _is_still(lock, file):  # else its holder has just removed it
                yield
                return


@contextmanager
def in_turn(folder: Path, reading: bool = False, wait: bool = True) -> Iterator[None]:
    """One writer after the other, threads and processes: whoever comes while another writes waits.

    Readers wait for writers only; without `wait` it is a BlockingIOError that somebody else is there. It holds the
    folder itself, so no file of a lock is left behind.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, (fcntl.LOCK_SH if reading else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(number)
