"""From what the graph said to the bytes of an answer: JSON for people, NumPy's formats for programs."""

import io
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from solera.serving.decode import JSON, NPY, NPZ, Asked
from solera.serving.graph import Arrays
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served

OFFERED = (JSON, NPZ, NPY)
_FINITE = json.JSONEncoder(allow_nan=False).encode
DEFAULT = "total"  # the uncertainty that a threshold is for, unless the request names one


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


@lru_cache(256)
def answer_type(accept: str) -> str:
    """The first of our formats that the Accept header likes best; JSON if it does not say."""
    liked: dict[str, float] = {}
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        name, _, parameters = part.partition(";")
        liked[name.strip().lower()] = _quality(parameters)

    def quality(kind: str) -> float:
        return next((liked[name] for name in (kind, "application/*", "*/*") if name in liked), 0.0)

    best = max(OFFERED, key=quality)
    if not quality(best) > 0:
        reason = f"Accept is {short(accept)}, which is none of ours: ask for {', '.join(OFFERED)}, or leave it out"
        raise RefusedError(406, "Accept", reason)
    return best


def require_finite(said: Arrays) -> None:
    """Finite inputs can still be too large for the student's own arithmetic."""
    for name, array in said.items():
        wrong = ~np.isfinite(array)
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            reason = (
                f"the student's {name} for inputs[{row}] is not a finite number: its numbers are too large or small"
            )
            raise RefusedError(422, f"inputs[{row}]", reason + " for it, check their units")


def decided(said: Arrays, threshold: float | None, measure: str | None) -> np.ndarray | None:
    """True where the uncertainty is at most the threshold: the rule of `solera.evaluation`'s threshold tables."""
    return None if threshold is None else said[measure or DEFAULT] <= threshold


def _label(mean: np.ndarray, served: Served) -> Any:
    """The name of the likeliest class; of a tagger, one for every token."""
    best = mean.argmax(-1)
    return served.class_names[int(best)] if best.ndim == 0 else [served.class_names[k] for k in best.tolist()]


@lru_cache(8)
def _beginning(fingerprint: str, labels: tuple[str, ...]) -> str:
    """The same in every answer."""
    return json.dumps({"fingerprint": fingerprint, "labels": labels})[:-1]


def _rows(said: Arrays, accepted: np.ndarray | None, served: Served) -> Iterator[str]:
    """One object for every row. Each by itself: json would keep all other threads waiting for the whole."""
    for row in range(len(said["mean"])):
        entry: dict[str, Any] = {} if served.family == "gaussian" else {"label": _label(said["mean"][row], served)}
        entry |= {name: array[row].tolist() for name, array in said.items()}
        entry |= {} if accepted is None else {"accepted": accepted[row].tolist()}
        yield _FINITE(entry)


def as_json(said: Arrays, accepted: np.ndarray | None, served: Served, asked: Asked) -> bytes:
    """One object for every row, and what holds for all of them before."""
    parts = [_beginning(served.fingerprint, tuple(served.class_names))]
    if asked.threshold is not None:
        parts.append(json.dumps({"threshold": asked.threshold, "measure": asked.measure or DEFAULT})[1:-1])
    parts.append(f'"predictions": [{", ".join(_rows(said, accepted, served))}]}}')
    return ", ".join(parts).encode()


def as_npz(said: Arrays, accepted: np.ndarray | None) -> bytes:
    """An array for every output."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **said, **({} if accepted is None else {"accepted": accepted}))
    return file.getvalue()


def as_npy(said: Arrays, accepted: np.ndarray | None) -> bytes:
    """One array of records: `answer["mean"]`, as with .npz, and `answer[3]` is all that was said of one row."""
    columns = {**said, **({} if accepted is None else {"accepted": accepted})}
    kind = np.dtype([(name, array.dtype, array.shape[1:]) for name, array in columns.items()])
    records = np.empty(len(said["mean"]), kind)
    for name, array in columns.items():
        records[name] = array
    file = io.BytesIO()
    np.save(file, records, allow_pickle=False)
    return file.getvalue()


def bytes_of_answer(served: Served, asked: Asked, kind: str) -> int:
    """About as large will the answer be: every number has 4 bytes in NumPy's formats, up to 24 characters in JSON."""
    first = next(iter(asked.arrays.values()))
    tokens = first.shape[1] if served.axes and first.ndim > 1 else 1
    numbers = len(first) * tokens * (len(served.class_names) + 4)
    return numbers * (24 if kind == JSON else 4)


def encoded(said: Arrays, asked: Asked, served: Served, kind: str) -> tuple[bytes, np.ndarray | None]:
    """The bytes of the answer, and what was accepted."""
    accepted = decided(said, asked.threshold, asked.measure)
    if kind == JSON:
        try:
            return as_json(said, accepted, served, asked), accepted
        except ValueError:  # a number is not finite: say which
            require_finite(said)
            raise
    require_finite(said)
    return (as_npz if kind == NPZ else as_npy)(said, accepted), accepted
