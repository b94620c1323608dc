"""Untrusted NumPy files: what a header promises is compared with the file before any memory is taken.

An array in a file takes as many bytes as the file has. A compressed one may take more: at most `UNPACKED` bytes and
three times the size of its file, which no archive of predictions needs and an archive made to harm exceeds.
"""

import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from solera.core.errors import DamagedFileError

UNPACKED = 128 << 20
_UNREADABLE = (  # all that NumPy and zipfile raise about a hostile file
    *(EOFError, OSError, ValueError, TypeError, OverflowError, SyntaxError, RecursionError, MemoryError, RuntimeError),
    *(NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


class UnknownArrayError(ValueError):
    """A `.npz` file has no array of that name, or several and none was named."""


def most_unpacked(path: Path) -> int:
    """The bytes that the content of this file may take in memory."""
    return UNPACKED + 3 * path.stat().st_size


def require_unpacked(path: Path, need: int, remedy: str = "save it uncompressed, as .npy") -> None:
    """Refuses, before it is read, a compressed file that holds far more than its size."""
    if need > (most := most_unpacked(path)):
        raise DamagedFileError(
            f"{path} holds {need:,} bytes in a file of {path.stat().st_size:,}, more than {most:,} are not unpacked: "
            f"{remedy}"
        )


def _require_plain(path: Path, file: Any, size: int) -> int:
    """Reads the header of an array that has `size` bytes with it; returns the bytes that the numbers take."""
    major, _ = np.lib.format.read_magic(file)
    read: Any = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    need = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    if len(shape) > 32 or need != size - file.tell():
        raise ValueError(f"its header promises {dtype} {shape}, {need:,} bytes; {size - file.tell():,} are there")
    return need


def read_npy(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """The array of a `.npy` file, or what maps it; never one of pickled objects."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with open(path, "rb") as file:
            _require_plain(path, file, path.stat().st_size)
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except _UNREADABLE as error:
        raise _damaged(path, error, ".npy file") from error


def array_names(path: Path) -> list[str]:
    """What the arrays of a `.npz` file are called."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except _UNREADABLE as error:
        raise _damaged(path, error, ".npz file") from error


def read_npz(path: Path, key: str | None = None) -> np.ndarray:
    """One array of a `.npz` file: the only one, or the one of this name."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if key is None and len(names) == 1:
                key = next(iter(names))
            if key is None or key not in names:
                remedy = f"not {key!r}" if key else "say which: key=..."
                raise UnknownArrayError(f"{path} holds the arrays {list(names)}, {remedy}")
            entry = names[key]
            require_unpacked(path, entry.file_size)
            with archive.open(entry) as file:
                _require_plain(path, file, entry.file_size)
            with archive.open(entry) as file:
                return np.lib.format.read_array(file, allow_pickle=False)
    except (DamagedFileError, UnknownArrayError):
        raise
    except _UNREADABLE as error:
        raise _damaged(path, error, ".npz file") from error


def _damaged(path: Path, error: BaseException, what: str) -> DamagedFileError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return DamagedFileError(f"{path} is not a {what} of numbers ({reason}): save it again")
