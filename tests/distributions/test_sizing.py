"""Maps of a student's uncertainty, against scipy and against members that were really drawn from a Dirichlet."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from solera.distributions import Categorical, Dirichlet, Mixture
from solera.distributions.sizing import (
    LEAST_ROWS,
    STEEPEST,
    deviance,
    fit_factor,
    fit_line,
    fit_mean_temperature,
    fit_precision,
    mapped,
    require_map,
)
from solera.methods import EnD2, NormalWishart, ProxyDirichlet
from tests import referee
from tests.distributions.inputs import quick


def outputs(rows=300, classes=5, seed=0):
    """Logits of a student: more or less sure, more or less precise."""
    generator = torch.Generator().manual_seed(seed)
    shape = 2 * torch.randn(rows, classes, generator=generator)
    return shape + 3 * torch.rand(rows, 1, generator=generator)


def spoken(logits, slope, shift, members=600, temperature=1.0):
    """An ensemble drawn from Dir(e^{a·lse(z) + b}·softmax(z/T)), row by row."""
    torch.manual_seed(1)
    mean, precision = (logits.double() / temperature).softmax(-1), slope * logits.double().logsumexp(-1) + shift
    drawn = torch.distributions.Dirichlet(precision.exp().unsqueeze(-1) * mean).sample(torch.Size([members]))
    return Mixture(Categorical(drawn.clamp(min=1e-300).log().movedim(0, -2)))


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.6, 0.8), (1.4, -1.0)])
def test_members_drawn_from_a_dirichlet_give_its_precision_back(slope, shift):
    logits = outputs()
    ensemble = spoken(logits, slope, shift)
    fitted = ProxyDirichlet().fitted(logits, ensemble.total, ensemble.knowledge)
    assert fitted.precision_slope == pytest.approx(slope, abs=0.03)
    assert fitted.precision_shift == pytest.approx(shift, abs=0.08)
    fresh = outputs(seed=7)
    knowledge = fitted.predict(fresh).knowledge.sum() / spoken(fresh, slope, shift).knowledge.sum()
    assert float(knowledge) == pytest.approx(1.0, abs=0.02)
    before = ProxyDirichlet().predict(fresh)
    assert torch.equal(fitted.predict(fresh).mean, before.mean)
    assert torch.equal(fitted.predict(fresh).total, before.total)


def test_an_end2_student_gets_the_size_of_total_and_of_knowledge():
    logits = outputs()
    ensemble = spoken(logits, 0.7, 0.5, temperature=0.5)
    fitted = EnD2().fitted(logits, ensemble.total, ensemble.knowledge)
    assert fitted.mean_temperature == pytest.approx(0.5, rel=0.02)
    assert (fitted.precision_slope, fitted.precision_shift) == pytest.approx((0.7, 0.5), abs=0.08)
    said = fitted.predict(logits)
    for name in ("total", "data", "knowledge"):
        assert float(getattr(said, name).sum() / getattr(ensemble, name).sum()) == pytest.approx(1, abs=0.02), name


def test_a_normal_wishart_gets_the_size_of_both_variances():
    torch.manual_seed(0)
    output = torch.randn(400, 2 * 2 + 2)
    true = NormalWishart(variance_shift=0.7, belief_slope=0.6, belief_shift=-0.4).predict(output)
    noise = (0.1 * torch.randn(2, 400)).exp()
    data, knowledge = true.data * noise[0], true.knowledge * noise[1]
    fitted = NormalWishart().fitted(output, data + knowledge, knowledge)
    found = (fitted.variance_shift, fitted.belief_slope, fitted.belief_shift)
    assert found == pytest.approx((0.7, 0.6, -0.4), abs=0.05)
    said = fitted.predict(output)
    assert float(said.data.sum() / data.sum()) == pytest.approx(1, abs=1e-5)
    assert float(said.knowledge.sum() / knowledge.sum()) == pytest.approx(1, abs=0.01)
    assert torch.equal(said.mean, NormalWishart().predict(output).mean)
    torch.testing.assert_close(said.total, said.data + said.knowledge)


@pytest.mark.parametrize("auxiliary", [None, torch.arange(300) < 100])
def test_the_fit_is_scipys_minimum(auxiliary):
    logits = outputs()
    wanted = spoken(logits, 0.8, 0.3, members=6).knowledge.numpy()
    groups = [np.ones(300, bool)] if auxiliary is None else [auxiliary.numpy(), ~auxiliary.numpy()]

    def away(numbers):
        x = numbers[0] * logits.double().logsumexp(-1) + numbers[1]
        ours = Dirichlet.from_mean(logits.double(), x).knowledge.numpy()
        parts = ours - wanted + wanted * np.log(wanted / ours)
        return sum(parts[rows].sum() / wanted[rows].sum() for rows in groups)

    theirs = minimize(away, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 2000})
    ours = fit_precision(logits, logits, torch.tensor(wanted), auxiliary)
    assert away(ours) <= theirs.fun + 1e-8  # the logits are float32
    assert ours == pytest.approx(tuple(theirs.x), abs=1e-3)


def test_auxiliary_inputs_count_as_much_as_familiar_ones_however_many_there_are():
    logits = outputs()
    wanted = spoken(logits, 0.8, 0.3, members=6).knowledge
    wanted[:100] *= 2
    auxiliary = torch.arange(300) < 100
    once = fit_precision(logits, logits, wanted, auxiliary)
    again = torch.cat([torch.arange(300), *[torch.arange(100)] * 9])
    often = fit_precision(logits[again], logits[again], wanted[again], auxiliary[again])
    assert often == pytest.approx(once, abs=1e-5)
    assert fit_precision(logits[again], logits[again], wanted[again]) != pytest.approx(once, abs=1e-2)


@quick
@given(st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_where_a_factor_is_free_the_sums_become_equal(seed, lift):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = torch.rand(2, 50, generator=generator, dtype=torch.double) + 0.01
    found = fit_factor(math.exp(lift) * ours, theirs)
    assert float((math.exp(found + lift) * ours).sum()) == pytest.approx(float(theirs.sum()), rel=1e-6)
    assert deviance(theirs, theirs) == 0
    assert deviance(ours, theirs) > 0


def test_a_known_temperature_is_found():
    logits = outputs()
    assert fit_mean_temperature(logits, Categorical(logits / 1.7).total) == pytest.approx(1.7, rel=1e-5)


def test_a_slope_that_says_nothing_stays_in_its_bounds():
    logits = outputs()
    for wanted in (0.01 + Categorical(logits).total, Dirichlet.from_mean(logits, -logits.logsumexp(-1)).knowledge):
        slope, shift = fit_precision(logits, logits, wanted)
        assert 1 / STEEPEST <= slope <= STEEPEST
        assert math.isfinite(shift)


def test_where_there_is_nothing_to_fit_to_a_method_stays_as_it_is():
    logits = outputs()
    agreed, few = torch.zeros(300), LEAST_ROWS - 1
    total = Categorical(logits).total
    assert ProxyDirichlet().fitted(logits, total, agreed) == ProxyDirichlet()
    assert ProxyDirichlet().fitted(logits[:few], total[:few], total[:few] / 2) == ProxyDirichlet()
    assert EnD2().fitted(logits[:few], total[:few], total[:few] / 2) == EnD2()
    assert ProxyDirichlet(as_published=True).fitted(logits, total, total / 2) == ProxyDirichlet(as_published=True)
    assert fit_line(lambda x: x.exp(), torch.zeros(300), agreed) == (1.0, 0.0)


@pytest.mark.parametrize("values", [(0.5, 0.0, 1.0, 0.0), (1.0, 0.7, 1.0, 0.0), (2.0, 3.0, 0.6, -1.0)])
def test_the_map_is_its_formula(values):
    logits = torch.tensor([3.0, -1.0, 0.5, -20.0])
    true = referee.mapped(referee.numbers(logits), *(referee.numbers(values)))
    for name in ("precision", "total", "knowledge", "epkl"):
        assert float(getattr(mapped(logits, *values), name)) == pytest.approx(float(true[name]), rel=1e-5)


def test_the_map_of_nothing_is_the_dirichlet_of_the_logits():
    logits = outputs()
    ours, theirs = mapped(logits, 1.0, 0.0, 1.0, 0.0), Dirichlet.from_logits(logits, offset=0.0)
    for name in ("mean", "total", "knowledge", "precision"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0.0, 0.0, 1.0, 0.0), "mean_temperature must be positive"),
        ((1.0, -0.1, 1.0, 0.0), "mean_offset must be 0 or more, got -0.1"),
        ((1.0, 0.0, -1.0, 0.0), "precision_slope must be positive"),
        ((1.0, 0.0, 1.0, math.nan), "precision_shift must be finite, got nan"),
    ],
)
def test_maps_that_mean_nothing(values, message):
    with pytest.raises(ValueError, match=message):
        require_map(*values)
