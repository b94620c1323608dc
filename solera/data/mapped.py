"""Rows of a mapped file, read by their position in it: flat memory however large the file.

Read through the map itself, each row that is touched keeps the megabytes around it in memory.
"""

import mmap
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import DamagedFileError


class MappedFile:
    """The file behind a memory map, opened for reading rows of tensors that lie in the map."""

    def __init__(self, array: np.memmap) -> None:
        base: Any = array
        while not isinstance(base, mmap.mmap):
            base = base.base
        self.array = array
        self._address, self._size = np.frombuffer(base, np.uint8).ctypes.data, len(base)
        self._start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        self._file = open(str(array.filename), "rb", buffering=0)  # noqa: SIM115, open as long as the map is

    @property
    def facts(self) -> tuple[str, tuple[int, ...], str, int]:
        """The file's name, its array's shape and type, and when it was changed."""
        changed = os.fstat(self._file.fileno()).st_mtime_ns
        return str(self.array.filename), self.array.shape, self.array.dtype.str, changed

    def holds(self, tensor: Tensor) -> bool:
        """Whether the tensor's rows lie in this file, each in one piece."""
        inside = 0 <= tensor.data_ptr() - self._address < self._size
        return inside and tensor[:1].squeeze(0).is_contiguous()

    def read(self, tensor: Tensor, rows: Tensor | slice) -> Tensor:
        """`tensor[rows]` of a tensor that this file holds."""
        numbers = range(*rows.indices(len(tensor))) if isinstance(rows, slice) else rows.tolist()
        read = torch.empty((len(numbers), *tensor.shape[1:]), dtype=tensor.dtype)
        length = tensor[0].numel() * tensor.element_size()
        step, first = tensor.stride(0) * tensor.element_size(), tensor.data_ptr() - self._address + self._start
        into: Any = read.numpy().reshape(-1).view(np.uint8)
        for place, number in enumerate(numbers):
            part = into[place * length : (place + 1) * length]
            if os.preadv(self._file.fileno(), [part], first + number * step) != length:
                raise DamagedFileError(f"{self.array.filename} ends before row {number}: it was cut while in use")
        return read
