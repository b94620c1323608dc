"""Safetensors files: the same tensors are the same bytes, and what is read is checked before it is believed.

A file is the length of a header (8 bytes, little-endian), the header (JSON: dtype, shape and place of every tensor, and
texts under `__metadata__`), and the numbers. The library of the same name writes the metadata in a random order; here
it is sorted. A sealed file holds, as metadata `sha256`, the checksum of everything in it but that.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.disk import Content, read_bytes, require_digest, write_bytes
from solera.core.errors import DamagedFileError

SEAL = "sha256"
_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_NUMBERS = 1 << 59  # so that bytes and strides are whole numbers of 64 bits
_LONGEST_HEADER = 100_000_000  # as the library has it


def _header(entries: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """Padded with spaces, so that the numbers begin at a multiple of 8."""
    first = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    text = json.dumps({**first, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _parts(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], list[memoryview]]:
    """Where each tensor stands, and the bytes of all: the widest numbers first, so that all are aligned."""
    entries: dict[str, Any] = {}
    parts: list[memoryview] = []
    place = 0
    for name, tensor in sorted(tensors.items(), key=lambda pair: (-pair[1].element_size(), pair[0])):
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        size = plain.numel() * plain.element_size()
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        if size:
            parts.append(plain.view(torch.uint8).numpy().data)
        place += size
    return entries, parts


def _digest(parts: list[Content]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def tensor_parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> tuple[list[Content], str]:
    """What a file of these holds, in parts (the numbers are not copied), and its sha256."""
    entries, numbers = _parts(tensors)
    parts: list[Content] = [_header(entries, metadata or {}), *numbers]
    return parts, _digest(parts)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """One safetensors file; returns its sha256."""
    parts, checksum = tensor_parts(tensors, metadata)
    write_bytes(path, *parts)
    return checksum


def write_sealed_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file that carries its own checksum, for a file that no manifest vouches for."""
    entries, numbers = _parts(tensors)
    checksum = _digest([_header(entries, metadata), *numbers])
    write_bytes(path, _header(entries, {**metadata, SEAL: checksum}), *numbers)


def _require_entry(path: Path, name: str, entry: Any, room: int) -> None:
    """A tensor of a header: a known kind of number, and exactly the bytes that its shape takes, all in the file."""
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        fits = len(shape) <= 64 and math.prod(max(1, axis) for axis in shape) < _MOST_NUMBERS  # of an empty one, too
        right = whole and fits and end - begin == math.prod(shape) * dtype.itemsize and end <= room
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise DamagedFileError(f"{path} is damaged: its tensor {name!r} is not what the file has room for")


def _opened(path: Path, content: Any) -> tuple[dict[str, Any], dict[str, str], int]:
    """The entries of a header, its metadata, and where the numbers begin; no size in it is believed unchecked."""
    length = int.from_bytes(bytes(content[:8]), "little")
    if len(content) < 8 or length > min(len(content) - 8, _LONGEST_HEADER):
        raise DamagedFileError(f"{path} is damaged or cut short: it has no header of a safetensors file")
    try:
        header = json.loads(bytes(content[8 : 8 + length]))
        metadata = header.pop("__metadata__", None) or {}
        texts = all(isinstance(part, str) for pair in metadata.items() for part in pair)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged: its header is not that of a safetensors file") from error
    if not texts:
        raise DamagedFileError(f"{path} is damaged: its metadata are not texts")
    for name, entry in header.items():
        _require_entry(path, name, entry, len(content) - 8 - length)
    return header, metadata, 8 + length


def parse_tensors(path: Path, content: bytearray) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in these bytes, which they share, and the metadata; `path` is where they came from."""
    header, metadata, start = _opened(path, content)
    tensors = {}
    for name, entry in header.items():
        (begin, end), dtype = entry["data_offsets"], _DTYPES[entry["dtype"]]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
        elif (start + begin) % dtype.itemsize:  # written elsewhere, not aligned
            tensors[name] = torch.frombuffer(content[start + begin : start + end], dtype=dtype).reshape(entry["shape"])
        else:
            count = (end - begin) // dtype.itemsize
            flat = torch.frombuffer(content, dtype=dtype, count=count, offset=start + begin)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors, metadata


def read_sealed_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a file that `write_sealed_tensors` wrote, if every bit of it is as it was."""
    content = read_bytes(path)
    header, metadata, start = _opened(path, content)
    seal = metadata.pop(SEAL, None)
    if seal is None:
        raise DamagedFileError(f"{path} carries no checksum: an earlier Solera wrote it, or it is damaged")
    numbers = memoryview(content)[start:]
    require_digest(path, _digest([_header(header, metadata), numbers]), seal)
    if _header(header, {**metadata, SEAL: seal}) != content[:start]:
        raise DamagedFileError(f"{path} is damaged: its header is not as it was written")
    return parse_tensors(path, content)[0], metadata


_NUMPY = {
    **{"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"},
}


def map_tensors(path: Path, checksum: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, memory-mapped: nothing is copied until it is asked for.

    With a `checksum` the very bytes that are mapped are checked first, whatever becomes of the file's name since.
    """
    if not path.is_file():
        raise DamagedFileError(f"{path} is missing: restore it, or make it again")
    if path.stat().st_size < 8:
        raise DamagedFileError(f"{path} is damaged or cut short: it has no header of a safetensors file")
    whole = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)  # the memmap subclass halves small reads
    if checksum is not None:
        require_digest(path, hashlib.sha256(whole.data).hexdigest(), checksum)
    header, _, start = _opened(path, whole)
    if strange := [name for name, entry in header.items() if entry["dtype"] not in _NUMPY]:
        raise DamagedFileError(f"{path}: tensor {strange[0]!r} is of a kind that NumPy does not have")
    return {
        name: whole[slice(*(start + offset for offset in entry["data_offsets"]))]
        .view(_NUMPY[entry["dtype"]])
        .reshape(entry["shape"])
        for name, entry in header.items()
    }
