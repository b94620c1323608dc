"""From the bytes of a request to arrays, or to a reason why not: nothing is guessed, and nothing is unpickled."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solera.serving.graph import Arrays
from solera.serving.limits import Limits
from solera.serving.nested import from_text, json_of
from solera.serving.npy import array_of, arrays_of
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served
from solera.serving.table import number_of, rows_of
from solera.training.card import Input

JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
KEYS = ("inputs", "threshold", "measure")


@dataclass(frozen=True)
class Asked:
    """Arrays by the names of the inputs, first axis the rows; and what to accept, if the request says so."""

    arrays: Arrays
    threshold: float | None = None
    measure: str | None = None

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))


def _axes(axes: Sequence[object]) -> str:
    return "[" + ", ".join(map(str, axes)) + "]"


def _wanted(given: Input) -> str:
    shape = list(given.shape or ())
    return f"{given.dtype} numbers of shape {_axes(shape)} (one example) or {_axes(['rows', *shape])}"


def _fits(shape: Sequence[int], wanted: Sequence[int | str]) -> bool:
    return len(shape) == len(wanted) and all(isinstance(w, str) or s == w for s, w in zip(shape, wanted, strict=True))


def as_rows(array: np.ndarray, given: Input, limits: Limits) -> np.ndarray:
    """With the rows as first axis and the student's dtype; every number finite."""
    name, shape, dtype = given.name, list(given.shape or ()), np.dtype(given.dtype)
    kinds = "fiu" if dtype.kind == "f" else "iu"
    if array.dtype.kind not in kinds:
        raise RefusedError(422, name, f"{name} has the dtype {array.dtype}: send {_wanted(given)}")
    if 0 in array.shape:
        raise RefusedError(422, name, f"{name} is empty, its shape is {_axes(array.shape)}: send {_wanted(given)}")
    if _fits(array.shape, shape):
        array = array[None]
    if not _fits(array.shape[1:], shape):
        raise RefusedError(422, name, f"{name} has the shape {_axes(array.shape)}: send {_wanted(given)}")
    limits.check_shape(array.shape, shape, name)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.ascontiguousarray(array.astype(dtype, copy=False))
    right = np.isfinite(cast) if dtype.kind == "f" else cast == array
    if not right.all():
        wrong = ~right
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        value = array[place].item()
        where = name + "".join(f"[{i}]" for i in place)
        reason = f"{where} is {short(value)}, not a finite {dtype} number: leave the row out or mend it"
        raise RefusedError(422, where, reason)
    return cast


def _nested(value: Any, where: str, shown: Callable[[], str]) -> None:
    """Lists of lists of numbers, as deep as they are; anything else is refused where it stands."""
    if isinstance(value, list):
        if {type(item) for item in value} <= {int, float}:
            return
        for number, item in enumerate(value):
            _nested(item, f"{where}[{number}]", shown)
    elif type(value) not in (int, float):
        raise RefusedError(422, where, f"{where} is {short(value)}, not a number: send {shown()}")


def from_lists(value: Any, given: Input, limits: Limits) -> np.ndarray:
    """Nested lists of JSON as an array."""
    _nested(value, given.name, lambda: _wanted(given))
    real = np.dtype(given.dtype).kind == "f"
    try:
        array = np.asarray(value, np.float64) if real else np.asarray(value)
        if array.dtype.kind == "f" and not real and (array == np.trunc(array)).all():
            array = array.astype(np.int64)  # 3.0 is a whole number too
    except OverflowError:
        reason = f"{given.name} holds a number beyond {given.dtype}: send {_wanted(given)}"
        raise RefusedError(422, given.name, reason) from None
    except ValueError:
        reason = f"{given.name} is ragged, or nested too deep: send {_wanted(given)}"
        raise RefusedError(422, given.name, reason) from None
    return as_rows(array, given, limits)


def from_columns(value: Any, served: Served, limits: Limits) -> np.ndarray:
    """One object of named cells, or a list of them, as rows in the student's order."""
    given, features = served.inputs[0], served.features
    objects = value if isinstance(value, list) else [value]
    limits.check_rows(len(objects), given.name)
    rows = []
    for number, row in enumerate(objects):
        where = f"{given.name}[{number}]" if isinstance(value, list) else given.name
        if not isinstance(row, dict):
            reason = f"{where} is {short(row)}, but other rows are objects: name the numbers of every row or of none"
            raise RefusedError(422, where, reason)
        if not features:
            reason = f"{where} has named numbers, but this student knows no names: send {_wanted(given)}"
            raise RefusedError(422, where, reason)
        missing = [name for name in features if name not in row]
        unknown = [name for name in row if name not in features]
        if missing or unknown:
            wrong = f"lacks {short(missing)}" if missing else f"has {short(unknown)}, which the student does not know"
            raise RefusedError(422, where, f"{where} {wrong}: send exactly {short(list(features), 400)}")
        rows.append([number_of(row[name], name, f"{where}.{name}", served) for name in features])
    return from_lists(rows, given, limits)


def _same_length(arrays: Arrays) -> Arrays:
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise RefusedError(422, "inputs", f"the inputs have different numbers of rows, {counts}: send as many of each")
    return arrays


def _by_name(given: Mapping[str, Any], served: Served) -> None:
    names = [i.name for i in served.inputs]
    if sorted(given) != sorted(names):
        reason = f"inputs has the names {short(list(given))}: send an object with exactly {names}"
        raise RefusedError(422, "inputs", reason)


def _inputs(value: Any, served: Served, limits: Limits) -> Arrays:
    if len(served.inputs) > 1:
        if not isinstance(value, dict):
            names = [i.name for i in served.inputs]
            raise RefusedError(422, "inputs", f"inputs is {short(value)}: send an object with exactly {names}")
        _by_name(value, served)
        return _same_length({i.name: from_lists(value[i.name], i, limits) for i in served.inputs})
    only = served.inputs[0]
    named = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(row, dict) for row in value))
    if named:
        return {only.name: from_columns(value, served, limits)}
    numbers = rows_of(value, only.name, served) if served.categories or served.missing else value
    return {only.name: from_lists(numbers, only, limits)}


def threshold_of(value: Any) -> float | None:
    """A finite number or nothing."""
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(number := _float(value)):
        raise RefusedError(422, "threshold", f"threshold is {short(value)}: send a finite number, or leave it out")
    return number


def threshold_in_query(text: str | None) -> float | None:
    """The same, from text."""
    try:
        return threshold_of(None if text is None else float(text))
    except ValueError:
        reason = f"threshold is {short(text)}: send a finite number, or leave it out"
        raise RefusedError(422, "threshold", reason) from None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def measure_of(value: Any, served: Served) -> str | None:
    """One of the student's uncertainties or nothing."""
    if value is not None and value not in served.measures:
        reason = f"measure is {short(value)}: choose one of {', '.join(served.measures)}, or leave it out"
        raise RefusedError(422, "measure", reason)
    return value


def _extras(content: Mapping[str, Any], served: Served) -> tuple[float | None, str | None]:
    """Threshold and measure."""
    if unknown := [key for key in content if key not in KEYS]:
        raise RefusedError(422, unknown[0][:60], f"the body has {short(unknown)}: send only {', '.join(KEYS)}")
    return threshold_of(content.get("threshold")), measure_of(content.get("measure"), served)


def read_json(body: bytes, served: Served, limits: Limits) -> Asked:
    """{"inputs": ..., "threshold": ..., "measure": ...}, the last two as one likes."""
    only = served.inputs[0]
    if len(served.inputs) == 1 and only.dtype.startswith("float") and not served.categories:
        quick = from_text(body, only.shape or (), limits)
        if quick is not None:
            array, others = quick
            return Asked({only.name: as_rows(array, only, limits)}, *_extras(others, served))
    content = json_of(body, 'send {"inputs": [...]}')
    if not isinstance(content, dict) or "inputs" not in content:
        raise RefusedError(422, "inputs", f'the body is {short(content)}, without inputs: send {{"inputs": [...]}}')
    extras = _extras(content, served)
    try:
        return Asked(_inputs(content["inputs"], served, limits), *extras)
    except RecursionError:
        raise RefusedError(422, "inputs", f"inputs is nested too deep: send {_wanted(only)}") from None


def read_npy(body: bytes, served: Served, limits: Limits) -> Asked:
    """One array, for a student with one input."""
    if len(served.inputs) > 1:
        names = [i.name for i in served.inputs]
        raise RefusedError(422, "body", f"this student takes {names}, not one array: send them as {NPZ} or {JSON}")
    only = served.inputs[0]
    return Asked({only.name: as_rows(array_of(body, only.name), only, limits)})


def read_npz(body: bytes, served: Served, limits: Limits) -> Asked:
    """Arrays by the names of the inputs."""
    arrays = arrays_of(body, served.inputs, limits)
    return Asked(_same_length({i.name: as_rows(arrays[i.name], i, limits) for i in served.inputs}))


def read(body: bytes, kind: str, served: Served, limits: Limits) -> Asked:
    """What a request asks, by its content type."""
    if kind == JSON:
        return read_json(body, served, limits)
    if kind == NPY:
        return read_npy(body, served, limits)
    if kind == NPZ:
        return read_npz(body, served, limits)
    raise RefusedError(
        415, "Content-Type", f"the Content-Type is {short(kind) if kind else 'missing'}: send {JSON}, {NPY} or {NPZ}"
    )
