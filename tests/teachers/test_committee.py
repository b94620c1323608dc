"""Regressors without variances as teachers."""

import sys

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge

import solera
from solera.data import Batch, Batches
from solera.ensembles import fold_ids
from solera.methods import EnD
from solera.teachers import saw_from_folds
from solera.teachers.adapters import Forecasts
from solera.training import Training

X = torch.zeros(2, 1)


def rows(count, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 4)).astype(np.float32)
    return x, (30 + 10 * x[:, 0] - 5 * x[:, 1] * x[:, 2] + 2 * generator.normal(size=count)).astype(np.float32)


@pytest.fixture(scope="module")
def models():
    x, y = rows(600, 0)
    kinds = [RandomForestRegressor(50, random_state=s) for s in range(3)] + [
        GradientBoostingRegressor(random_state=3),
        Ridge(),
    ]
    bags = [np.random.default_rng(s).integers(0, 600, 600) for s in range(5)]
    return [model.fit(x[bag], y[bag]) for model, bag in zip(kinds, bags, strict=True)]


def test_spread_is_knowledge_and_residuals_are_noise(models):
    x, y = rows(2000, 1)
    teacher = solera.committee(models, x, y)
    said = teacher.predict(torch.tensor(x))
    each = np.stack([model.predict(x) for model in models])
    np.testing.assert_allclose(said.mean.squeeze(1), each.mean(0), rtol=1e-4)
    np.testing.assert_allclose(said.knowledge, each.var(0), rtol=1e-3, atol=1e-4)
    expected = ((y - each.mean(0)) ** 2).mean() - each.var(0).mean()
    np.testing.assert_allclose(said.data, expected, rtol=1e-3)
    np.testing.assert_allclose(said.total.mean(), ((y - each.mean(0)) ** 2).mean(), rtol=1e-3)  # calibrated on average


def test_noise_of_targets_far_from_nought_is_that_of_targets_near_it():
    forecasts, y = np.array([[0.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), np.array([1.0, 0.0], dtype=np.float32)
    asked = Batch(X, torch.arange(2))
    near, far = (solera.committee(forecasts + at, X, y + np.float32(at))(asked) for at in (0, 1e7))
    np.testing.assert_allclose(near.data, ((1 / 3) ** 2 + (4 / 3) ** 2) / 2 - 2 / 9, rtol=1e-6)
    np.testing.assert_allclose(far.data, near.data, rtol=1e-6)


def test_it_says_plainly_where_the_data_variance_comes_from(models, monkeypatch):
    told = []
    monkeypatch.setattr(sys.modules["solera.teachers.committee"], "tell", told.append)
    solera.committee(models, *rows(100, 1))
    assert "give no variance" in told[0]
    assert "residuals of 100 examples" in told[0]


@pytest.mark.parametrize("members_first", [True, False])
def test_an_array_of_forecasts_is_a_teacher(models, members_first):
    x, y = rows(300, 1)
    array = np.stack([model.predict(x) for model in models], 0 if members_first else 1)
    live, remembered = solera.committee(models, x, y), solera.committee(array, x, y)
    batch = Batch(torch.tensor(x), torch.arange(300))
    torch.testing.assert_close(remembered(batch).mean, live(batch).mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(remembered(batch).total, live(batch).total, rtol=1e-3, atol=1e-3)
    assert not remembered.live
    assert live.live
    student = solera.Distiller(training=Training(epochs=30, lr=3e-3)).fit(array, x, y)
    said = student.predict(x)
    assert np.corrcoef(said.mean.squeeze(1), array.mean(0 if members_first else 1))[0, 1] > 0.95
    assert said.knowledge.min() > 0


def test_out_of_fold_residuals_are_larger_than_in_sample_ones():
    x, y = rows(300, 0)
    folds = fold_ids(300, 5)
    members = [RandomForestRegressor(30, random_state=0).fit(x[folds != f], y[folds != f]) for f in range(5)]
    honest = solera.committee(members, x, y, saw=saw_from_folds(folds))
    flattered = solera.committee(members, x, y)
    assert honest.noise > 1.5 * flattered.noise


def test_a_member_with_a_variance_of_its_own_keeps_it(models):
    x, y = rows(200, 2)
    own = torch.nn.Linear(4, 2)
    teacher = solera.committee([*models, own], x, y)
    said = teacher.predict(torch.tensor(x))
    torch.testing.assert_close(said.members.log_variance[:, -1], own(torch.tensor(x))[:, 1:])
    assert len(said.members.log_variance[:, 0].unique()) == 1


def test_regressors_capture_and_distil(models, tmp_path):
    x, y = rows(400, 1)
    teacher = solera.committee(models, x, y)
    batches = Batches(torch.tensor(x), torch.tensor(y))
    remembered = solera.capture(teacher, batches, tmp_path / "set")
    torch.testing.assert_close(remembered(batches.all).total, teacher(batches.all).total, rtol=1e-5, atol=1e-5)
    mean = solera.capture(teacher, batches, tmp_path / "mean", codec="mean")
    torch.testing.assert_close(mean(batches.all).total, teacher(batches.all).total, rtol=1e-5, atol=1e-5)
    network = solera.nn.MLP.for_inputs(batches.all.inputs, 2, targets=batches.all.target)
    student = solera.distill(mean, network, batches, EnD(family="gaussian"), Training(epochs=30, lr=3e-3))
    assert np.corrcoef(student.predict(x).mean.squeeze(1), teacher(batches.all).mean.squeeze(1))[0, 1] > 0.9
    with pytest.raises(ValueError, match="codec='dense'"):
        solera.distill(mean, solera.nn.MLP(4, 4), batches, solera.NormalWishart(), Training(epochs=1))
    with pytest.raises(ValueError, match="top_k"):
        solera.capture(teacher, batches, tmp_path / "top", codec="top_k")


def test_what_cannot_be_right_is_refused(models):
    x, _y = rows(50, 1)
    with pytest.raises(ValueError, match="pass family='gaussian'"):
        solera.Ensemble(models)
    with pytest.raises(ValueError, match="if it gives means alone"):
        solera.Ensemble(models, family="gaussian").predict(torch.tensor(x))
    with pytest.raises(ValueError, match="residuals are all 0"):
        solera.committee(models[:1], x, models[0].predict(x).astype(np.float32))
    with pytest.raises(ValueError, match="targets hold nan"):
        solera.committee(models, x, np.full(50, np.nan))
    with pytest.raises(ValueError, match="forecasts need a variance"):
        Forecasts(np.zeros((50, 3)))
    with pytest.raises(ValueError, match=r"variances must be positive, got -1 at \[2, 1, 0\]"):
        Forecasts(np.zeros((5, 3)), variances=np.where(np.arange(15).reshape(5, 3) == 7, -1.0, 1.0))
    with pytest.raises(ValueError, match="member forecasts hold nan"):
        Forecasts(np.full((5, 3), np.nan), noise=1.0)
    with pytest.raises(ValueError, match="noise is the variance of the data and must be positive"):
        Forecasts(np.zeros((5, 3)), noise=0.0)
