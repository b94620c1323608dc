"""Tables as rows of finite numbers, and back."""

import numpy as np
import pandas as pd
import pytest

from solera.data.table import MISSING, UNKNOWN, Columns, Table


def mixed() -> pd.DataFrame:
    """Every kind of column that people have, with a gap wherever its dtype allows one."""
    return pd.DataFrame(
        {
            "whole": [1, -2, 3, 40],
            "real": [0.5, np.nan, -1e9, 2.0],
            "nullable": pd.array([7, None, 9, 7], dtype="Int64"),
            "text": ["red", None, "blue", "red"],
            "object": pd.Series([3, "three", None, 3], dtype=object),
            "flag": [True, False, True, True],
            "gapped flag": pd.array([True, None, False, True], dtype="boolean"),
            "category": pd.Categorical(["low", "high", None, "low"], categories=["low", "mid", "high"], ordered=True),
            "numbered": pd.Categorical([10, 2, 2, None]),
            5: [1.5, 2.5, 3.5, 4.5],
        },
        index=[3, 1, 4, 1],
    )


def test_decode_is_the_inverse_of_encode_dtypes_and_gaps_included():
    frame = mixed()
    table = Table(frame)
    rows = table.encode(frame)
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    back = table.decode(rows)
    pd.testing.assert_frame_equal(back, frame.reset_index(drop=True))
    assert (table.encode(back) == rows).all()


def test_words_are_numbered_in_the_order_of_their_text_and_strangers_are_unknown():
    table = Table(mixed())
    assert table.columns.categories["numbered"] == ["10", "2"]
    assert table.columns.categories["category"] == ["high", "low"]  # "mid" was never there
    assert table.columns.categories["flag"] == ["False", "True"]
    assert table.columns.sizes == [0, 0, 0, 2, 2, 2, 2, 2, 2, 0]
    columns = Columns(["text", "n"], {"text": ["blue", "red"]})
    frame = pd.DataFrame({"text": ["red", "green", None, "blue"], "n": [1, 2, None, 4]})
    assert columns.encode(frame).tolist() == [[1, 1], [UNKNOWN, 2], [UNKNOWN, MISSING], [0, 4]]


def test_numbers_have_nan_for_every_gap():
    frame = mixed()
    table = Table(frame)
    numbers = table.numbers(table.encode(frame))
    assert (np.isnan(numbers) == frame.isna().to_numpy()).all()


def test_an_array_with_nan_goes_there_and_back():
    array = np.array([[1.0, np.nan], [2.5, -3.0]])
    table = Table(array)
    rows = table.encode(array)
    assert rows[0, 1] == MISSING
    np.testing.assert_array_equal(table.decode(rows), array)


def test_a_column_of_gaps_alone_is_no_obstacle():
    frame = pd.DataFrame({"empty": [None, None], "nan": [np.nan, np.nan], "x": [1.0, 2.0]})
    table = Table(frame)
    assert table.encode(frame)[:, 1].tolist() == [MISSING, MISSING]
    assert table.decode(table.encode(frame)).isna().to_numpy()[:, :2].all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, MISSING])
def test_what_float32_cannot_hold_beside_the_gaps_is_refused(value):
    with pytest.raises(ValueError, match=r"column 'x' holds .* in row 1"):
        Table(pd.DataFrame({"x": [0.0, 1.0]})).encode(pd.DataFrame({"x": [0.0, value]}))


def test_columns_of_other_kinds_are_refused_by_name():
    with pytest.raises(ValueError, match=r"column 'when' holds datetime64.* turn it into numbers, or drop it"):
        Table(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(ValueError, match="two columns named 'a'"):
        Table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match=r"column 'x' holds .* such as 'one', where .* on numbers"):
        Columns(["x"]).encode(pd.DataFrame({"x": ["one"]}))
    with pytest.raises(ValueError, match="column 'text' holds categories: pass a data frame"):
        Table(mixed()).encode(np.zeros((2, 10)))
