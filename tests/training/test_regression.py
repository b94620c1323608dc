"""Continuous targets, all the way: teachers, students, and data that are hardly any."""

import numpy as np
import pytest
import torch

import solera
from solera.data import Batches
from solera.methods import EnD, Hydra, NormalWishart
from solera.nn import MLP
from solera.training import Training


def wave(rows=160, seed=0):
    """y = sin x in other units, noisier to the right; nothing was measured beyond ±3."""
    torch.manual_seed(seed)
    x = 6 * torch.rand(rows, 1) - 3
    return x, 500 + 100 * (torch.sin(2 * x) + 0.1 * (2 + x).clamp(min=0.3) * torch.randn(rows, 1)).squeeze(1)


def network(x, y, outputs=2):
    return MLP.for_inputs(x, outputs, (50,), activation="tanh", targets=y)


@pytest.fixture(scope="module")
def taught():
    x, y = wave()
    torch.manual_seed(0)
    training = Training(epochs=150, lr=1e-2)
    return x, y, solera.train_ensemble(lambda: network(x, y), Batches(x, y, batch_size=32), 8, training)


def test_an_ensemble_of_regressors_learns_mean_and_noise(taught):
    _x, _y, ensemble = taught
    x_test, _y_test = wave(400, seed=1)
    said = ensemble.predict(x_test)
    assert (said.mean.squeeze(1) - 500 - 100 * torch.sin(2 * x_test).squeeze(1)).abs().mean() < 20
    assert said.data[x_test.squeeze(1) > 2].mean() > 3 * said.data[x_test.squeeze(1) < -2].mean()
    beyond = ensemble.predict(torch.tensor([[6.0], [-6.0]]))
    assert beyond.knowledge.min() > 5 * said.knowledge.median()


@pytest.mark.parametrize("method", [EnD(family="gaussian"), Hydra(family="gaussian"), NormalWishart()])
def test_students_keep_what_the_ensemble_knew(taught, method, tmp_path):
    x, y, ensemble = taught
    wide = 10 * torch.rand(800, 1) - 5  # where nothing was measured, too: the ensemble can be asked about anything
    torch.manual_seed(1)
    start = network(x, y, method.outputs(1))
    student = solera.distill(ensemble, start, Batches(wide, batch_size=50), method, Training(epochs=50, lr=1e-2))
    student = solera.Student.load(student.save(tmp_path / "student"))
    grid = torch.linspace(-5, 5, 200).unsqueeze(1)
    theirs, ours = ensemble.predict(grid), student.predict(grid)
    assert (ours.mean - theirs.mean).abs().mean() < 0.25 * theirs.total.sqrt().mean()
    ratio = ours.total.log() - theirs.total.log()
    assert ratio.abs().mean() < 0.5
    if not isinstance(method, EnD):
        ranks = [np.argsort(np.argsort(p.knowledge.numpy())) for p in (ours, theirs)]
        assert np.corrcoef(*ranks)[0, 1] > 0.8


def test_labels_mix_in_and_nan_means_unlabelled(taught):
    x, y, ensemble = taught
    batches = Batches(x, y, auxiliary=torch.randn(40, 1), batch_size=50)
    assert batches.all.target[len(x) :].isnan().all()
    training = Training(epochs=2, label_weight=0.5)
    student = solera.distill(ensemble, network(x, y), batches, EnD(family="gaussian"), training)
    assert student.predict(x).total.isfinite().all()


def test_vector_targets():
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = torch.stack([x[:, 0], 100 * x[:, 1] + 5], 1)
    make = lambda: MLP.for_inputs(x, 4, (30,), targets=y)  # noqa: E731
    ensemble = solera.train_ensemble(make, Batches(x, y, batch_size=50), 3, Training(epochs=80, lr=1e-2))
    for method in (EnD(family="gaussian"), Hydra(family="gaussian"), NormalWishart()):
        start = MLP.for_inputs(x, method.outputs(2), (30,), targets=y)
        student = solera.distill(ensemble, start, Batches(x, y), method, Training(epochs=80, lr=1e-2))
        said = student.predict(x)
        assert said.mean.shape == (200, 2)
        assert said.log_prob(y).shape == (200,)
        residual = (said.mean - y).square().mean(0).sqrt() / y.std(0)
        assert (residual < 0.25).all(), (method, residual)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.cat([torch.randn(20, 1), torch.ones(20, 1)], 1), torch.randn(20)),  # a constant feature
        (torch.randn(20, 2), torch.full((20,), 7.0)),  # a constant target
        (torch.randn(1, 2), torch.tensor([3.0])),  # one row
    ],
)
@pytest.mark.parametrize("members", [1, 3])
def test_hardly_any_data_gives_finite_students(x, y, members):
    batches, training = Batches(x, y, batch_size=20), Training(epochs=60, lr=1e-2)
    ensemble = solera.train_ensemble(lambda: network(x, y), batches, members, training)
    assert ensemble.predict(x).total.isfinite().all()
    for method in (EnD(family="gaussian"), Hydra(family="gaussian"), NormalWishart()):
        student = solera.distill(ensemble, network(x, y, method.outputs(1)), batches, method, training)
        said = student.predict(torch.cat([x, 100 * x]))
        for column in (said.mean, said.total, said.log_prob(torch.zeros(2 * len(x)))):
            assert column.isfinite().all(), (method, members)
        assert (said.mean[: len(x)] - y.mean()).abs().max() < 10 * (1 + y.std(unbiased=False))


def test_what_cannot_be_right_is_refused_before_work_starts(taught):
    x, y, ensemble = taught
    broken = y.clone()
    broken[3] = float("inf")
    with pytest.raises(ValueError, match="targets hold inf in example 3"):
        solera.train_ensemble(lambda: network(x, y), Batches(x, broken, batch_size=200), 2)
    with pytest.raises(
        ValueError, match=r"takes 2 outputs \(continuous targets: means and then log-variances\); this network gives 3"
    ):
        solera.train_ensemble(lambda: network(x, y, 3), Batches(x, y), 2)
    with pytest.raises(ValueError, match=r"use EnD\(family='gaussian'\)"):
        solera.distill(ensemble, network(x, y), Batches(x, y), EnD())
    with pytest.raises(ValueError, match="NormalWishart needs 4 of them"):
        solera.distill(ensemble, network(x, y), Batches(x, y), NormalWishart())
    with pytest.raises(ValueError, match="ProxyDirichlet needs class probabilities"):
        solera.distill(ensemble, network(x, y), Batches(x, y), solera.ProxyDirichlet())
