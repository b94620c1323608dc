"""The layer that reads rows of a table, against scikit-learn's own preprocessing."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from solera import Student
from solera.core.errors import DamagedFileError
from solera.data.table import MISSING, UNKNOWN
from solera.data.table import Table as Encoding
from solera.methods import ProxyDirichlet
from solera.nn import MLP, Table
from tests.training.test_student_attacks import changed


def frame(rows: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "age": random.normal(40, 12, rows),
            "job": random.choice(["cook", "nurse", "pilot"], rows),
            "income": random.lognormal(8, 2, rows),
            "town": random.choice(["here", "there"], rows),
        }
    )
    made.loc[random.random(rows) < 0.2, "income"] = np.nan
    made.loc[random.random(rows) < 0.2, "town"] = None
    return made


def test_it_does_what_scikit_learns_preprocessing_does():
    seen, new = frame(), pd.concat([frame(50), pd.DataFrame({"age": [1.0], "job": ["spy"], "income": [5.0]})])
    encoding = Encoding(seen)
    rows = torch.from_numpy(encoding.encode(seen))
    layer = Table(encoding.columns.sizes, [2]).double()
    layer.learn(rows)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    known = [["cook", "nurse", "pilot"], ["here", "there"]]  # a gap is none of them
    referee = ColumnTransformer(
        [
            ("numbers", numbers, ["age", "income"]),
            ("gaps", MissingIndicator(), ["income"]),
            ("words", OneHotEncoder(handle_unknown="ignore", categories=known), ["job", "town"]),
        ]
    )
    # scikit-learn's scale counts the filled-in means, ours the numbers that are there
    there = seen["income"].notna()
    want = referee.fit(seen).transform(new)
    want[:, 1] *= np.sqrt(there.mean())
    got = layer(torch.from_numpy(encoding.encode(new)).double())
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)  # rows are float32
    assert got.shape[-1] == layer.outputs


def test_extreme_columns_are_only_shifted_or_left_alone():
    rows = torch.tensor([[3.0, MISSING, 1e-30], [3.0, MISSING, 2e-30]])
    layer = Table([0, 0, 0], [1])
    layer.learn(rows)
    said = layer(rows)
    assert said[:, :2].tolist() == [[0, 0], [0, 0]]
    assert said[:, 3].tolist() == [1, 1]
    assert said.isfinite().all()


def test_words_alone_and_numbers_alone():
    assert Table([2, 3])(torch.tensor([[1.0, UNKNOWN]])).tolist() == [[0, 1, 0, 0, 0]]
    assert Table([0, 0])(torch.tensor([[1.0, 2.0]])).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="missing names column 0"):
        Table([2, 0], [0])
    with pytest.raises(ValueError, match="a table of 2 columns"):
        MLP(3, 2, table={"categories": [0, 0]})


def test_made_up_rows_are_such_as_it_reads():
    layer = Table([0, 4, 0], [2])
    layer.learn(torch.tensor([[10.0, 0.0, 5.0], [20.0, 0.0, MISSING]]))
    rows = layer.made_up(500, torch.Generator().manual_seed(0))
    assert set(rows[:, 1].unique().tolist()) == {UNKNOWN, 0, 1, 2, 3}
    assert (rows == MISSING).any(0).tolist() == [True, False, True]
    assert 10 < rows[rows[:, 0] != MISSING, 0].mean() < 20


@pytest.mark.parametrize(
    "table",
    [
        {"categories": [0, 1 << 40, 0], "missing": [2]},
        {"categories": [0, -2, 0]},
        {"categories": [0, 2, 0]},
        {"words": 3},
    ],
)
def test_a_saved_student_reads_the_same_table_and_no_other(tmp_path, table):
    rows = torch.tensor([[1.0, 0.0, MISSING], [2.0, UNKNOWN, 3.0], [5.0, 1.0, 4.0]])
    student = Student(MLP.for_table(rows, [0, 2, 0], 2, (4,)), ProxyDirichlet())
    assert student.model.settings["table"] == {"categories": [0, 2, 0], "missing": [2]}
    student.save(tmp_path)
    assert torch.equal(Student.load(tmp_path).predict(rows).mean, student.predict(rows).mean)
    changed(tmp_path, lambda body: body["network"]["settings"].update(table=table))
    with pytest.raises(DamagedFileError, match=r"config\.json: network"):
        Student.load(tmp_path)
