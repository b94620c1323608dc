"""The logistic-normal: its density against scipy and quadrature, its measures against their points and many samples."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from solera.distributions import LogisticNormal
from solera.distributions.logistic_normal import nodes
from solera.testing import check_distribution
from tests import referee


def made(classes, rank=2, seed=0, dtype=torch.float64, size=1.0, batch=()):
    random = np.random.default_rng(seed)
    location = 1.5 * random.normal(size=(*batch, classes))
    deviation = size * np.exp(random.normal(-0.5, 0.5, (*batch, classes)))
    factors = size * random.normal(size=(*batch, rank, classes))
    return LogisticNormal(*(torch.tensor(a, dtype=dtype) for a in (location, deviation, factors)))


@pytest.mark.parametrize(("classes", "rank"), [(2, 1), (3, 2), (6, 2), (6, 8)])
def test_the_density_is_that_of_the_log_ratios(classes, rank):
    """Against scipy's Gaussian of ln(p_k/p_K), k < K, with the Jacobian 1/Π p: another set of coordinates."""
    ours = made(classes, rank)
    covariance = ours.factors.mT @ ours.factors + torch.diag(ours.deviation.square())
    ratios = torch.cat([torch.eye(classes - 1), -torch.ones(classes - 1, 1)], 1).double()
    law = scipy.stats.multivariate_normal((ratios @ ours.location).numpy(), (ratios @ covariance @ ratios.T).numpy())
    log_probs = torch.randn(20, classes, dtype=torch.float64).mul(2).log_softmax(-1)
    wanted = law.logpdf((log_probs @ ratios.T).numpy().squeeze(-1) if classes == 2 else (log_probs @ ratios.T).numpy())
    np.testing.assert_allclose(ours.log_density(log_probs), wanted - log_probs.sum(-1).numpy(), rtol=1e-9)


def test_the_density_integrates_to_one():
    ours = made(2, 1)
    density = lambda p: float(ours.log_density(torch.tensor([[p, 1 - p]], dtype=torch.float64).log()).exp())  # noqa: E731
    assert scipy.integrate.quad(density, 1e-12, 1 - 1e-12, limit=200)[0] == pytest.approx(1, abs=1e-5)


def test_a_constant_in_the_logits_changes_nothing():
    ours = made(5)
    moved = LogisticNormal(ours.location + 7, ours.deviation, ours.factors + torch.tensor([[2.0], [-3.0]]))
    log_probs = torch.randn(4, 5, dtype=torch.float64).log_softmax(-1)
    torch.testing.assert_close(moved.log_density(log_probs), ours.log_density(log_probs))
    for name in ("mean", "total", "data", "knowledge", "rmi"):
        torch.testing.assert_close(getattr(moved, name), getattr(ours, name))


@pytest.mark.parametrize("size", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("level", [-30.0, 0.0, 15.0, 40.0])
def test_measures_are_those_of_the_points(level, size):
    """In float32 against 60 digits, one location cruel, the spread tiny or huge."""
    ours = made(4, dtype=torch.float32, size=size)
    ours.location[0] = level
    points = nodes(ours.count, 6)
    rows = [
        [
            mp.mpf(float(m))
            + mp.fsum(mp.mpf(float(x)) * mp.mpf(float(f)) for x, f in zip(point[:2], column, strict=True))
            + mp.mpf(float(e)) * mp.mpf(float(d))
            for m, column, e, d in zip(ours.location, ours.factors.T, point[2:], ours.deviation, strict=True)
        ]
        for point in np.float32(points)
    ]
    probs = [referee.softmax(row) for row in rows]
    centre = referee.mean(probs)
    knowledge = mp.fsum(referee.kl(p, centre) for p in probs) / len(probs)
    true = {"total": referee.entropy(centre), "knowledge": knowledge}
    true["data"] = true["total"] - knowledge
    for name, wanted in true.items():
        # a logit of 40 is known to 4e-6 in float32, and a probability to as much of itself
        slack = 1e-5 * true["total"] + (1e-4 * size if name == "knowledge" else 0) * 1e-7
        assert abs(mp.mpf(getattr(ours, name).item()) - wanted) <= 3e-5 * wanted + slack, name
    for k in range(4):
        assert abs(mp.mpf(ours.mean[k].item()) - centre[k]) <= 2e-5 * centre[k] + mp.mpf(10) ** -37
        error = mp.mpf(ours.log_prob(torch.tensor(k)).item()) - mp.log(centre[k])
        assert abs(error) <= 2e-5 * (1 + abs(mp.log(centre[k])))


@pytest.mark.parametrize("classes", [3, 10, 30])
def test_the_points_stand_for_the_law(classes):
    """Against a million samples: the mean within 0.03, total and knowledge within 10 % of their sums over 20 laws."""
    sums = {"total": [0.0, 0.0], "knowledge": [0.0, 0.0]}
    for seed in range(20):
        ours = made(classes, seed=seed)
        draws = np.random.default_rng(100 + seed).normal(size=(25_000, 2 + classes))
        z = ours.location.numpy() + draws[:, :2] @ ours.factors.numpy() + draws[:, 2:] * ours.deviation.numpy()
        p = scipy.special.softmax(np.concatenate([z, 2 * ours.location.numpy() - z]), -1)
        mean, total = p.mean(0), scipy.special.entr(p.mean(0)).sum()
        np.testing.assert_allclose(ours.mean, mean, atol=0.05)
        for name, wanted in {"total": total, "knowledge": total - scipy.special.entr(p).sum(-1).mean()}.items():
            sums[name][0] += getattr(ours, name).item()
            sums[name][1] += float(wanted)
    assert sums["total"][0] == pytest.approx(sums["total"][1], rel=0.02)
    assert sums["knowledge"][0] == pytest.approx(sums["knowledge"][1], rel=0.05)


def test_points_are_symmetric_of_variance_one_and_always_the_same():
    points = nodes(128, 9)
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-15)
    np.testing.assert_allclose(np.square(points).mean(0), 1)
    raw = np.random.RandomState(0).standard_normal((64, 9))
    assert raw[0, :2].tolist() == [1.764052345967664, 0.4001572083672233]  # what NumPy promises to keep
    np.testing.assert_allclose(points[:64], raw / np.sqrt(np.square(raw).mean(0)))


def test_no_spread_is_no_knowledge():
    flat = LogisticNormal(torch.randn(3, 4), torch.zeros(3, 4), torch.zeros(3, 2, 4))
    torch.testing.assert_close(flat.mean, flat.location.softmax(-1))
    assert (flat.knowledge < 1e-9).all()


def test_the_deviation_has_a_floor_and_the_map_its_meaning():
    output = torch.randn(5, 16, dtype=torch.float64)
    plain = LogisticNormal.from_output(output, rank=2, least=0.01)
    parts = output.unflatten(-1, (4, 4))
    torch.testing.assert_close(plain.deviation, (0.01**2 + (2 * parts[:, 1]).exp()).sqrt())
    mapped = LogisticNormal.from_output(output, 2, 0.01, temperature=2.0, shift=math.log(3))
    torch.testing.assert_close(mapped.location, plain.location / 2)
    torch.testing.assert_close(mapped.deviation, 1.5 * plain.deviation)
    torch.testing.assert_close(mapped.factors, 1.5 * plain.factors)
    with pytest.raises(ValueError, match=r"15 outputs are no logistic-normal of rank 2: give the network 4·classes"):
        LogisticNormal.from_output(torch.zeros(15), 2, 0.01)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch_axes(batch):
    ours = made(5, batch=batch, dtype=torch.float32)
    check_distribution(ours)
    assert ours.mean.shape == (*batch, 5)
    assert ours.log_density(torch.randn(*batch, 7, 5).log_softmax(-1)).shape == (*batch, 7)
