"""Predictions in files: `.npy`, `.npz` and `.parquet`.

A `.parquet` file has one column of numbers per class, named by the class, and one row per example: one member's
answers. With an `example` column (0 to N − 1) the rows may stand in any order; with a `member` column (0 to M − 1) as
well, one row per example and member, it holds a whole ensemble. Columns stand in any order: names say which is which.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from solera.core.array_files import read_npy, read_npz, require_unpacked
from solera.core.errors import DamagedFileError
from solera.core.schema import reading, require_form

PLACES = ("example", "member")


@dataclass(frozen=True)
class Table:
    """What a file holds: one member's `(examples, classes)`, or three axes, and the class names where it has any."""

    values: Shaped[np.ndarray, "..."]
    names: list[str] | None = None


def read(path: str | Path, key: str | None = None) -> Table:
    """The array in this file; `key` names one of several in an `.npz`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix not in (".npy", ".npz"):
        raise ValueError(f"predictions are read from .npy, .npz and .parquet files, not from {path}")
    return Table(real(read_npz(path, key) if path.suffix == ".npz" else read_npy(path), str(path)))


def real(array: np.ndarray, what: str) -> np.ndarray:
    """Refuses what is no array of real numbers: of complex ones, half would be lost in silence."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold real numbers, got {array.dtype}: convert them")
    return array


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(f"{path} needs pyarrow: pip install 'solera[parquet]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            _require_numbers(path, schema)
            index = _index_columns(path, schema)
            require_unpacked(path, rows * _row_bytes(schema, index))
            table = file.read()
    except (ArrowException, OSError, OverflowError, MemoryError) as error:
        raise DamagedFileError(f"{path} is no parquet file, or a damaged one ({error}): save it again") from error
    if any(column.null_count for column in table.columns):  # whole numbers with gaps become floats
        require_unpacked(path, rows * 8 * (table.num_columns + len(index)))
    columns = {name: table[name].to_numpy() for name in table.column_names}
    columns |= _index(path, index, rows)
    names = [name for name in columns if name not in PLACES]
    if not names:
        raise ValueError(f"{path} has no column for a class, only {list(columns)}: give it one column per class")
    values = np.stack([columns[name] for name in names], axis=-1)
    return Table(_in_place(path, values, columns.get("example"), columns.get("member")), names)


def _require_numbers(path: Path, schema: Any) -> None:
    """Before anything is read: every column is one of plain numbers."""
    from pyarrow import types

    for field in schema:
        if not (types.is_integer(field.type) or types.is_floating(field.type)):
            raise ValueError(f"{path} must hold numbers, column {field.name!r} holds {field.type}: drop or convert it")
    if twice := [name for name in schema.names if schema.names.count(name) > 1][:1]:
        raise ValueError(f"{path} has two columns {twice[0]!r}: rename one")


def _index_columns(path: Path, schema: Any) -> list[Any]:
    """What pandas wrote about the index of the data frame, if it was one: names of columns, and ranges."""
    with reading(path, "the description of a data frame in it"):
        described = schema.pandas_metadata or {}
        require_form(path, described, dict)
    index = described.get("index_columns", [])
    require_form(path, index, [(str, {"name": (None, str), "start": int, "stop": int, "step": int})], "index_columns")
    return index


def _row_bytes(schema: Any, index: list[Any]) -> int:
    """What a row takes: as it is read, or where that is more, with all classes as the widest kind of number."""
    ranges = [part["name"] for part in index if isinstance(part, dict)]
    read = sum(max(1, kind.bit_width // 8) for kind in schema.types) + 8 * len(ranges)
    kinds = [field.type.to_pandas_dtype() for field in schema if field.name not in PLACES]
    kinds += [np.int64 for name in ranges if name is not None and name not in PLACES]
    return max(read, len(kinds) * np.result_type(*kinds).itemsize) if kinds else read


def _index(path: Path, index: list[Any], rows: int) -> dict[str, np.ndarray]:
    """The index of a data frame where it is no column of the file: pandas writes a range as three numbers."""
    found: dict[str, np.ndarray] = {}
    for part in index:
        ranged = isinstance(part, dict)
        name = part["name"] if ranged else part
        if ranged and (not part["step"] or len(range(part["start"], part["stop"], part["step"])) != rows):
            raise DamagedFileError(
                f"{path}: index_columns go from {part['start']} to {part['stop']}, there are {rows} rows"
            )
        numbers = np.arange(part["start"], part["stop"], part["step"]) if ranged else None
        if name is not None and not name.startswith("__index_level_"):
            found |= {} if numbers is None else {name: numbers}
        elif numbers is None or not np.array_equal(numbers, np.arange(len(numbers))):
            raise ValueError(
                f"{path} holds the unnamed index of a data frame: save it with index=False, or name it 'example' if it "
                "numbers the examples"
            )
    return found


def _in_place(path: Path, values: np.ndarray, example: np.ndarray | None, member: np.ndarray | None) -> np.ndarray:
    """Rows in the order of their examples: `(N, K)`, or `(N, M, K)` where they are several members'."""
    if example is None:
        if member is not None:
            raise ValueError(f"{path} has a `member` column but no `example` column: add it, numbered from 0")
        return values
    rows = len(values)
    if not rows:
        raise ValueError(f"{path} has no rows: give it one per example")
    for name, column in (("example", example), ("member", member)):
        if column is not None and not (
            np.issubdtype(column.dtype, np.integer) and 0 <= column.min() <= column.max() < rows
        ):
            raise ValueError(
                f"{path}: column `{name}` must number the {name}s from 0, in whole numbers; it goes from "
                f"{column.min()} to {column.max()} over {rows} rows"
            )
    members = 1 if member is None else int(member.max()) + 1
    place = example.astype(np.int64) * members + (0 if member is None else member.astype(np.int64))
    order = np.argsort(place)
    found = place[order]
    wrong = np.flatnonzero(found != np.arange(rows))
    if len(wrong) or rows < (int(example.max()) + 1) * members:
        first = int(wrong[0]) if len(wrong) else rows
        number = min([first, *found[first : first + 1].tolist()])  # the one before once more, or this one is missing
        who = f"example {number // members}" + (f", member {number % members}" if member is not None else "")
        raise ValueError(f"{path} has {np.sum(place == number)} rows for {who}: there must be one")
    ordered = values[order]
    return ordered if member is None else ordered.reshape(-1, members, values.shape[-1])
