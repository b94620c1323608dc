"""Arrays as people hold them (NumPy, memory maps, data frames, lists of numbers, tensors) as tensors."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

# what torch computes with, for what it does not, or for what is more than a network needs
_TORCH = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64, "float64": np.float32, "float128": np.float32}


def _frame(frame: Any) -> np.ndarray:
    """A data frame's numbers; a column that holds none is named."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "biuf":
            raise ValueError(
                f"column {name!r} holds {kind}, a network takes numbers: encode it, or leave it out (drop it from the "
                "data frame, for members and student alike)"
            )
    return frame.to_numpy(dtype=np.float32)


def as_array(values: Any) -> np.ndarray:
    """Any array-like as a NumPy array; a memory map stays one."""
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        return _frame(values)
    try:
        return np.asarray(values)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(
            "the list holds rows of several lengths or shapes and is no array: pass those of one length at a time, "
            "or use solera.data.Sequences, which pads them"
        ) from error


def as_tensor(values: Any) -> Tensor:
    """An array-like as a tensor: float64 becomes float32, whole numbers stay whole. A memory map is not read."""
    if isinstance(values, Tensor):
        return values
    array = as_array(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"inputs hold {array.dtype}, a network takes numbers: encode them first")
    if not isinstance(array, np.memmap) or array.mode == "c":  # changed in memory, so no longer what the file holds
        array = array.astype(_TORCH.get(array.dtype.name, array.dtype.newbyteorder("=")), copy=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of read-only arrays: nothing here writes to inputs
        return torch.from_numpy(array if all(step > 0 for step in array.strides) else array.copy())


def as_inputs(inputs: Any) -> Any:
    """A nest of array-likes (an array, or a dict or tuple of arrays) as the same nest of tensors."""
    if isinstance(inputs, Mapping):  # what a tokenizer gives is one, too
        return {str(key): as_inputs(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(as_inputs(value) for value in inputs)
    return as_tensor(inputs)


def as_target(target: Any) -> Tensor:
    """Targets as a tensor, as they are: classes are whole numbers, continuous targets floating-point ones."""
    if isinstance(target, Tensor):
        return target
    array = as_array(target)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"targets hold {array.dtype} such as {array.ravel()[:1]}, not numbers")
    whole = array.dtype.kind in "biu"
    return torch.from_numpy(array.astype(np.int64 if whole else array.dtype.newbyteorder("=")))
