"""Columns as one table that others read too: CSV, one line per model, set and example.

A line has `model`, `set`, `example` (the row of the inputs) and, for sequences, `token`; then the true `target` and
what the model said, and how wrong it is. A cell is empty where a model has no such number; true is 1. Floats are
written in the fewest digits that give the same number back. A column of several dimensions is `name[0]`, `name[1]`, …
"""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from solera.evaluation.measure import Sets
from solera.tasks import Columns

PLACE = ("model", "set", "example", "token")
ORDER = ("target", "predicted", "confidence", "correct", "squared_error", "total", "data", "knowledge")  # then the rest
Shapes = Mapping[str, list[int]]  # of the examples of each set: [N], or [N, tokens]


def _text(column: np.ndarray) -> list[str]:
    return (column.astype(np.int8) if column.dtype == bool else column).astype(str).tolist()


def _flat(columns: Columns, shape: list[int]) -> Columns:
    """One number a line: a column of several dimensions becomes several."""
    found: Columns = {}
    for name, column in columns.items():
        rest = column.reshape(int(np.prod(shape)), -1)
        if column.ndim == len(shape):
            found[name] = rest[:, 0]
        else:
            found |= {f"{name}[{d}]": rest[:, d] for d in range(rest.shape[1])}
    return found


def _rank(name: str) -> int:
    stem = name.partition("[")[0]
    return ORDER.index(stem) if stem in ORDER else len(ORDER)


def shapes_of(every: Mapping[str, Sets]) -> dict[str, list[int]]:
    """The batch axes of each set: those of the total uncertainty, one number per example or token."""
    return {name: list(columns["total"].shape) for sets in every.values() for name, columns in sets.items()}


def written(every: Mapping[str, Sets], target: np.ndarray) -> bytes:
    """The whole table."""
    shapes = shapes_of(every)
    parts = {
        (model, name): _flat(columns | ({"target": target} if name == "test" else {}), shapes[name])
        for model, sets in every.items()
        for name, columns in sets.items()
    }
    names = sorted(dict.fromkeys(key for part in parts.values() for key in part), key=_rank)
    tokens = any(len(shape) > 1 for shape in shapes.values())
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*PLACE[: 3 + tokens], *names])
    for (model, name), columns in parts.items():
        shape, count = shapes[name], int(np.prod(shapes[name]))
        place = np.unravel_index(np.arange(count), (shape[0], int(np.prod(shape[1:]))))
        cells = [_text(columns[key]) if key in columns else [""] * count for key in names]
        numbers = [part.tolist() for part in place[: 1 + tokens]]
        writer.writerows(zip([model] * count, [name] * count, *numbers, *cells, strict=True))
    return file.getvalue().encode()


def kinds_of(every: Mapping[str, Sets], target: np.ndarray) -> dict[str, str]:
    """The kind of number of each column, by name: float32, bool and so on."""
    found = {name: str(column.dtype) for sets in every.values() for c in sets.values() for name, column in c.items()}
    return {**found, "target": str(target.dtype)}


def _array(cells: list[str], kind: str) -> np.ndarray:
    return np.array(cells, dtype=np.float64 if kind == "bool" else kind).astype(kind)


def _parts(content: bytes) -> Iterator[tuple[tuple[str, str], dict[str, list[str]]]]:
    """The lines of each model and set, as columns of texts."""
    header, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    groups: dict[tuple[str, str], list[Any]] = {}
    for line in lines:
        groups.setdefault((line[0], line[1]), []).append(line)
    for place, some in groups.items():
        yield place, dict(zip(header, map(list, zip(*some, strict=True)), strict=True))


def read(content: bytes, shapes: Shapes, kinds: Mapping[str, str]) -> tuple[dict[str, Sets], np.ndarray]:
    """Every model's columns by set, and the targets, exactly as they were written."""
    every: dict[str, Sets] = {}
    target = np.empty(0)
    for (model, name), cells in _parts(content):
        columns: dict[str, list[np.ndarray]] = {}
        for key, column in cells.items():
            stem = key.partition("[")[0]
            if key not in PLACE and column[0] != "":
                columns.setdefault(stem, []).append(_array(column, kinds[stem]))
        whole = {
            key: (np.stack(parts, -1) if f"{key}[0]" in cells else parts[0]).reshape(
                *shapes[name], *([len(parts)] if f"{key}[0]" in cells else [])
            )
            for key, parts in columns.items()
        }
        if "target" in whole:
            target = whole.pop("target")
        every.setdefault(model, {})[name] = whole
    return every, target
