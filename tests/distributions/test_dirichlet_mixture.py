"""The mixture of Dirichlets against 60-digit arithmetic, quadrature and samples."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from scipy.special import rel_entr

from solera.distributions import Dirichlet, DirichletMixture
from solera.testing import check_distribution
from tests import referee

LEVELS = (-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0)


def output_of(components, weight_logits):
    """A network's output that says these logits and weights."""
    return torch.tensor(np.concatenate([components, np.array(weight_logits)[:, None]], -1).reshape(-1))


def exact(output, components, temperature=1, shift=0):
    """Every measure in 60 digits, naively."""
    whole = output.unflatten(-1, (components, -1))
    weights = referee.softmax(referee.numbers(whole[:, -1]))
    means, alphas = [], []
    for row in whole[:, :-1]:
        z = referee.numbers(row)
        means.append(referee.softmax(z, temperature))
        size = mp.fsum(referee.exp(x) for x in z) * mp.exp(mp.mpf(shift))
        alphas.append([m * size for m in means[-1]])
    centre = [mp.fsum(w * m for w, m in zip(weights, column, strict=True)) for column in zip(*means, strict=True)]
    data, rmi = mp.mpf(0), mp.mpf(0)
    for w, mean, alpha in zip(weights, means, alphas, strict=True):
        a0 = mp.fsum(alpha)
        data -= w * mp.fsum(m * (mp.digamma(a + 1) - mp.digamma(a0 + 1)) for m, a in zip(mean, alpha, strict=True))
        rmi += w * mp.fsum(c * (mp.log(c) - mp.digamma(a) + mp.digamma(a0)) for c, a in zip(centre, alpha, strict=True))
    total = referee.entropy(centre)
    return {"mean": centre, "total": total, "data": data, "knowledge": total - data, "rmi": rmi}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("classes", [2, 10])
def test_measures(classes, level):
    """In float32, one cruel logit in one component and a weight that vanishes in some; relative errors of 3e-5."""
    random = np.random.default_rng(3)
    components = random.choice([-4.0, -1.0, 0.25, 1.5], (3, classes))
    components[0, 0] = level
    for weight_logits in ([0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [0.0, -30.0, 5.0]):
        output = output_of(components, weight_logits).float()
        for temperature, shift in ((1.0, 0.0), (1.5, -0.7)):
            ours, true = (
                DirichletMixture.from_output(output, 3, temperature, shift),
                exact(output, 3, temperature, shift),
            )
            for name in ("total", "data", "knowledge", "rmi"):
                size = true["total"] if name == "data" else true[name]
                assert abs(mp.mpf(getattr(ours, name).item()) - true[name]) <= 3e-5 * size + 1e-30, (
                    name,
                    weight_logits,
                )
            for k in (0, classes - 1):
                assert abs(mp.mpf(ours.mean[k].item()) - true["mean"][k]) <= 3e-6 * true["mean"][k]
                error = mp.mpf(ours.log_prob(torch.tensor(k)).item()) - mp.log(true["mean"][k])
                assert abs(error) <= 1e-6 * (1 + abs(mp.log(true["mean"][k])))


def test_one_component_is_a_dirichlet():
    logits = 2 * torch.randn(4, 5, dtype=torch.float64)
    ours = DirichletMixture.from_output(torch.cat([logits, torch.randn(4, 1, dtype=torch.float64)], -1), 1)
    theirs = Dirichlet.from_logits(logits, offset=0.0)
    for name in ("mean", "total", "data", "knowledge", "rmi", "epkl"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))


def test_measures_are_what_samples_show():
    """Two groups that contradict each other: knowledge lies between the components as well as in them."""
    concentrations, weights = np.array([[20.0, 2.0, 3.0], [1.0, 8.0, 0.5]]), np.array([0.7, 0.3])
    random = np.random.default_rng(0)
    samples = np.concatenate(
        [random.dirichlet(a, int(200_000 * w)) for a, w in zip(concentrations, weights, strict=True)]
    )
    ours = DirichletMixture.from_output(output_of(np.log(concentrations), np.log(weights)), 2)
    mean = samples.mean(0)
    shown = {"data": scipy.special.entr(samples).sum(-1), "knowledge": rel_entr(samples, mean).sum(-1)}
    shown["rmi"] = rel_entr(mean, samples).sum(-1)
    np.testing.assert_allclose(ours.mean, mean, atol=0.005)
    for name, values in shown.items():
        assert abs(getattr(ours, name).item() - values.mean()) < 6 * values.std() / math.sqrt(len(values)), name


def test_the_density_is_scipys_and_integrates_to_one():
    output = output_of(np.log([[3.0, 1.5], [2.0, 9.0]]), [0.3, -0.4])
    ours = DirichletMixture.from_output(output, 2)

    def density(p):
        return float(ours.log_density(torch.tensor([[p, 1 - p]], dtype=torch.float64).log()).exp())

    assert scipy.integrate.quad(density, 0, 1)[0] == pytest.approx(1, abs=1e-6)
    w = scipy.special.softmax([0.3, -0.4])
    for p in (0.01, 0.4, 0.95):
        wanted = w[0] * scipy.stats.beta(3, 1.5).pdf(p) + w[1] * scipy.stats.beta(2, 9).pdf(p)
        assert density(p) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch_axes(batch):
    ours = DirichletMixture.from_output(torch.randn(*batch, 12), 2)
    check_distribution(ours)
    assert ours.mean.shape == (*batch, 5)
    assert ours.weights.shape == (*batch, 2)
    assert ours.log_density(torch.randn(*batch, 7, 5).log_softmax(-1)).shape == (*batch, 7)


def test_outputs_that_cannot_be_split_are_refused():
    with pytest.raises(
        ValueError, match=r"13 outputs are no 2 components: give the network components·\(classes \+ 1\)"
    ):
        DirichletMixture.from_output(torch.zeros(13), 2)


def test_half_precision_becomes_float32():
    assert DirichletMixture.from_output(torch.zeros(3, 8, dtype=torch.bfloat16), 2).knowledge.dtype == torch.float32
