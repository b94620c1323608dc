"""From the bytes of a request to arrays, or to a reason why not: nothing is guessed, and nothing is unpickled."""

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solera.serving.graph import Arrays
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served
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


def as_rows(array: np.ndarray, given: Input) -> np.ndarray:
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
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.ascontiguousarray(array.astype(dtype, copy=False))
    wrong = ~np.isfinite(cast) if dtype.kind == "f" else cast != array
    if wrong.any():
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


def from_lists(value: Any, given: Input) -> np.ndarray:
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
    return as_rows(array, given)


def from_columns(value: Any, given: Input, features: Sequence[str]) -> np.ndarray:
    """One object of named numbers, or a list of them, as rows in the student's order."""
    objects = value if isinstance(value, list) else [value]
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
        rows.append([row[name] for name in features])
        for name in features:
            if type(row[name]) not in (int, float):
                place = f"{where}.{name}"
                raise RefusedError(422, place, f"{place} is {short(row[name])}, not a number: send a number")
    return from_lists(rows, given)


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


def _inputs(value: Any, served: Served) -> Arrays:
    if len(served.inputs) > 1:
        if not isinstance(value, dict):
            names = [i.name for i in served.inputs]
            raise RefusedError(422, "inputs", f"inputs is {short(value)}: send an object with exactly {names}")
        _by_name(value, served)
        return _same_length({i.name: from_lists(value[i.name], i) for i in served.inputs})
    only = served.inputs[0]
    named = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(row, dict) for row in value))
    return {only.name: from_columns(value, only, served.features) if named else from_lists(value, only)}


def _constant(name: str) -> float:
    raise RefusedError(
        422, "body", f"the body holds {name}, which JSON does not have and no student reads: send finite numbers"
    )


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


def read_json(body: bytes, served: Served) -> Asked:
    """{"inputs": ..., "threshold": ..., "measure": ...}, the last two as one likes."""
    try:
        content = json.loads(body, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        reason = f'the body is not JSON ({short(str(error))}): send {{"inputs": [...]}}'
        raise RefusedError(400, "body", reason) from None
    if not isinstance(content, dict) or "inputs" not in content:
        raise RefusedError(422, "inputs", f'the body is {short(content)}, without inputs: send {{"inputs": [...]}}')
    if unknown := [key for key in content if key not in KEYS]:
        raise RefusedError(422, unknown[0], f"the body has {short(unknown)}: send only {', '.join(KEYS)}")
    threshold, measure = threshold_of(content.get("threshold")), measure_of(content.get("measure"), served)
    try:
        return Asked(_inputs(content["inputs"], served), threshold, measure)
    except RecursionError:
        raise RefusedError(422, "inputs", f"inputs is nested too deep: send {_wanted(served.inputs[0])}") from None


def array_of(content: bytes, name: str) -> np.ndarray:
    """The array of a .npy file. Read by hand: NumPy would first reserve all that a header claims."""
    file = io.BytesIO(content)
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
    claimed, there = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
    if min(shape, default=0) < 0 or claimed != there:
        reason = f"{name} has {there} bytes of numbers, its header says {claimed}: send the whole file, and only it"
        raise RefusedError(400, name, reason)
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def read_npy(body: bytes, served: Served) -> Asked:
    """One array, for a student with one input."""
    if len(served.inputs) > 1:
        names = [i.name for i in served.inputs]
        raise RefusedError(422, "body", f"this student takes {names}, not one array: send them as {NPZ} or {JSON}")
    only = served.inputs[0]
    return Asked({only.name: as_rows(array_of(body, only.name), only)})


def read_npz(body: bytes, served: Served, most: int) -> Asked:
    """Arrays by the names of the inputs; unpacked they may have `most` bytes together."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            size = sum(item.file_size for item in packed.infolist())
            if size > most:
                raise RefusedError(413, "body", f"the body unpacks to {size} bytes: send at most {most} at a time")
            contents = {item.filename.removesuffix(".npy"): packed.read(item) for item in packed.infolist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, KeyError) as error:
        reason = f"the body is not a .npz file ({short(str(error))}): send what numpy.savez writes"
        raise RefusedError(400, "body", reason) from None
    except Exception as error:  # zlib, lzma and bz2 each have their own, without a common parent
        if isinstance(error, RefusedError):
            raise
        raise RefusedError(
            400, "body", f"the body is a damaged .npz file ({short(str(error))}): send it again"
        ) from None
    _by_name(contents, served)
    return Asked(_same_length({i.name: as_rows(array_of(contents[i.name], i.name), i) for i in served.inputs}))


def read(body: bytes, kind: str, served: Served, most: int) -> Asked:
    """What a request asks, by its content type."""
    if kind == JSON:
        return read_json(body, served)
    if kind == NPY:
        return read_npy(body, served)
    if kind == NPZ:
        return read_npz(body, served, most)
    raise RefusedError(
        415, "Content-Type", f"the Content-Type is {short(kind) if kind else 'missing'}: send {JSON}, {NPY} or {NPZ}"
    )
