"""Views of rows with words and gaps are such rows themselves."""

import numpy as np
import pandas as pd
import torch

from solera.data.auto_views import default_views
from solera.data.table import MISSING, UNKNOWN, Table, moments


def test_views_keep_words_and_gaps_and_numbers_leave_their_range():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"n": random.normal(5, 2, 400), "k": random.integers(0, 9, 400), "w": random.choice(["a", "b"], 400)}
    )
    frame.loc[:99, "n"] = np.nan
    frame.loc[50:149, "w"] = None
    table = Table(frame)
    rows = torch.from_numpy(table.encode(frame))
    seen = default_views(rows, continuous=True, words=(2,))(rows, torch.Generator().manual_seed(0))
    assert table.columns.sizes == [0, 0, 2]
    assert set(seen[:, 2].tolist()) == {UNKNOWN, 0, 1}
    there = seen[:, 0] != MISSING
    assert 50 < int((~there).sum()) < 150
    known = torch.from_numpy(frame["n"].dropna().to_numpy(np.float32))
    assert seen[there, 0].min() < known.min() - 1
    assert seen[there, 0].max() > known.max() + 1
    assert seen[there, 0].abs().max() < 50
    back = table.decode(seen.numpy())
    assert (back.dtypes == frame.dtypes).all()  # whole numbers stay whole for members
    near = default_views(rows, words=(2,))(rows, torch.Generator().manual_seed(0))
    for column in range(3):
        assert set(near[:, column].tolist()) <= set(rows[:, column].tolist())


def test_moments_pass_by_what_is_missing():
    rows = torch.tensor([[1.0, MISSING, MISSING], [3.0, 5.0, MISSING]])
    mean, deviation = moments(rows)
    assert mean.tolist() == [2, 5, 0]
    assert deviation.tolist() == [1, 0, 0]
