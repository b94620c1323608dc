"""Class names: which number a label is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.data.arrays import as_array, as_target
from solera.data.batch import UNLABELLED

Names = Sequence[Any] | np.ndarray  # of classes, as the user has them


def as_names(values: Names) -> list[str]:
    """Names as text, whatever they were: 1, 1.0, np.int64(1) and "1" are one class."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [str(int(value) if isinstance(value, float) and value.is_integer() else value) for value in plain]


def _missing(values: np.ndarray) -> np.ndarray:
    """Where a label is None or NaN: the example is unlabelled."""
    return np.array([value is None or value != value for value in values.ravel()], dtype=bool).reshape(values.shape)


def _whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def are_names(target: Any, names: Sequence[str] | None) -> bool:
    """Whether labels are names of classes: words always are, numbers only beside classes named by other numbers.

    Classes called 0 to K − 1 in this order are their own numbers.
    """
    if as_array(target).dtype.kind in "OUS":
        return True
    numbered = names is not None and list(names) == [str(number) for number in range(len(names))]
    return names is not None and not numbered and all(map(_whole, names)) and as_array(target).dtype.kind in "biuf"


def class_numbers(target: Any, names: Sequence[str] | None = None) -> tuple[Tensor, list[str] | None]:
    """Labels as class numbers, by the names of the classes (where there are none: the labels', sorted), and the names.

    Numbers beside classes without names, or with words for names, are class numbers already. None and NaN among words
    are examples without a label.
    """
    known = None if names is None else list(names)
    if not are_names(target, known):
        return as_target(target), known
    array = as_array(target)
    missing = _missing(array) if array.dtype.kind == "O" else np.zeros(array.shape, dtype=bool)
    if array.dtype.kind in "biu":
        missing = array == UNLABELLED
    unique, place = np.unique(
        np.asarray(array[~missing], dtype=str if array.dtype.kind in "OUS" else None), return_inverse=True
    )
    said = as_names(unique)
    known = said if known is None else known
    if strange := [name for name in said if name not in known]:
        raise ValueError(
            f"labels hold {strange[0]!r}, which is none of the {len(known)} classes {', '.join(known[:8])}"
            f"{', …' if len(known) > 8 else ''}: correct it, or train with that class"
        )
    numbers = torch.full(array.shape, UNLABELLED, dtype=torch.long)
    order = torch.tensor([known.index(name) for name in said], dtype=torch.long)
    numbers[torch.from_numpy(~missing)] = order[torch.from_numpy(place.reshape(-1))]
    return numbers, known


def whole_classes(target: Tensor) -> Tensor:
    """Class numbers that came as floating-point ones, as a data frame keeps them where some are missing (NaN)."""
    if not target.is_floating_point():
        return target
    known = ~target.isnan()
    if (strange := target[known & (target != target.round())]).numel():
        raise ValueError(f"classes are whole numbers, the labels hold {strange.reshape(-1)[0].item():.4g}")
    return torch.where(known, target.nan_to_num(), target.new_tensor(float(UNLABELLED))).long()


def renumbered(target: Tensor, names: Sequence[str], wanted: Sequence[str]) -> Tensor:
    """Class numbers in the order of `names` as numbers in the order of `wanted`."""
    if list(names) == list(wanted):
        return target
    if strange := [name for name in names if name not in wanted]:
        raise ValueError(
            f"the data have a class {strange[0]!r}, the teacher knows {', '.join(wanted)}: train it on that"
        )
    order = torch.tensor([list(wanted).index(name) for name in names])
    known = target != UNLABELLED
    return torch.where(known, order[target.masked_fill(~known, 0)], target)
