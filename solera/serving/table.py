"""Rows with words and null in them, as requests have them, as rows of numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from solera.data.names import as_names
from solera.data.table import MISSING, UNKNOWN
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served


def _coded_word(value: Any, codes: Mapping[str, int], where: str) -> float:
    """The place of a word; an unknown one is told from a wrong value: it is text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return codes.get(value, UNKNOWN)
    if isinstance(value, (bool, int, float)) and (word := as_names([value])[0]) in codes:
        return codes[word]
    reason = f"{where} is {short(value)}, none of its words {short(list(codes)[:20], 200)}: send one, or null"
    raise RefusedError(422, where, reason)


def number_of(value: Any, name: str | None, where: str, served: Served) -> float:
    """A cell of the column `name` as a number: itself, a word's place, or what stands for null."""
    if name in served.codes:
        return _coded_word(value, served.codes[name], where)
    if type(value) in (int, float):
        return value
    if value is None and served.missing:
        return MISSING
    instead = "a number, or null where there is none" if served.missing else "a number"
    raise RefusedError(422, where, f"{where} is {short(value)}, not a number: send {instead}")


def rows_of(value: Any, where: str, served: Served) -> Any:
    """One row or a list of them with numbers in all cells; what has another form is left for others to refuse."""
    names: Sequence[str | None] = served.features
    width = (served.inputs[0].shape or [0])[-1]
    if not isinstance(value, list):
        return value
    if any(isinstance(part, list) for part in value):
        return [rows_of(part, f"{where}[{number}]", served) for number, part in enumerate(value)]
    if len(value) != width:
        return value
    cells = zip(value, names or [None] * len(value), strict=True)
    return [number_of(cell, name, f"{where}[{place}]", served) for place, (cell, name) in enumerate(cells)]
