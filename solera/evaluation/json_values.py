"""Numbers as JSON has them: five digits are enough for a picture, and what is not finite is null."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def significant(value: float | None, digits: int = 5) -> float | None:
    """A number to so many digits; None where there is none."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def told(value: float) -> float | str:
    """A number of a table: JSON has none that is infinite, so that is the text `inf` or `-inf`, as float() reads it."""
    return str(value) if math.isinf(value) else value


def plain(value: Any) -> Any:
    """Any nesting of dicts, lists, arrays and numbers, as JSON values."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f":
        return [float(f"{x:.5g}") if math.isfinite(x) else None for x in value.tolist()]  # at once: there are many
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "biu" else plain(list(value))
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return significant(value) if isinstance(value, float) else value
