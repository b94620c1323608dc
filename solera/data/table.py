"""Tables with words and missing values as rows of finite numbers, and back.

A number stays as it is, a missing one becomes `MISSING`. A word becomes its place among the words of its column, one
that is missing or unknown becomes `UNKNOWN`. `solera.nn.Table` is the layer that reads such rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.data.names import as_names

MISSING = -(2.0**100)  # −1.2676506·10³⁰, the same number in float32 and float64
UNKNOWN = -1.0


def moments(numbers: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Mean and standard deviation of every column, in float64, over the rows where it is not missing."""
    values = numbers.double()
    there = values != MISSING
    count = there.sum(0).clamp(min=1)
    mean = torch.where(there, values, 0.0).sum(0) / count
    return mean, (torch.where(there, values - mean, 0.0).square().sum(0) / count).sqrt()


def is_frame(values: Any) -> bool:
    """Whether this is a data frame of pandas."""
    return hasattr(values, "columns") and hasattr(values, "iloc")


def in_order(inputs: Any, features: Sequence[str]) -> Any:
    """A data frame's columns as they stood when a student was distilled, by their names; anything else as it is."""
    given = [str(name) for name in getattr(inputs, "columns", ())]
    if not features or not given or given == list(features):
        return inputs
    if missing := [name for name in features if name not in given]:
        raise ValueError(
            f"this student was distilled on the columns {', '.join(features[:8])}, and {missing[0]!r} is not among "
            f"{', '.join(given[:8])}: pass a data frame that has them"
        )
    return inputs[[inputs.columns[given.index(name)] for name in features]]


def _finite(values: np.ndarray, column: str) -> np.ndarray:
    """Numbers as float32, MISSING for NaN; infinities, and what float32 cannot hold, are refused."""
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    if (wrong := np.isinf(numbers) | (numbers == MISSING)).any():
        row = int(wrong.argmax())
        raise ValueError(
            f"column {column!r} holds {values[row]} in row {row}, which is no number that float32 can hold beside "
            f"{MISSING:.8g} for a missing one: mend it, or leave it empty (NaN)"
        )
    return np.where(np.isnan(numbers), np.float32(MISSING), numbers)


def _numbers(column: Any, name: str) -> np.ndarray:
    """A column of a data frame as float64, NaN where it is empty."""
    if getattr(column.dtype, "kind", "O") not in "biuf":
        column = column.infer_objects()
    if getattr(column.dtype, "kind", "O") not in "biuf" and len(there := column[column.notna()]):
        raise ValueError(
            f"column {name!r} holds {column.dtype} such as {there.iloc[0]!r}, where the student was distilled on "
            "numbers: pass numbers, empty (NaN) where there is none"
        )
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _codes(column: Any, words: Sequence[str]) -> np.ndarray:
    """The place of every entry among the words, UNKNOWN where it is empty or none of them."""
    import pandas

    place, values = pandas.factorize(column)  # −1 where it is empty
    known = {word: code for code, word in enumerate(words)}
    codes = [known.get(word, UNKNOWN) for word in as_names(list(values))]
    return np.array([*codes, UNKNOWN], dtype=np.float32)[place]


@dataclass(frozen=True)
class Columns:
    """The columns of a table: their names, and the words of those that hold words."""

    names: Sequence[str]
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """How many words each column knows; 0: it holds numbers."""
        return [len(self.categories.get(name, ())) for name in self.names]

    def encode(self, frame: Any) -> np.ndarray:
        """A data frame with these columns, in this order, as float32 rows."""
        rows = np.empty((len(frame), len(self.names)), dtype=np.float32)
        for place, name in enumerate(self.names):
            column = frame.iloc[:, place]
            if name in self.categories:
                rows[:, place] = _codes(column, self.categories[name])
            else:
                rows[:, place] = _finite(_numbers(column, name), name)
        return rows


def _holds_words(column: Any) -> bool:
    """Whether a column is one of categories: words, true and false, or pandas' own category."""
    from pandas import CategoricalDtype
    from pandas.api import types

    dtype = column.infer_objects().dtype
    if getattr(dtype, "kind", "O") in "iuf":
        return False
    if isinstance(dtype, CategoricalDtype) or types.is_bool_dtype(dtype):
        return True
    if not types.is_object_dtype(dtype) and not types.is_string_dtype(dtype):
        raise ValueError(
            f"column {column.name!r} holds {dtype}, neither numbers nor categories: turn it into numbers, or drop it"
        )
    return True


class Table:
    """How one table becomes rows, learned from the table itself, and how rows become such a table again.

    Of an array, all columns are numbers. Of a data frame, columns of words, of true and false, and of pandas' category
    are categories: the values that are there, in the order of their text. `decode` gives back the columns' own dtypes,
    so that models which were fitted on such tables can be asked about rows.
    """

    def __init__(self, values: Any) -> None:
        self.framed = is_frame(values)
        self.values: dict[str, np.ndarray] = {}  # of the columns of categories, by their codes
        if not self.framed:
            self.columns = Columns([f"x{place}" for place in range(values.shape[1])])
            return
        names = [str(name) for name in values.columns]
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise ValueError(f"the data frame has two columns named {twice!r}: give every column a name of its own")
        for place, name in enumerate(names):
            if _holds_words(column := values.iloc[:, place]):
                there = column[column.notna()].unique()
                by_text = dict(zip(as_names(list(there)), there, strict=True))
                self.values[name] = np.array([by_text[word] for word in sorted(by_text)], dtype=object)
        words = {name: as_names(list(found)) for name, found in self.values.items()}
        self.columns, self.own_names = Columns(names, words), list(values.columns)
        self.dtypes = list(values.dtypes)

    def encode(self, values: Any) -> np.ndarray:
        """A table of the same kind as float32 rows."""
        if self.framed and is_frame(values):
            return self.columns.encode(values)
        if self.columns.categories:
            raise ValueError(
                f"column {next(iter(self.columns.categories))!r} holds categories: pass a data frame, as to fit"
            )
        array = np.asarray(values)
        columns = [_finite(array[:, place], name) for place, name in enumerate(self.columns.names)]
        return np.stack(columns, axis=1)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Rows as float64, categories by their codes, NaN where something is missing or unknown."""
        empty = np.full(rows.shape[1], MISSING)
        empty[[size > 0 for size in self.columns.sizes]] = UNKNOWN
        return np.where(rows == empty, np.nan, rows.astype(np.float64))

    def decode(self, rows: np.ndarray) -> Any:
        """Rows as a table of the kind that this was learned from: the inverse of `encode`, up to float32's rounding."""
        numbers = self.numbers(rows)
        if not self.framed:
            return numbers
        import pandas

        columns = []
        for place, (name, dtype) in enumerate(zip(self.columns.names, self.dtypes, strict=True)):
            column: Any = numbers[:, place]
            if getattr(dtype, "kind", "O") in "iu":
                column = column.round()  # a view may lie between whole numbers
            if name in self.values:
                codes = np.where(np.isnan(column), len(self.values[name]), column).astype(np.int64)
                column = np.append(self.values[name], np.nan)[codes]
            columns.append(pandas.Series(column).astype(dtype))
        frame = pandas.concat(columns, axis=1)
        frame.columns = self.own_names
        return frame
