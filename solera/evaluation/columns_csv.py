"""Columns as one table that others read too: CSV, one line per model, set and element.

A line has `model`, `set`, `example` (the example's index) and, for sequences, `token`; then the true `target` and what
the model said, and how wrong it is. A cell is empty where a model has no such number; true is 1. Floats are written
in the fewest digits that give the same number back. A column of several dimensions is `name[0]`, `name[1]`, …
A name that begins as a formula does (= + - @) has an apostrophe before it, so that no spreadsheet runs it.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import groupby, islice

import numpy as np

from solera.evaluation.measure import Sets
from solera.evaluation.stream import Elements
from solera.tasks import Columns

BLOCK = 10_000  # lines
PLACE = ("model", "set", "example", "token")
ORDER = ("target", "predicted", "confidence", "correct", "squared_error", "total", "data", "knowledge")  # then the rest


def quoted(text: str) -> str:
    """A name that a spreadsheet would take for a formula gets an apostrophe before it, and so does one that has one."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "'")) else text


def unquoted(text: str) -> str:
    """The name as it was."""
    return text.removeprefix("'")


def _text(column: np.ndarray) -> list[str]:
    return (column.astype(np.int8) if column.dtype == bool else column).astype(str).tolist()


def _flat(columns: Columns) -> Columns:
    """One number a line: a column of several dimensions becomes several."""
    found: Columns = {}
    for name, column in columns.items():
        if column.ndim == 1:
            found[name] = column
        else:
            found |= {f"{name}[{d}]": column[:, d] for d in range(column.shape[1])}
    return found


def _rank(name: str) -> int:
    stem = name.partition("[")[0]
    return ORDER.index(stem) if stem in ORDER else len(ORDER)


def written(every: Mapping[str, Sets], elements: Mapping[str, Elements]) -> bytes:
    """The whole table."""
    targets = {name: {} if facts.target is None else {"target": facts.target} for name, facts in elements.items()}
    parts = {(m, name): _flat(columns | targets[name]) for m, sets in every.items() for name, columns in sets.items()}
    names = sorted(dict.fromkeys(key for part in parts.values() for key in part), key=_rank)
    tokens = any(facts.token is not None for facts in elements.values())
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*PLACE[: 3 + tokens], *map(quoted, names)])
    for (model, name), columns in parts.items():
        facts, count = elements[name], len(elements[name].example)
        cells = [_text(columns[key]) if key in columns else [""] * count for key in names]
        places = [facts.example.tolist()]
        if tokens:
            places.append([""] * count if facts.token is None else facts.token.tolist())
        writer.writerows(zip([quoted(model)] * count, [quoted(name)] * count, *places, *cells, strict=True))
    return file.getvalue().encode()


def kinds_of(every: Mapping[str, Sets], elements: Mapping[str, Elements]) -> dict[str, str]:
    """The kind of number of each column, by name: float32, bool and so on."""
    found = {name: str(column.dtype) for sets in every.values() for c in sets.values() for name, column in c.items()}
    targets = [facts.target for facts in elements.values() if facts.target is not None]
    return {**found, "target": str(targets[0].dtype)} if targets else found


def _array(cells: list[str], kind: str) -> np.ndarray:
    return np.array(cells, dtype=np.float64 if kind == "bool" else kind).astype(kind)


def _blocks(content: bytes | bytearray) -> Iterator[tuple[tuple[str, str], dict[str, list[str]]]]:
    """The lines as columns of texts, some of one model and set at a time: texts take ten times their bytes."""
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""))
    header = [unquoted(name) for name in next(lines)]
    while some := list(islice(lines, BLOCK)):
        for place, own in groupby(some, key=lambda line: (unquoted(line[0]), unquoted(line[1]))):
            yield place, dict(zip(header, map(list, zip(*own, strict=True)), strict=True))


def read(content: bytes | bytearray, kinds: Mapping[str, str]) -> tuple[dict[str, Sets], dict[str, Elements]]:
    """Every model's columns by set, and the sets' elements, exactly as they were written."""
    parts: dict[tuple[str, str], dict[str, list[np.ndarray]]] = {}
    for place, cells in _blocks(content):
        part = parts.setdefault(place, {})
        for key, column in cells.items():
            if key not in PLACE[:2] and column[0] != "":
                kind = "int64" if key in PLACE else kinds[key.partition("[")[0]]
                part.setdefault(key, []).append(_array(column, kind))
    every: dict[str, Sets] = {}
    elements: dict[str, Elements] = {}
    for (model, name), blocks in parts.items():
        columns = _whole({key: np.concatenate(some) for key, some in blocks.items()})
        elements[name] = Elements(columns.pop("example"), columns.pop("token", None), columns.pop("target", None))
        every.setdefault(model, {})[name] = columns
    return every, elements


def _whole(columns: Columns) -> Columns:
    """`_flat`, undone."""
    several: dict[str, list[np.ndarray]] = {}
    for key, column in columns.items():
        several.setdefault(key.partition("[")[0], []).append(column)
    return {key: np.stack(some, -1) if f"{key}[0]" in columns else some[0] for key, some in several.items()}
