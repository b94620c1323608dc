"""The way into every metric: arrays, tensors or lists become checked, flat NumPy columns without their padding."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Values: TypeAlias = ArrayLike | Sequence[Any] | Tensor

ROUNDING = 1e-6  # how far a single confidence may stand above 1: a float32 softmax does


def to_numpy(values: Values, name: str) -> NDArray:
    """The values as a NumPy array; half precision is widened, everything else keeps its type."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype in (torch.float16, torch.bfloat16) else values).numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: pad it to one shape and give the padding weight 0") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has type {array.dtype}: pass numbers")
    return array.astype(np.float32) if array.dtype == np.float16 else array


class Elements(NamedTuple):
    """Which elements count: their shape, the flat indices that are not padding, and their weights."""

    shape: tuple[int, ...]
    kept: NDArray[np.intp] | None  # None: all
    weight: NDArray[np.float64] | None  # None: all count the same

    def pick(self, values: NDArray) -> NDArray:
        """Merge the batch axes into one and drop the padding; axes behind the batch axes stay."""
        flat = values.reshape(-1, *values.shape[len(self.shape) :])
        return flat if self.kept is None else flat[self.kept]

    def position(self, element: int | np.intp) -> str:
        """Where the caller finds an element: its index in the shape that was passed."""
        flat = element if self.kept is None else self.kept[element]
        return ", ".join(str(int(index)) for index in np.unravel_index(int(flat), self.shape))

    def average(self, values: NDArray) -> float:
        """Σ w·v / Σ w; padding is gone already, so an infinite v never meets a weight of 0."""
        return float(values.mean() if self.weight is None else self.weight @ values / self.weight.sum())


def elements(shape: tuple[int, ...], name: str, weight: Values | None) -> Elements:
    """Check the weights against the shape and find what is not padding (weight 0)."""
    if 0 in shape:
        raise ValueError(f"{name} is empty (shape {shape}): pass at least one element")
    if weight is None:
        return Elements(shape, None, None)
    weights = to_numpy(weight, "weight").astype(np.float64)
    if weights.shape != shape:
        raise ValueError(f"weight has shape {weights.shape}, but {name} has {shape}: pass one weight per element")
    weights = weights.reshape(-1)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        at = int(bad.argmax())
        where = Elements(shape, None, None).position(at)
        raise ValueError(f"weight[{where}] is {weights[at]}: weights must be finite and at least 0")
    kept = np.flatnonzero(weights)
    if not len(kept):
        raise ValueError("every weight is 0: at least one element must count")
    return Elements(shape, kept if len(kept) < len(weights) else None, weights[kept])


def columns(named: dict[str, Values], weight: Values | None) -> tuple[Elements, list[NDArray]]:
    """Same-shaped columns, flat and without padding; NaN is refused, infinities are not."""
    arrays = {name: to_numpy(values, name) for name, values in named.items()}
    first, *others = arrays
    shape = arrays[first].shape
    for name in others:
        if arrays[name].shape != shape:
            raise ValueError(f"{first} has shape {shape} but {name} has {arrays[name].shape}: they must be the same")
    layout = elements(shape, first, weight)
    flat = [layout.pick(array) for array in arrays.values()]
    for name, column in zip(arrays, flat, strict=True):
        if column.dtype.kind == "f" and np.isnan(column).any():
            where = layout.position(np.isnan(column).argmax())
            raise ValueError(f"{name}[{where}] is NaN: remove the element or give it weight 0")
    return layout, flat


def zero_or_one(column: NDArray, name: str, layout: Elements) -> NDArray[np.bool_]:
    """A column of 0/1 or False/True as booleans."""
    if column.dtype == np.bool_:
        return column
    bad = (column != 0) & (column != 1)
    if bad.any():
        at = bad.argmax()
        raise ValueError(f"{name}[{layout.position(at)}] is {column[at]}: pass only 0 and 1 (or booleans)")
    return column != 0


def unit_interval(column: NDArray, name: str, layout: Elements) -> NDArray[np.float64]:
    """A column of probabilities as float64; up to 1e-6 above 1 passes for rounding and becomes 1."""
    bad = ~((column >= 0) & (column <= 1 + ROUNDING))
    if bad.any():
        at = bad.argmax()
        raise ValueError(
            f"{name}[{layout.position(at)}] is {column[at]}, outside [0, 1]: pass probabilities, not logits"
        )
    return np.minimum(column.astype(np.float64), 1.0)
