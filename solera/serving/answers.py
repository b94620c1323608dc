"""From what the graph said to the bytes of an answer: JSON for people, NumPy's formats for programs."""

import io
import json
from typing import Any

import numpy as np

from solera.serving.graph import Arrays
from solera.serving.reading import JSON, NPY, NPZ
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served

OFFERED = (JSON, NPZ, NPY)
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


def _label(mean: np.ndarray, served: Served) -> list[Any]:
    """Names of the likeliest classes, nested as the rows are."""
    return np.asarray(served.labels, dtype=object)[mean.argmax(-1)].tolist()


def as_json(
    said: Arrays, accepted: np.ndarray | None, served: Served, threshold: float | None, measure: str | None
) -> bytes:
    """One object for every row, and what holds for all of them beside."""
    columns: dict[str, list[Any]] = {} if served.family == "gaussian" else {"label": _label(said["mean"], served)}
    columns |= {name: array.tolist() for name, array in said.items()}
    columns |= {} if accepted is None else {"accepted": accepted.tolist()}
    content: dict[str, Any] = {"fingerprint": served.fingerprint, "labels": list(served.labels)}
    if threshold is not None:
        content |= {"threshold": threshold, "measure": measure or DEFAULT}
    content["predictions"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps(content).encode()


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
