"""Arrays from the bytes of .npy and .npz files: the header is judged before anything is unpacked or reserved."""

import io
import math
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solera.serving.graph import Arrays
from solera.serving.limits import Limits
from solera.serving.refused import RefusedError, short
from solera.training.card import Input

AXES = 32  # more than any student has; NumPy's own limit is 64
ENTRIES = 64  # files in a .npz


@dataclass(frozen=True)
class Header:
    """What a .npy file says of itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    begin: int  # of the numbers

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def header_of(file: Any, name: str) -> Header:
    """Read from the beginning of a file, checked."""
    try:
        version = np.lib.format.read_magic(file)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = readers[version](file)
        shape = tuple(int(size) for size in shape)
    except Exception as error:  # NumPy tries headers of Python 2 too, with a tokenizer that has errors of its own
        reason = f"{name} is not a .npy file ({short(str(error))}): send what numpy.save writes"
        raise RefusedError(400, name, reason) from None
    if dtype.kind not in "fiu":
        raise RefusedError(422, name, f"{name} has the dtype {str(dtype)[:60]}: send floating-point or whole numbers")
    far = math.prod(max(size, 1) for size in shape) >= 2**40  # an axis of 0 hides the others
    if len(shape) > AXES or min(shape, default=0) < 0 or far:
        reason = f"{name} has the shape {short(shape)}: send at most {AXES} axes, none negative or beyond all memory"
        raise RefusedError(422, name, reason)
    return Header(shape, fortran, dtype, file.tell())


def array_of(content: bytes, name: str) -> np.ndarray:
    """The array of a .npy file. Read by hand: NumPy would first reserve all that a header claims."""
    header = header_of(io.BytesIO(content), name)
    there = len(content) - header.begin
    if header.bytes != there:
        reason = f"{name} has {there} bytes of numbers, its header says {header.bytes}"
        raise RefusedError(400, name, f"{reason}: send the whole file, and only it")
    flat = np.frombuffer(content, header.dtype, offset=header.begin)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def _unpacked(packed: zipfile.ZipFile, item: zipfile.ZipInfo, given: Input, limits: Limits) -> np.ndarray:
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError(
            400, given.name, f"{given.name} is packed by an unusual method: send what numpy.savez writes"
        )
    with packed.open(item) as file:
        header = header_of(file, given.name)
    limits.check_shape(header.shape, list(given.shape or ()), given.name)
    return array_of(packed.read(item), given.name)


def arrays_of(body: bytes, inputs: Sequence[Input], limits: Limits) -> Arrays:
    """Those of a .npz file by the names of the inputs; rows and unpacked bytes are counted before it is unpacked."""
    try:
        if body.count(b"PK\x01\x02") > ENTRIES:  # zipfile would read the whole list first
            raise RefusedError(400, "body", f"the body is a .npz of more than {ENTRIES} files: send the inputs only")
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            items = {item.filename.removesuffix(".npy"): item for item in packed.infolist()}
            size = sum(item.file_size for item in packed.infolist())
            if size > limits.bytes:
                reason = f"the body unpacks to {size} bytes: send at most {limits.bytes} at a time"
                raise RefusedError(413, "body", reason)
            names = [i.name for i in inputs]
            if sorted(items) != sorted(names):
                reason = f"inputs has the names {short(list(items))}: send an object with exactly {names}"
                raise RefusedError(422, "inputs", reason)
            return {given.name: _unpacked(packed, items[given.name], given, limits) for given in inputs}
    except RefusedError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, KeyError, struct.error) as error:
        reason = f"the body is not a .npz file ({short(str(error))}): send what numpy.savez writes"
        raise RefusedError(400, "body", reason) from None
    except Exception as error:  # zlib has its own, without a common parent
        reason = f"the body is a damaged .npz file ({short(str(error))}): send it again"
        raise RefusedError(400, "body", reason) from None
