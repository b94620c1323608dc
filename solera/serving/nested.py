"""Nested lists of numbers in JSON, read as an array without making the lists.

A body {"inputs": [[1, 2], [3, 4]]} without its digits and blanks is `{"":[[,],[,]]}`: the text of the brackets alone
tells the rows, and whether all have the student's shape. It is compared with the only right one, which counts the rows
before a number is read; the numbers follow in slices, so that other threads have their turn.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from solera.serving.limits import Limits
from solera.serving.refused import RefusedError, short

_BEGIN = re.compile(rb'\s*\{\s*"inputs"\s*:\s*(?=\[)')
_NUMBERS = b"0123456789+-.eE \t\r\n"
_BRACKETS = bytes.maketrans(b"[]", b"  ")
_SLICE = 65_536  # characters whose numbers are read at once, about a millisecond
VALUES = 250_000  # numbers, lists and objects of a body that has another form: Python reads those in one go
REST = 4096  # characters after the numbers: threshold and measure


def brackets(shape: Sequence[int]) -> bytes:
    """One example of this shape without its numbers: [2, 3] gives `[[,,],[,,]]`."""
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text


def _array(text: bytes) -> np.ndarray:
    """The numbers, in their order. JSON's own grammar: no 01, no 1., no nan."""
    parts, begin = [], 0
    while begin < len(text):
        end = text.find(b",", begin + _SLICE)
        end = len(text) if end < 0 else end
        parts.append(np.array(json.loads(b"[" + text[begin:end] + b"]"), np.float64))
        begin = end + 1
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def from_text(body: bytes, shape: Sequence[Any], limits: Limits) -> tuple[np.ndarray, dict[str, Any]] | None:
    """The rows of `inputs`, and the other keys; None if the body has another form, good or bad."""
    found = _BEGIN.match(body)
    end = body.rfind(b"]") + 1
    if not found or not end or len(body) - end > REST or not all(type(size) is int and size > 0 for size in shape):
        return None
    numbers = body[found.end() : end]
    bare, one = numbers.translate(None, _NUMBERS), brackets(shape)
    rows = (len(bare) - 1) // (len(one) + 1)  # each row is followed by a comma or by the last bracket
    whole = bare == one
    if not whole and (rows < 1 or bare != b"[" + b",".join([one] * rows) + b"]"):
        return None
    rows = 1 if whole else rows
    limits.check_rows(rows, "inputs")
    try:
        rest = body[end:].strip()
        pairs = [] if rest == b"}" else json.loads(b'{"inputs": null' + rest, object_pairs_hook=list)
        array = _array(numbers.translate(_BRACKETS))
    except (ValueError, OverflowError, RecursionError):
        return None
    expected = rows * int(np.prod(shape, dtype=np.int64))
    if array.shape != (expected,) or len({key for key, _ in pairs}) < len(pairs):
        return None
    return array.reshape(rows, *shape), dict(pairs)


def require_few_values(body: bytes, most: int = VALUES) -> None:
    """Bounds what Python would make of a body that is read in one go: its commas and brackets are counted."""
    count = sum(body.count(sign) for sign in (b",", b"[", b"{"))
    if count > most:
        reason = (
            f"the body has {count} numbers, lists and objects where at most {most} are read in this form: send fewer "
            'rows, NumPy bytes, or {"inputs": [...]} with nothing but lists of numbers in the shape of the inputs'
        )
        raise RefusedError(413, "body", reason)


def _constant(name: str) -> float:
    raise RefusedError(
        422, "body", f"the body holds {name}, which JSON does not have and no student reads: send finite numbers"
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise RefusedError(422, twice[:60], f"the body has {short(twice)} twice: send it once")
    return found


def json_of(body: bytes, send: str) -> Any:
    """What a body in JSON holds, if that is not too much; `send` says what it should be."""
    require_few_values(body)
    try:
        return json.loads(body, parse_constant=_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "body", f"the body is not JSON ({short(str(error))}): {send}") from None
