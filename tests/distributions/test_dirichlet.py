"""The Dirichlet against 60-digit arithmetic, torch.distributions, scipy and Monte Carlo."""

import math

import hypothesis.extra.numpy as arrays
import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from solera.distributions import Categorical, Dirichlet
from tests import referee
from tests.distributions.inputs import CONCENTRATIONS, FLOATS, LEVELS, concentration_of, dirichlet_of, quick

MEASURES = ["total", "data", "knowledge", "rmi", "epkl"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}

exponents = arrays.arrays(np.float64, st.integers(2, 8), elements=st.floats(-17, 17))


def dirichlet(concentration, dtype=torch.float64) -> Dirichlet:
    return Dirichlet(torch.as_tensor(concentration, dtype=dtype))


def value_of(distribution: Dirichlet, name: str) -> torch.Tensor:
    value = getattr(distribution, name)
    return value() if name == "entropy" else value


def check_measures(ours: Dirichlet, true: dict, dtype: torch.dtype) -> None:
    """Relative errors. Knowledge is a difference of g(a) = ψ(a + 1) − ln a: at α₀ < 1, where g(α₀) is no longer small,
    it feels the rounding of g(α₀); data is total − knowledge.
    """
    excess = mp.digamma(true["precision"] + 1) - mp.log(true["precision"])
    rounding = torch.finfo(dtype).eps * 4 * excess
    for name in ("precision", "total", "epkl", "rmi", "entropy", "knowledge", "data"):
        slack = {"knowledge": rounding, "rmi": rounding, "data": rounding + TOLERANCE[dtype] * true["total"]}
        error = abs(mp.mpf(value_of(ours, name).item()) - true[name])
        assert error <= TOLERANCE[dtype] * abs(true[name]) + slack.get(name, 0), (name, float(true[name]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("kind", CONCENTRATIONS)
def test_measures(kind, classes, dtype):
    ours = dirichlet(concentration_of(kind, classes), dtype)
    true = dirichlet_of(kind, classes, dtype)
    check_measures(ours, true, dtype)
    for k in {0, 1, classes - 1}:
        mean = mp.mpf(ours.concentration[k].item()) / true["precision"]
        assert abs(mp.mpf(ours.mean[k].item()) - mean) <= TOLERANCE[dtype] * mean
        log_prob = ours.log_prob(torch.tensor(k)).item()
        assert abs(mp.mpf(log_prob) - mp.log(mean)) <= 0.2 * TOLERANCE[dtype] * (1 + abs(mp.log(mean)))


@pytest.mark.parametrize("kind", ["ordinary", "one", "ten million", "everything"])
def test_measures_at_forty_thousand_classes(kind):
    ours = dirichlet(concentration_of(kind, 40_000), torch.float32)
    check_measures(ours, dirichlet_of(kind, 40_000, torch.float32), torch.float32)


@pytest.mark.parametrize("classes", [2, 10, 1000, 40_000])
@pytest.mark.parametrize("kind", ["ten million", "large", "huge", "sure", "surer", "one"])
def test_knowledge_keeps_its_relative_accuracy_where_it_is_small(kind, classes):
    """Every α ≥ 1, as a proxy student's are; total − data would be 4 % off at α₀ = 10⁷."""
    if classes == 40_000 and kind == "ten million":
        assert concentration_of(kind, classes).min() > 1
    ours = dirichlet(concentration_of(kind, classes), torch.float32)
    true = dirichlet_of(kind, classes, torch.float32)
    for name in ("knowledge", "rmi"):
        assert abs(mp.mpf(value_of(ours, name).item()) - true[name]) < 1e-6 * true[name]


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("level", LEVELS)
def test_measures_of_a_student(level, classes):
    """α = e^z + 1 with one cruel logit; the rounding of e^z belongs to the input."""
    logits = torch.tensor(np.random.default_rng(1).choice([-4.0, -1.0, 0.25, 1.5], classes), dtype=torch.float32)
    logits[0] = level
    ours = Dirichlet.from_logits(logits)
    check_measures(ours, referee.dirichlet(referee.numbers(ours.concentration)), torch.float32)


BEYOND = (-300.0, -100.0, -88.0, *LEVELS, 88.0, 100.0, 300.0)  # e^88 is nearly the largest float32
MAPS = [(1.0, 0.0), (0.7, 0.3), (1.6, -5.0)]  # of the precision


def check_against_mapped(logits, slope, shift):
    """Relative errors of 3e-5 in float32, also of knowledge; data relative to total. 1e-32 is where odds underflow."""
    ours = Dirichlet.from_mean(logits, slope * Categorical(logits).log_sum + shift)
    true = referee.mapped(referee.numbers(logits), 1, 0, mp.mpf(slope), mp.mpf(shift))
    for name in ("total", "knowledge", "data"):
        size = abs(true["total" if name == "data" else name])
        error = abs(mp.mpf(value_of(ours, name).item()) - true[name])
        assert error <= 3e-5 * size + mp.mpf(10) ** -32, (name, slope, float(true[name]))
    smallest, largest = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    for name in ("precision", "epkl", "rmi"):
        value = value_of(ours, name).item()
        assert not math.isnan(value)
        if smallest < true[name] < largest:
            assert abs(mp.mpf(value) - true[name]) <= 3e-5 * true[name]
        elif true[name] > largest:
            assert value == math.inf
    assert not ours.mean.isnan().any()
    log_prob = ours.log_prob(torch.tensor(0)).item()
    exact = referee.numbers(logits)[0] - mp.log(mp.fsum(referee.exp(z) for z in referee.numbers(logits)))
    assert abs(mp.mpf(log_prob) - exact) <= 1e-6 * (1 + abs(exact))


@pytest.mark.parametrize(("slope", "shift"), MAPS)
@pytest.mark.parametrize("others", [(-4.0, -1.0, 0.25, 1.5), (-30.0,), (0.0,), (20.0,), (100.0,)], ids=str)
@pytest.mark.parametrize("level", BEYOND)
@pytest.mark.parametrize("classes", [2, 10])
def test_measures_of_mean_and_precision(classes, level, others, slope, shift):
    """As a proxy student predicts: concentrations of e^−300 and e^300, each in a float32."""
    logits = torch.tensor(np.random.default_rng(1).choice(others, classes), dtype=torch.float32)
    logits[0] = level
    check_against_mapped(logits, slope, shift)


@pytest.mark.parametrize(
    ("classes", "level"), [(1000, -30.0), (1000, 20.0), (1000, 40.0), (40_000, 5.0), (40_000, 100.0)]
)
def test_measures_of_mean_and_precision_of_many_classes(classes, level):
    logits = torch.tensor(np.random.default_rng(1).choice([-4.0, -1.0, 0.25, 1.5], classes), dtype=torch.float32)
    logits[0] = level
    check_against_mapped(logits, 0.8, 0.2)


@pytest.mark.parametrize("level", [5.0, 20.0, 88.0])
def test_the_entropy_of_mean_and_precision(level):
    logits = torch.tensor([level, -4.0, 1.5, -60.0])
    ours = Dirichlet.from_mean(logits, 0.8 * Categorical(logits).log_sum)
    true = referee.mapped(referee.numbers(logits), 1, 0, mp.mpf(0.8), 0)["entropy"]
    assert abs(mp.mpf(ours.entropy().item()) - true) <= 1e-5 * abs(true)


def test_a_divergence_that_float64_cannot_hold_is_refused():
    for z in (-800.0, 800.0):
        with pytest.raises(ValueError, match=r"from 1e-300 to 1e300, got .*: look for a network that diverged"):
            Dirichlet.from_logits(torch.tensor([z, 0.0]), offset=0.0).entropy()


def test_a_class_ruled_out_is_worth_nothing():
    full, short = torch.tensor([1.0, -torch.inf, 0.5]), torch.tensor([1.0, 0.5])
    for slope in (0.5, 1.0):
        with_it, without = (Dirichlet.from_mean(z, slope * Categorical(z).log_sum) for z in (full, short))
        for name in ("precision", "total", "data", "knowledge"):
            torch.testing.assert_close(value_of(with_it, name), value_of(without, name))
    torch.testing.assert_close(with_it.mean, torch.cat([without.mean[:1], torch.zeros(1), without.mean[1:]]))


def test_the_concentration_of_logits_is_one_more_unless_told():
    logits = torch.tensor([[-3.0, 0.0, 2.0]])
    torch.testing.assert_close(Dirichlet.from_logits(logits).concentration, logits.exp() + 1)
    torch.testing.assert_close(Dirichlet.from_logits(logits, offset=0.0).concentration, logits.exp())
    torch.testing.assert_close(Dirichlet.from_logits(logits, offset=0.5).precision, logits.exp().sum(-1) + 1.5)


def test_mean_and_precision_are_two_ways_to_say_concentration():
    concentration = 5 * torch.rand(3, 6, dtype=torch.float64) + 0.1
    ours = Dirichlet.from_mean(concentration.log(), concentration.sum(-1).log())
    torch.testing.assert_close(ours.concentration, concentration)
    for name in ("mean", "precision", "entropy", *MEASURES):
        torch.testing.assert_close(value_of(ours, name), value_of(Dirichlet(concentration), name))
    torch.testing.assert_close(ours.kl(Dirichlet(concentration)), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("second", CONCENTRATIONS)
@pytest.mark.parametrize("first", CONCENTRATIONS)
def test_kl(first, second):
    a = torch.tensor(concentration_of(first, 10))
    b = torch.tensor(np.random.default_rng(3).permutation(concentration_of(second, 10)))
    true = referee.dirichlet_kl(referee.numbers(a), referee.numbers(b))
    assert abs(mp.mpf(Dirichlet(a).kl(Dirichlet(b)).item()) - true) <= 1e-12 * true + 1e-14
    single = Dirichlet(a.float()).kl(Dirichlet(b.float()))
    true = referee.dirichlet_kl(referee.numbers(a.float()), referee.numbers(b.float()))
    assert single.dtype == torch.float32
    assert abs(mp.mpf(single.item()) - true) <= 2e-7 * true + 1e-14


@pytest.mark.parametrize("kind", CONCENTRATIONS)
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-3])
def test_kl_between_near_neighbours(kind, step):
    a = torch.tensor(concentration_of(kind, 1000))
    b = a * (1 + step)
    true = referee.dirichlet_kl(referee.numbers(a), referee.numbers(b))
    assert abs(mp.mpf(Dirichlet(a).kl(Dirichlet(b)).item()) - true) <= 1e-8 * true + 1e-12


def test_agrees_with_torch_distributions_and_scipy():
    torch.manual_seed(0)
    a, b = 5 * torch.rand(4, 3, 6, dtype=torch.float64) + 0.1, 5 * torch.rand(4, 3, 6, dtype=torch.float64) + 0.1
    theirs = torch.distributions.Dirichlet(a)
    torch.testing.assert_close(Dirichlet(a).mean, theirs.mean)
    torch.testing.assert_close(Dirichlet(a).entropy(), theirs.entropy())
    kl = torch.distributions.kl_divergence(theirs, torch.distributions.Dirichlet(b))
    torch.testing.assert_close(Dirichlet(a).kl(Dirichlet(b)), kl)
    np.testing.assert_allclose(Dirichlet(a[0, 0]).entropy(), scipy.stats.dirichlet(a[0, 0].numpy()).entropy())


@pytest.mark.parametrize("concentration", [[2.0, 5.0, 3.0], [0.5, 0.2, 0.8, 1.5], [40.0, 10.0], [1.0] * 6])
def test_measures_are_what_samples_show(concentration):
    generator = np.random.default_rng(0)
    samples, others = generator.dirichlet(concentration, (2, 200_000))
    ours = dirichlet(concentration)
    mean = np.array(concentration) / sum(concentration)
    shown = {
        "data": -(samples * np.log(samples)).sum(-1),
        "knowledge": rel_entr(samples, mean).sum(-1),
        "epkl": rel_entr(samples, others).sum(-1),
        "rmi": rel_entr(mean, samples).sum(-1),
        "entropy": -scipy.stats.dirichlet(concentration).logpdf(samples.T),
    }
    for name, values in shown.items():
        doubt = values.std() / math.sqrt(len(values))
        assert abs(value_of(ours, name).item() - values.mean()) <= 5 * doubt + 1e-12, name
    chosen = samples[:, 1]
    assert abs(ours.log_prob(torch.tensor(1)).exp().item() - chosen.mean()) < 5 * chosen.std() / math.sqrt(len(chosen))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch_axes(batch):
    ours = Dirichlet.from_logits(torch.randn(*batch, 5))
    for name in ["precision", "entropy", *MEASURES]:
        assert value_of(ours, name).shape == batch
    assert ours.mean.shape == (*batch, 5)
    assert ours.kl(ours).shape == batch
    assert ours.log_prob(torch.zeros(batch, dtype=torch.long)).shape == batch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_logits_in_half_precision_give_a_float32_dirichlet(dtype):
    logits = torch.tensor([-30.0, 0.0, 5.0, 40.0], dtype=dtype)
    ours = Dirichlet.from_logits(logits)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for name in ["concentration", "precision", "mean", "entropy", *MEASURES]:
        assert value_of(ours, name).dtype == expected
        assert value_of(ours, name).isfinite().all()
    torch.testing.assert_close(ours.concentration, logits.to(expected).exp() + 1)
    torch.testing.assert_close(Dirichlet.from_logits(logits, offset=0.0).concentration, logits.to(expected).exp())


@quick
@given(exponents)
def test_identities(exponent):
    ours = dirichlet(10.0**exponent, torch.float32)
    assert all(value_of(ours, name) >= 0 for name in ("total", "data", "knowledge", "epkl"))
    torch.testing.assert_close(ours.total, ours.data + ours.knowledge, rtol=1e-5, atol=4e-6)
    torch.testing.assert_close(ours.epkl, ours.knowledge + ours.rmi, rtol=1e-5, atol=0)
    assert ours.kl(ours) == 0


@quick
@given(exponents, st.randoms(use_true_random=False))
def test_the_order_of_the_classes_does_not_matter(exponent, random):
    order = list(range(len(exponent)))
    random.shuffle(order)
    ours, theirs = dirichlet(10.0**exponent), dirichlet(10.0 ** exponent[order])
    for name in ["precision", "entropy", *MEASURES]:
        torch.testing.assert_close(value_of(ours, name), value_of(theirs, name), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(ours.mean[order], theirs.mean)


def test_an_empty_class_is_worth_nothing():
    """e^z underflows to 0 where an EnD² student is very sure; the limit is finite and so are its slopes."""
    full, short = torch.tensor([2.0, 0.0, 3.0], requires_grad=True), dirichlet([2.0, 3.0], torch.float32)
    for name in ("total", "data", "knowledge"):
        torch.testing.assert_close(value_of(Dirichlet(full), name).detach(), value_of(short, name))
        assert torch.autograd.grad(value_of(Dirichlet(full), name), full)[0].isfinite().all()


@pytest.mark.parametrize("first", CONCENTRATIONS)
@pytest.mark.parametrize("second", CONCENTRATIONS)
def test_the_gradient_of_kl(first, second):
    """dKL/dα_k = (α_k − β_k)·ψ₁(α_k) − (α₀ − β₀)·ψ₁(α₀); dKL/dβ_k = ψ(β_k) − ψ(β₀) − ψ(α_k) + ψ(α₀)."""
    a = torch.tensor(concentration_of(first, 6), requires_grad=True)
    b = torch.tensor(np.random.default_rng(3).permutation(concentration_of(second, 6)), requires_grad=True)
    slopes = torch.autograd.grad(Dirichlet(a).kl(Dirichlet(b)), (a, b))
    x, y = referee.numbers(a.detach()), referee.numbers(b.detach())
    x0, y0 = mp.fsum(x), mp.fsum(y)
    level = referee.digamma(x0) - referee.digamma(y0)
    far = (x0 - y0) * referee.trigamma(x0)
    true = (
        [(p - q) * referee.trigamma(p) - far for p, q in zip(x, y, strict=True)],
        [referee.digamma(q) - referee.digamma(p) + level for p, q in zip(x, y, strict=True)],
    )
    for ours, exact in zip(slopes, true, strict=True):
        exact = torch.tensor([float(value) for value in exact], dtype=torch.float64)
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9 * max(1.0, exact.abs().max().item()))


@pytest.mark.parametrize("name", ["entropy", "log_prob", *MEASURES])
@pytest.mark.parametrize("kind", CONCENTRATIONS)
def test_gradients_are_finite(kind, name):
    slopes = []
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor(np.log(concentration_of(kind, 5)), dtype=dtype, requires_grad=True)
        ours = Dirichlet.from_logits(logits, offset=0.0)
        value = ours.log_prob(torch.tensor(1)) if name == "log_prob" else value_of(ours, name)
        slopes.append(torch.autograd.grad(value, logits)[0].double())
    scale = slopes[1].abs().max().item()
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4 * max(scale, 1.0))


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    concentration = (3 * torch.rand(2, 4, dtype=torch.float64) + 0.2).requires_grad_()
    y = torch.tensor([0, 3])

    def everything(a):
        ours = Dirichlet(a)
        return *(value_of(ours, name) for name in ["entropy", *MEASURES]), ours.log_prob(y)

    assert torch.autograd.gradcheck(everything, concentration)
