"""Gaussians, and mixtures of them, against scipy, 60-digit arithmetic and brute force over members and pairs."""

import math
from functools import cache

import hypothesis.extra.numpy as arrays
import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.distributions import Gaussian, Mixture
from tests import referee
from tests.distributions.inputs import FLOATS, quick

LOG_VARIANCES = [-60.0, -5.0, 0.0, 5.0, 60.0]
MEASURES = ["total", "data", "knowledge", "epkl"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}

some_members = arrays.arrays(
    np.float32,
    st.tuples(st.just(2), st.integers(1, 5), st.integers(1, 3)),
    elements=st.one_of(st.sampled_from([-5.0, 0.0, 5.0]), st.floats(-8, 8, width=32)),
)


def mixture(mean, log_variance, weights=None, dtype=torch.float64) -> Mixture:
    weights = None if weights is None else torch.as_tensor(weights, dtype=dtype)
    return Mixture(Gaussian(*(torch.as_tensor(t, dtype=dtype) for t in (mean, log_variance))), weights)


def gaussian_kl(first, second):
    """KL between N(μ, σ²) of one dimension, from (μ, σ²), in 60 digits."""
    (m, v), (n, w) = first, second
    return (v / w - 1 - mp.log(v / w) + (m - n) ** 2 / w) / 2


def exact(mean, log_variance, weights=None):
    """Every measure of a mixture [M, D], by brute force in 60 digits."""
    count, size = mean.shape
    w = [mp.mpf(1) / count] * count if weights is None else referee.numbers(weights)
    rows = [
        [(mp.mpf(float(m)), mp.exp(mp.mpf(float(v)))) for m, v in zip(*pair, strict=True)]
        for pair in zip(mean, log_variance, strict=True)
    ]
    centre = [mp.fsum(s * row[d][0] for s, row in zip(w, rows, strict=True)) for d in range(size)]
    data = mp.fsum(s * row[d][1] for s, row in zip(w, rows, strict=True) for d in range(size))
    knowledge = mp.fsum(s * (row[d][0] - centre[d]) ** 2 for s, row in zip(w, rows, strict=True) for d in range(size))
    pairs = [(a * b, i, j) for a, i in zip(w, rows, strict=True) for b, j in zip(w, rows, strict=True)]
    epkl = mp.fsum(s * gaussian_kl(i[d], j[d]) for s, i, j in pairs for d in range(size))
    return {"mean": centre, "total": data + knowledge, "data": data, "knowledge": knowledge, "epkl": epkl}


@cache
def members_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Means and log-variances [M, D], of numbers float32 can hold."""
    generator = np.random.default_rng(0)
    if kind == "ordinary":
        return generator.choice([-2.0, 0.5, 1.0, 3.0], (4, 3)), generator.choice([-2.0, -0.5, 0.0, 1.5], (4, 3))
    if kind == "cruel":
        return generator.choice([-2.0, 0.5, 3.0], (4, 3)), generator.choice([-30.0, -5.0, 0.0, 5.0, 30.0], (4, 3))
    if kind == "tiny":
        return generator.choice([-2.0, 0.5, 3.0], (4, 3)), np.full((4, 3), -60.0)
    if kind == "huge":
        return generator.choice([-2.0, 0.5, 3.0], (4, 3)), np.full((4, 3), 60.0)
    if kind == "very far from nought":  # where the mean is no float32
        return 1e7 + np.array([[0.0], [1.0], [1.0]]), np.full((3, 1), -20.0)
    if kind == "far from nought":
        return 1000 + 2.0**-10 * np.array([[0.0], [1.0], [3.0]]), np.full((3, 1), -14.0)
    assert kind == "nearly identical"
    return np.ones((3, 2)), -1 + 2.0**-10 * np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "kind", ["ordinary", "cruel", "tiny", "huge", "far from nought", "very far from nought", "nearly identical"]
)
def test_measures(kind, weighted, dtype):
    mean, log_variance = members_of(kind)
    weights = np.array([0.5, 0.25, 0.125, 0.125] if len(mean) == 4 else [0.5, 0.25, 0.25]) if weighted else None
    ours, true = mixture(mean, log_variance, weights, dtype), exact(mean, log_variance, weights)
    rounded = 2.0**-52 * np.abs(mean).max()  # what a mean in float64 loses, and every departure from it
    slack = rounded * (2 * math.sqrt(true["knowledge"]) + rounded) * mean.shape[-1]
    for name in MEASURES:
        lost = slack if name in ("knowledge", "total") else 0
        if name == "epkl":  # a KL near 0 is ¼·Σ d² and feels the rounding of its d, done in float64
            lost = 1e-15 * math.sqrt(true[name])
        error = abs(mp.mpf(getattr(ours, name).item()) - true[name])
        if true[name] > torch.finfo(dtype).max:
            assert getattr(ours, name) == math.inf
            continue
        assert error <= TOLERANCE[dtype] * true[name] + lost, (name, getattr(ours, name).item(), float(true[name]))
    for d, value in enumerate(true["mean"]):
        assert abs(mp.mpf(ours.mean[d].item()) - value) <= torch.finfo(dtype).eps * max(abs(value), 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("log_variance", LOG_VARIANCES)
def test_log_prob(log_variance, dtype):
    """At y within and far beyond σ, where σ² is anything from e^−60 to e^60."""
    for mean in (-3.0, 0.0, 0.5):
        for far in (0.0, 1.0, 30.0):
            y = torch.tensor([mean + far * math.exp(log_variance / 2)], dtype=dtype)
            ours = Gaussian(torch.tensor([mean], dtype=dtype), torch.tensor([log_variance], dtype=dtype))
            v = mp.exp(mp.mpf(log_variance))
            true = -((mp.mpf(y.item()) - mp.mpf(mean)) ** 2 / v + mp.log(2 * mp.pi * v)) / 2
            error = abs(mp.mpf(ours.log_prob(y).item()) - true)
            assert error <= (3e-7 if dtype == torch.float32 else 1e-14) * max(abs(true), 1)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_agrees_with_scipy(size):
    torch.manual_seed(0)
    mean, log_variance, y = torch.randn(3, 4, size, dtype=torch.float64)
    ours = Gaussian(mean, log_variance)
    theirs = scipy.stats.norm(mean.numpy(), ours.variance.sqrt().numpy())
    np.testing.assert_allclose(ours.log_prob(y), theirs.logpdf(y.numpy()).sum(-1))
    np.testing.assert_allclose(ours.total, theirs.var().sum(-1))
    np.testing.assert_allclose(ours.mean, theirs.mean())


@pytest.mark.parametrize("dtype", FLOATS)
def test_kl(dtype):
    torch.manual_seed(0)
    fields = torch.randn(2, 2, 5, 3, dtype=dtype)
    first, second = Gaussian(*fields[0]), Gaussian(*fields[1])
    theirs = torch.distributions.kl_divergence(
        *(torch.distributions.Normal(g.mean.double(), g.variance.double().sqrt()) for g in (first, second))
    )
    torch.testing.assert_close(first.kl(second).double(), theirs.sum(-1), rtol=TOLERANCE[dtype], atol=0)
    assert torch.equal(first.kl(first), torch.zeros(5, dtype=dtype))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_a_mixtures_measures_are_what_samples_show(size, weighted):
    generator, count = np.random.default_rng(size), 200_000
    mean, log_variance = generator.normal(size=(4, size)), generator.normal(size=(4, size))
    weights = np.array([0.1, 0.2, 0.3, 0.4]) if weighted else np.full(4, 0.25)
    ours = mixture(mean, log_variance, weights if weighted else None)
    chosen = generator.choice(4, count, p=weights)
    y = mean[chosen] + np.exp(log_variance[chosen] / 2) * generator.normal(size=(count, size))
    squares = np.square(y - ours.mean.numpy()).sum(-1)
    assert abs(ours.total.item() - squares.mean()) <= 5 * squares.std() / math.sqrt(count)
    assert (np.abs(y.mean(0) - ours.mean.numpy()) <= 5 * y.std(0) / math.sqrt(count)).all()


@pytest.mark.parametrize("size", [1, 3])
def test_mixed_log_prob_is_the_logarithm_of_the_average(size):
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 5, 4, size, dtype=torch.float64)
    weights, y = torch.rand(5, 4, dtype=torch.float64), torch.randn(5, size, dtype=torch.float64)
    weights /= weights.sum(-1, keepdim=True)
    densities = scipy.stats.norm(mean.numpy(), (0.5 * log_variance).exp().numpy()).pdf(y.unsqueeze(-2).numpy()).prod(-1)
    np.testing.assert_allclose(mixture(mean, log_variance).log_prob(y), np.log(densities.mean(-1)))
    weighted = np.log((weights.numpy() * densities).sum(-1))
    np.testing.assert_allclose(mixture(mean, log_variance, weights).log_prob(y), weighted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_mixed_log_prob_where_every_density_underflows(dtype):
    ours = mixture([[0.0], [1.0]], [[-8.0], [-10.0]], dtype=dtype)
    each = [
        -mp.mpf((100 - m) ** 2) / (2 * mp.exp(v)) - mp.log(2 * mp.pi) / 2 - mp.mpf(v) / 2
        for m, v in ((0, -8), (1, -10))
    ]
    top = max(each)
    true = top + mp.log(mp.fsum(mp.exp(e - top) for e in each) / 2)
    assert ours.log_prob(torch.tensor(100.0, dtype=dtype)).item() == pytest.approx(float(true), rel=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [False, True])
def test_one_member_has_no_knowledge_uncertainty_at_all(weighted, dtype):
    torch.manual_seed(0)
    mean, log_variance = 1000 * torch.randn(2, 3, 1, 2, dtype=dtype), 20 * torch.randn(2, 3, 1, 2, dtype=dtype)
    ours = mixture(mean, log_variance, torch.ones(2, 3, 1) if weighted else None, dtype)
    for name in ("knowledge", "epkl"):
        assert torch.equal(getattr(ours, name), torch.zeros(2, 3, dtype=dtype))
    assert torch.equal(ours.total, ours.data)
    assert torch.equal(ours.mean, mean.squeeze(-2))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_members_that_agree_have_next_to_none(count, weighted, dtype):
    """Thrice a third is not one in float32: at μ = 1000 and σ = e^−10 that must not look like disagreement."""
    weights = torch.full((count,), 1 / count) if weighted else None
    ours = mixture(torch.full((count, 1), 1000.1), torch.full((count, 1), -20.0), weights, dtype)
    assert ours.knowledge <= 1e-8 * ours.data
    assert ours.epkl <= 1e-8
    torch.testing.assert_close(ours.total, ours.data, rtol=1e-5, atol=0)
    assert abs(ours.mean.item() - torch.tensor(1000.1, dtype=torch.float32).item()) < 1e-12


@pytest.mark.parametrize("silent", [0.3, 1e30, -1e30, math.inf, -math.inf, math.nan])
def test_weight_zero_means_dropped_whatever_the_member_said(silent):
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 4, 2, dtype=torch.float64)
    heard = [0, 2, 3]
    dropped = mixture(mean[heard], log_variance[heard], [0.5, 0.25, 0.25])
    mean[1], log_variance[1] = silent, silent
    ours = mixture(mean, log_variance, [0.5, 0.0, 0.25, 0.25])
    for name in ["mean", *MEASURES]:
        torch.testing.assert_close(getattr(ours, name), getattr(dropped, name), msg=name)
    y = torch.tensor([0.1, 0.2], dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(y), dropped.log_prob(y))


def test_the_silent_member_may_differ_from_row_to_row():
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 3, 3, 2, dtype=torch.float64)
    mean[range(3), range(3)] = math.nan
    weights = (1 - torch.eye(3, dtype=torch.float64)) / 2
    ours = mixture(mean, log_variance, weights)
    for row in range(3):
        heard = weights[row] > 0
        theirs = mixture(mean[row][heard], log_variance[row][heard])
        for name in ["mean", *MEASURES]:
            torch.testing.assert_close(getattr(ours, name)[row], getattr(theirs, name))


def test_a_weight_of_two_is_a_member_said_twice():
    (mean, other), (log_variance, another) = torch.randn(2, 2, 3, dtype=torch.float64)
    ours = mixture(torch.stack([mean, other]), torch.stack([log_variance, another]), [2 / 3, 1 / 3])
    theirs = mixture(torch.stack([mean, mean, other]), torch.stack([log_variance, log_variance, another]))
    for name in ["mean", *MEASURES]:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))


@quick
@given(some_members)
def test_the_law_of_total_variance(fields):
    ours = mixture(*fields, dtype=torch.float32)
    assert all(getattr(ours, name) >= 0 for name in MEASURES)
    torch.testing.assert_close(ours.total, ours.data + ours.knowledge, rtol=1e-5, atol=1e-6)


@quick
@given(some_members, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(fields, random):
    order = list(range(fields.shape[1]))
    random.shuffle(order)
    ours, theirs = mixture(*fields), mixture(*fields[:, order])
    for name in ["mean", *MEASURES]:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-12)


@quick
@given(some_members)
def test_the_moment_match_has_the_least_divergence(fields):
    """mean_m KL[member ‖ N] has its minimum at the averaged Gaussian: nudged, it grows."""
    members = Gaussian(*torch.tensor(fields, dtype=torch.float64))
    best = members.averaged()

    def divergence(mean, log_variance):
        other = Gaussian(mean.expand_as(members.mean), log_variance.expand_as(members.mean))
        return members.kl(other).mean()

    least = divergence(best.mean, best.log_variance)
    for step in (-0.01, 0.01):
        assert divergence(best.mean + step, best.log_variance) >= least
        assert divergence(best.mean, best.log_variance + step) >= least


def test_a_mixture_of_gaussians_has_no_rmi():
    with pytest.raises(ValueError, match="no closed form of the reverse mutual information: use epkl"):
        _ = mixture([[0.0], [1.0]], [[0.0], [0.0]]).rmi


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_any_batch_axes(batch, weighted, size):
    """Examples, or tokens [B, T, M, D]."""
    weights = torch.full((*batch, 5), 0.2) if weighted else None
    ours = mixture(torch.randn(*batch, 5, size), torch.randn(*batch, 5, size), weights, torch.float32)
    for name in MEASURES:
        assert getattr(ours, name).shape == batch
        assert getattr(ours, name).dtype == torch.float32
    assert ours.mean.shape == (*batch, size)
    assert ours.log_prob(torch.zeros(*batch, size)).shape == batch
    assert ours.log_prob(torch.zeros(*batch, size)).dtype == torch.float32


def test_tokens_are_rows_of_their_own():
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 2, 3, 5, 4, dtype=torch.float64)
    ours, y = mixture(mean, log_variance), torch.randn(2, 3, 4, dtype=torch.float64)
    for b in range(2):
        for t in range(3):
            theirs = mixture(mean[b, t], log_variance[b, t])
            for name in ["mean", *MEASURES]:
                torch.testing.assert_close(getattr(ours, name)[b, t], getattr(theirs, name))
            torch.testing.assert_close(ours.log_prob(y)[b, t], theirs.log_prob(y[b, t]))


def test_a_target_of_one_dimension_may_come_without_its_axis():
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 3, 2, 5, 1)
    y = torch.randn(3, 2)
    together, one = mixture(mean, log_variance), Gaussian(mean[..., 0, :], log_variance[..., 0, :])
    for ours in (together, one):
        assert torch.equal(ours.log_prob(y), ours.log_prob(y.unsqueeze(-1)))


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (2, 3, 2), ()])
def test_targets_of_another_shape_are_refused(shape):
    message = r"do not fit predictions of shape \(3, 2\): the last axis holds the target's dimensions"
    for ours in (Gaussian(torch.zeros(3, 2), torch.zeros(3, 2)), mixture(torch.zeros(3, 4, 2), torch.zeros(3, 4, 2))):
        with pytest.raises(ValueError, match=message):
            ours.log_prob(torch.zeros(shape))


def test_outputs_are_means_and_then_log_variances():
    ours = Gaussian.from_output(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert ours.mean.tolist() == [[1.0, 2.0]]
    assert ours.log_variance.tolist() == [[3.0, 4.0]]
    assert Gaussian.outputs(2) == 4


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_agree_with_finite_differences(weighted):
    torch.manual_seed(0)
    fields = [t.requires_grad_() for t in torch.randn(2, 2, 3, 2, dtype=torch.float64)]
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]]) if weighted else None
    y = torch.randn(2, 2, dtype=torch.float64)

    def everything(*fields):
        ours = mixture(*fields, weights)
        return *(getattr(ours, name) for name in ["mean", *MEASURES]), ours.averaged.log_variance, ours.log_prob(y)

    assert torch.autograd.gradcheck(everything, fields)


@pytest.mark.parametrize("dtype", FLOATS)
def test_members_that_agree_have_gradients_too(dtype):
    """ln|μ_m − μ̄| is −∞ there, its slope is not a number, and nobody may notice."""
    mean, log_variance = (torch.ones(3, 2, dtype=dtype, requires_grad=True) for _ in range(2))
    ours = mixture(mean, log_variance, dtype=dtype)
    slopes = torch.autograd.grad(
        ours.averaged.log_variance.sum() + ours.total + ours.knowledge + ours.epkl, [mean, log_variance]
    )
    torch.testing.assert_close(slopes[0], torch.zeros(3, 2, dtype=dtype), rtol=0, atol=1e-6)
    torch.testing.assert_close(slopes[1], torch.full((3, 2), (1 + math.e) / 3, dtype=dtype))
