import inspect
import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from solera import metrics
from solera.metrics import (
    coverage,
    coverage_at,
    coverage_error,
    crps,
    crps_student_t,
    error_correlation,
    interval_width,
    mae,
    mean_nll,
    prediction_rejection_ratio,
    rejection_curve,
    retention_area,
    retention_curve,
    retention_ratio,
    rmse,
)
from solera.metrics.regression import mixture_cdf, mixture_quantile
from solera.metrics.student_t import student_t_cdf, student_t_quantile

seeds = st.integers(0, 2**32 - 1)


def mixture(seed, count=20, members=4):
    """y [N], and means, variances and weights [N, M]; some weights are 0."""
    generator = np.random.default_rng(seed)
    mean = 3 * generator.normal(size=(count, members))
    variance = np.exp(2 * generator.normal(size=(count, members)))
    weights = generator.dirichlet(np.ones(members), size=count)
    weights[: count // 2, 0] = 0
    return 4 * generator.normal(size=count), mean, variance, weights / weights.sum(-1, keepdims=True)


def exactly(y, mean, variance, weights):
    """E|X − y| − ½E|X − X′| of a mixture of Gaussians in 60 digits."""
    with mp.workdps(60):
        y, *rows = mp.mpf(float(y)), *([mp.mpf(float(v)) for v in row] for row in (mean, variance, weights))
        members = list(zip(*rows, strict=True))
        total = mp.fsum(w for *_, w in members)

        def size(d, v):  # E|N(d, v)|
            return d * mp.erf(d / mp.sqrt(2 * v)) + mp.sqrt(2 * v / mp.pi) * mp.exp(-d * d / (2 * v)) if v else abs(d)

        near = mp.fsum(w * size(y - m, v) for m, v, w in members) / total
        spread = mp.fsum(w * u * size(m - n, v + x) for m, v, w in members for n, x, u in members) / total**2
        return float(near - spread / 2)


def by_integral(y, cdf):
    """∫ (F(x) − [y ≤ x])² dx."""
    return quad(lambda x: cdf(x) ** 2, -np.inf, y, limit=400)[0] + quad(lambda x: (1 - cdf(x)) ** 2, y, np.inf)[0]


# ---- errors


@given(seeds)
def test_errors_are_numpys_in_any_shape(seed):
    predicted, y = np.random.default_rng(seed).normal(size=(2, 6, 3))
    away = predicted - y
    assert rmse(predicted, y) == pytest.approx(np.linalg.norm(away) / math.sqrt(18), rel=1e-14)
    assert mae(predicted, y) == pytest.approx(np.abs(away).mean(), rel=1e-14)
    assert mae(predicted, y) <= rmse(predicted, y) * (1 + 1e-15)
    assert rmse(torch.tensor(predicted), y.tolist()) == rmse(predicted, y)
    assert rmse(predicted[:, :1], y[:, 0]) == rmse(predicted[:, 0], y[:, :1]) == rmse(predicted[:, 0], y[:, 0])
    weight = np.array([0, 1, 2, 0, 1, 1])
    spoiled = np.where(weight[:, None] > 0, predicted, np.nan)
    expected = np.sqrt(np.average((away**2).mean(-1), weights=weight))
    assert rmse(spoiled, y, weight=weight) == pytest.approx(expected, rel=1e-14)
    assert rmse(spoiled, y, weight=np.repeat(weight[:, None], 3, 1)) == pytest.approx(expected, rel=1e-14)


def test_errors_of_unsigned_integers_and_of_one_example():
    assert mae(np.uint8([1]), np.uint8([3])) == 2.0
    assert rmse([1.0], [4.0]) == 3.0
    assert rmse(torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([4.0])) == 3.0


def test_mean_nll_of_a_density():
    density = stats.norm(1.0, 1e-3)
    y = np.array([1.0, 1.001])
    assert mean_nll(density.logpdf(y)) == pytest.approx(-density.logpdf(y).mean())
    assert mean_nll([0.5, -np.inf]) == np.inf
    assert mean_nll([0.5, np.nan, 1.5], weight=[1, 0, 3]) == -1.25


# ---- CRPS


@pytest.mark.parametrize("z", [0.0, -0.3, 1.0, 4.0, -7.0])
def test_crps_of_a_gaussian_is_its_integral(z):
    assert crps([2 + 1.5 * z], [2.0], [2.25]) == pytest.approx(1.5 * by_integral(z, stats.norm.cdf), rel=1e-8)
    assert crps([z], [0.0], [1.0]) == pytest.approx(
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi), rel=1e-13
    )


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_crps_of_a_mixture_is_its_integral_and_its_definition(seed):
    y, mean, variance, weights = mixture(seed, count=3)
    each = [crps(y[i : i + 1], mean[i : i + 1], variance[i : i + 1], weights[i : i + 1]) for i in range(3)]
    assert crps(y, mean, variance, weights) == pytest.approx(np.mean(each), rel=1e-14)
    for value, target, m, v, w in zip(each, y, mean, variance, weights, strict=True):
        assert value == pytest.approx(exactly(target, m, v, w), rel=1e-12)
        at = by_integral(target, lambda x, m=m, v=v, w=w: w @ stats.norm.cdf(x, m, np.sqrt(v)))
        assert value == pytest.approx(at, rel=1e-6)


@pytest.mark.parametrize(
    ("y", "mean", "variance", "weights"),
    [
        (0.3, [0.0, 1.0], [1e-30, 1e-30], [0.5, 0.5]),
        (0.3, [0.3, 0.3], [1e-30, 1e30], [0.5, 0.5]),
        (0.3, [0.0, 1e3], [1e-30, 1e30], [0.25, 0.75]),
        (1.0, [1.0, 1.0, 1.0], [1e30, 1e30, 1e30], [0.2, 0.3, 0.5]),
        (0.0, [0.0, 1e9], [1e-40, 1e-40], [1 - 1e-10, 1e-10]),  # ε²R: what a light member far away adds
        (1e-7, [0.0, 1e9], [0.0, 0.0], [1 - 1e-10, 1e-10]),
        (5.0, [0.0, 10.0], [0.01, 0.01], [0.5, 0.5]),
        (1e15, [0.0, 1.0], [1.0, 1e-300], [0.5, 0.5]),
        (0.0, [0.0], [0.0], [1.0]),
        (0.0, [5e-324], [5e-324], [1.0]),
    ],
)
def test_crps_at_cruel_scales(y, mean, variance, weights):
    expected = exactly(y, mean, variance, weights)
    assert crps([y], [mean], [variance], [weights]) == pytest.approx(expected, rel=1e-9, abs=1e-170)


@given(seeds)
def test_crps_of_points_is_the_ensembles(seed):
    generator = np.random.default_rng(seed)
    y, mean = np.round(generator.normal(size=8), 1), np.round(generator.normal(size=(8, 5)), 1)
    near = np.abs(y[:, None] - mean).mean(-1)
    spread = np.abs(mean[:, :, None] - mean[:, None, :]).mean((-1, -2))
    for variance in (0.0, 1e-40):
        found = crps(y, mean, np.full_like(mean, variance))
        assert found == pytest.approx((near - spread / 2).mean(), abs=1e-15)
        assert crps(y, mean[:, 0], np.full(8, variance)) == pytest.approx(np.abs(y - mean[:, 0]).mean(), abs=1e-15)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_crps_does_not_care_how_a_mixture_is_written(seed):
    y, mean, variance, weights = mixture(seed)
    value = crps(y, mean, variance, weights)
    assert value > 0
    order = np.random.default_rng(seed).permutation(4)
    assert crps(y, mean[:, order], variance[:, order], weights[:, order]) == pytest.approx(value, rel=1e-13)
    assert crps(7 - 2e8 * y, 7 - 2e8 * mean, 4e16 * variance, weights) == pytest.approx(2e8 * value, rel=1e-6)
    twice = (np.concatenate([v, v], -1) for v in (mean, variance, weights / 2))
    assert crps(y, *twice) == pytest.approx(value, rel=1e-13)
    assert crps(y, mean[:, :1], variance[:, :1]) == crps(y, mean[:, 0], variance[:, 0])
    assert crps(y, mean, variance, np.full_like(mean, 0.25)) == pytest.approx(crps(y, mean, variance), rel=1e-14)
    spoiled = np.where(weights == 0, np.nan, mean), np.where(weights == 0, np.nan, variance)
    assert crps(y, *spoiled, weights) == value  # a member that must not speak is not read
    shaped = [torch.tensor(v.reshape(4, 5, *v.shape[1:])) for v in (y, mean, variance, weights)]
    assert crps(*shaped) == pytest.approx(value, rel=1e-13)


def test_crps_in_many_blocks():
    y, mean, variance, weights = mixture(5, count=70_000, members=5)
    halves = [crps(*(v[part] for v in (y, mean, variance, weights))) for part in (slice(35_000), slice(35_000, None))]
    assert crps(y, mean, variance, weights) == pytest.approx(np.mean(halves), rel=1e-12)


@given(seeds)
@settings(max_examples=3, deadline=None)
def test_crps_is_least_for_the_true_distribution(seed):
    """Over a fine grid of the truth's own quantiles, so that the mean over y is an expectation."""
    _, mean, variance, weights = (v[-1:] for v in mixture(seed))
    y = np.array([mixture_quantile(p, mean, variance, weights)[0] for p in (np.arange(100) + 0.5) / 100])
    truth = [np.repeat(v, 100, axis=0) for v in (mean, variance, weights)]
    best = crps(y, *truth)
    deviation = np.sqrt((weights * (variance + mean**2)).sum() - (weights * mean).sum() ** 2)
    for moved, widened in ((0.2 * deviation, 1.0), (-0.2 * deviation, 1.0), (0.0, 3.0), (0.0, 0.3)):
        assert crps(y, truth[0] + moved, truth[1] * widened, truth[2]) > best * (1 - 3e-3)
    assert crps(y, truth[0] + 0.5 * deviation, truth[1], truth[2]) > best


# ---- Student-t


def student_t_exactly(z, freedom):
    """Jordan et al.'s closed form in 60 digits."""
    with mp.workdps(60):
        z, v = abs(mp.mpf(float(z))), mp.mpf(float(freedom))
        peak = mp.gamma((v + 1) / 2) / mp.gamma(v / 2) / mp.sqrt(v * mp.pi)
        density = peak * (1 + z * z / v) ** (-(v + 1) / 2)
        inside = 1 - mp.betainc(v / 2, mp.mpf(1) / 2, 0, v / (v + z * z), regularized=True)
        last = 2 * mp.sqrt(v) / (v - 1) * mp.beta(0.5, v - 0.5) / mp.beta(0.5, v / 2) ** 2
        return float(z * inside + 2 * density * (v + z * z) / (v - 1) - last)


@pytest.mark.parametrize("freedom", [1 + 1e-15, 1 + 1e-9, 1.001, 1.5, 2.0, 2.999, 3.0, 4.5, 30.0, 59.9, 60.1, 1e3])
@pytest.mark.parametrize("z", [0.0, 1e-9, -0.5, 2.0, 40.0, -1e4, 1e9])
def test_crps_of_a_student_t_is_the_closed_form(freedom, z):
    assert crps_student_t([z], [0.0], [1.0], [freedom]) == pytest.approx(student_t_exactly(z, freedom), rel=1e-12)
    found = crps_student_t([3 - 1e20 * z], [3.0], [1e20], [freedom])
    assert found == pytest.approx(1e20 * student_t_exactly(z, freedom), rel=1e-12)


@pytest.mark.parametrize("freedom", [1.000001, 1.3, 3.0, 12.0])
@pytest.mark.parametrize("z", [0.0, 1.3, -5.0])
def test_crps_of_a_student_t_is_its_integral(freedom, z):
    """Also near freedom 1, where E|X| is infinite and the integral is not."""
    at = by_integral(z, lambda x: stats.t.cdf(x, freedom) if x < 0 else 1 - stats.t.sf(x, freedom))
    assert crps_student_t([1 + 0.5 * z], [1.0], [0.5], [freedom]) == pytest.approx(0.5 * at, rel=1e-6)


@given(seeds, st.sampled_from([1e10, 1e15, 1e25, 1e300, math.inf]))
@settings(max_examples=10, deadline=None)
def test_a_student_t_of_great_freedom_is_the_gaussian(seed, freedom):
    y, mean, variance, _ = mixture(seed)
    t = mean[:, 0], np.sqrt(variance[:, 0]), np.full(20, freedom)
    near = 3 / freedom + 1e-13
    assert crps_student_t(y, *t) == pytest.approx(crps(y, mean[:, 0], variance[:, 0]), rel=10 * near)
    assert student_t_cdf(y, *t) == pytest.approx(mixture_cdf(y, mean[:, 0], variance[:, 0]), abs=near)


def test_a_student_t_without_width_is_a_point():
    assert crps_student_t([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 5e-324], [2.0, 1.1, 1e9]) == 1.0
    assert student_t_cdf([1.0, 2.0, 0.0], [1.0] * 3, [0.0] * 3, [2.0] * 3).tolist() == [0.5, 1.0, 0.0]


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_student_t_cdf_and_quantile_are_scipys(seed):
    generator = np.random.default_rng(seed)
    freedom = 1 + np.exp(4 * generator.normal(size=12))
    y, mean, scale = generator.normal(size=12), generator.normal(size=12), np.exp(2 * generator.normal(size=12))
    assert student_t_cdf(y, mean, scale, freedom) == pytest.approx(stats.t.cdf(y, freedom, mean, scale), abs=1e-13)
    for p in (0.001, 0.05, 0.5, 0.95):
        found = student_t_quantile(p, mean, scale, freedom)
        assert found == pytest.approx(stats.t.ppf(p, freedom, mean, scale), rel=1e-9, abs=1e-9)
    shaped = [torch.tensor(v.reshape(4, 3)) for v in (y, mean, scale, freedom)]
    assert student_t_cdf(*shaped).shape == student_t_quantile(0.9, *shaped[1:]).shape == (4, 3)


@pytest.mark.parametrize("p", [1e-12, 1e-6, 1e-3, 0.025, 0.4999999, 0.5, 0.6, 0.9, 0.999, 1 - 1e-9])
def test_student_t_quantile_comes_back_as_its_probability(p):
    freedom = np.concatenate([1 + np.geomspace(1e-15, 1e12, 150), [math.inf]])
    zero, one = np.zeros_like(freedom), np.ones_like(freedom)
    found = student_t_quantile(p, zero, one, freedom)
    assert np.isfinite(found).all()
    assert student_t_cdf(found, zero, one, freedom) == pytest.approx(np.full_like(freedom, p), abs=2e-15)
    if 1e-3 <= p <= 0.999:  # further out an F that is right to 1e-15 says less about x
        assert (np.diff(np.abs(found)) <= 1e-11 * np.abs(found[1:])).all()  # lighter tails, nearer quantiles
        assert found[-1] == pytest.approx(stats.norm.ppf(p), rel=1e-12, abs=1e-15)
        assert found[0] == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-11, abs=1e-15)


@given(st.floats(1e-3, 0.999), st.floats(1.0001, 1e4))
@settings(deadline=None)
def test_student_t_quantile_is_scipys(p, freedom):
    assert student_t_quantile(p, [0.0], [1.0], [freedom]) == pytest.approx(
        stats.t.ppf(p, freedom), rel=1e-10, abs=1e-13
    )


@pytest.mark.parametrize("freedom", [1.0, 0.5, 0.0, -3.0, -math.inf])
def test_one_degree_of_freedom_is_too_few(freedom):
    for call in (
        lambda v: crps_student_t([0, 0], [0, 0], [1, 1], v),
        lambda v: student_t_cdf([0, 0], [0, 0], [1, 1], v),
    ):
        with pytest.raises(ValueError, match=rf"freedom\[1\] is {freedom}: pass more than 1 degree of freedom"):
            call([2.0, freedom])


# ---- distribution functions, quantiles, coverage


@given(seeds, st.sampled_from([1e-9, 0.001, 0.05, 0.5, 0.9, 0.999999]))
@settings(max_examples=10, deadline=None)
def test_quantiles_and_the_distribution_function_are_inverse(seed, p):
    y, mean, variance, weights = mixture(seed)
    u = (weights * stats.norm.cdf(y[:, None], mean, np.sqrt(variance))).sum(-1)
    assert mixture_cdf(y, mean, variance, weights) == pytest.approx(u, abs=1e-15)
    x = mixture_quantile(p, mean, variance, weights)
    assert mixture_cdf(x, mean, variance, weights) == pytest.approx(np.full(20, p), rel=1e-12)
    above = (weights * stats.norm.sf(x[:, None], mean, np.sqrt(variance))).sum(-1)
    assert above == pytest.approx(np.full(20, 1 - p), rel=1e-12)
    lone = stats.norm.ppf(p, mean[:, 0], np.sqrt(variance[:, 0]))
    assert mixture_quantile(p, mean[:, 0], variance[:, 0]) == pytest.approx(lone, rel=1e-12, abs=1e-13)
    assert mixture_quantile(p, mean.reshape(4, 5, 4), variance.reshape(4, 5, 4)).shape == (4, 5)


@given(seeds, st.sampled_from([0.03, 0.27, 0.5, 0.81]))
@settings(max_examples=10, deadline=None)
def test_quantiles_of_points_are_order_statistics(seed, p):
    points = np.random.default_rng(seed).normal(size=(6, 13))
    expected = np.quantile(points, p, axis=-1, method="inverted_cdf")
    assert mixture_quantile(p, points, np.zeros_like(points)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("p", [0.02, 0.4, 0.95])
def test_quantiles_at_cruel_scales(p):
    mean, variance, weights = [0.0, 1.0, -1e12], [1e-30, 1e30, 1e-4], [0.6, 0.3, 0.1]
    found = mixture_quantile(p, [mean], [variance], [weights])[0]
    with mp.workdps(50):
        rows = [[mp.mpf(float(v)) for v in row] for row in (mean, variance, weights)]

        def cdf(x):
            return mp.fsum(w * mp.ncdf((x - m) / mp.sqrt(v)) for m, v, w in zip(*rows, strict=True))

        low, high = sorted((mp.mpf(found) * (1 - mp.mpf("1e-9")), mp.mpf(found) * (1 + mp.mpf("1e-9"))))
        assert cdf(low) < p < cdf(high)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_coverage_from_the_pit_is_the_coverage_of_the_intervals(seed):
    y, mean, variance, weights = mixture(seed, count=50)
    pit = mixture_cdf(y, mean, variance, weights)
    for level in (0.05, 0.5, 0.9):
        ends = [mixture_quantile((1 + side * level) / 2, mean, variance, weights) for side in (-1, 1)]
        assert coverage(y, *ends) == coverage_at(pit, level)
        assert interval_width(*ends) == pytest.approx(np.mean(ends[1] - ends[0]))


def test_coverage_error_of_a_calibrated_a_bold_and_a_timid_prediction():
    uniform = (np.arange(1000) + 0.5) / 1000
    assert coverage_error(uniform) < 1e-3
    assert coverage_error([0.0, 1.0]) == pytest.approx(0.5)
    assert coverage_error([0.5]) == pytest.approx(0.5)
    observed = [np.mean(np.abs(2 * uniform**2 - 1) <= level) for level in np.arange(1, 20) / 20]
    assert coverage_error(uniform**2) == pytest.approx(np.abs(observed - np.arange(1, 20) / 20).mean())
    assert coverage_error(torch.tensor([0.5, 0.9]), levels=[0.5]) == 0.0
    y = np.random.default_rng(0).normal(size=20_000)
    zeros, ones = np.zeros(20_000), np.ones(20_000)
    right, bold, timid = (coverage_error(mixture_cdf(y, zeros, v * ones)) for v in (1.0, 0.5, 2.0))
    assert right < 0.01 < 0.05 < min(bold, timid)


def test_coverage_counts_the_ends_and_weighs():
    assert coverage([1.0, 2.0, 3.0], [1.0, 0.0, 4.0], [1.5, 2.0, np.inf]) == pytest.approx(2 / 3)
    assert coverage([[1.0], [2.0]], [0.0, 5.0], [3.0, 6.0], weight=[3, 1]) == 0.75
    assert interval_width([0.0, 1.0], [2.0, 1.0]) == 1.0
    assert interval_width([-np.inf, 1.0], [2.0, 1.0]) == np.inf
    assert coverage_at([0.5, np.nan, 0.99], 0.9, weight=[1, 0, 1]) == 0.5


# ---- what uncertainty is worth


@given(seeds)
def test_error_correlation_is_spearmans(seed):
    uncertainty, error = np.round(np.random.default_rng(seed).normal(size=(2, 30)), 1)
    expected = stats.spearmanr(uncertainty, np.abs(error)).statistic
    assert error_correlation(uncertainty, error) == pytest.approx(expected, abs=1e-12)
    assert error_correlation(np.abs(error) ** 3, -error) == 1.0


def shifts(error, uncertainty):
    """The challenge's curve: errors left after rejecting 0, 1, … N of N, tied ones sharing their mean."""
    shared = np.array([error[uncertainty == u].mean() for u in uncertainty])[np.argsort(uncertainty, kind="stable")]
    return np.append(np.cumsum(shared)[::-1], 0.0) / len(error)


@given(seeds, st.sampled_from([1e-30, 1.0, 1e30]))
def test_retention_is_the_shifts_challenges(seed, scale):
    generator = np.random.default_rng(seed)
    uncertainty, square = generator.integers(0, 8, 20), scale * generator.normal(size=20) ** 2
    model = shifts(square, uncertainty)
    kept, left = retention_curve(uncertainty, square)
    assert kept == pytest.approx(np.arange(21) / 20)
    assert left == pytest.approx(model[::-1], rel=1e-12, abs=0)
    area = retention_area(uncertainty, square)
    assert (20 * area + square.mean() / 2) / 21 == pytest.approx(model.mean(), rel=1e-12)
    random, oracle = np.linspace(square.mean(), 0, 21), shifts(square, square)
    ratio = retention_ratio(uncertainty, square)
    assert ratio == pytest.approx(np.trapezoid(random - model) / np.trapezoid(random - oracle), abs=1e-12)
    assert -1 <= ratio <= 1
    assert retention_ratio(-uncertainty, square) == pytest.approx(-ratio, abs=1e-13)
    assert retention_ratio(square, square) == 1.0
    assert retention_ratio(-square, square) == pytest.approx(-1.0, abs=1e-13)
    assert retention_area(square, square) <= area * (1 + 1e-14)
    order = generator.permutation(20)
    assert retention_ratio(uncertainty[order], square[order]) == pytest.approx(ratio, abs=1e-13)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20).map(lambda r: [*r, (0, True), (1, False)]))
def test_retention_of_zero_one_errors_is_rejection(rows):
    uncertainty, error = map(np.array, zip(*rows, strict=True))
    expected = prediction_rejection_ratio(uncertainty, error)
    assert retention_ratio(uncertainty, error) == pytest.approx(expected, abs=1e-13)
    assert retention_curve(uncertainty, error)[1] == pytest.approx(rejection_curve(uncertainty, error)[1][::-1])


def test_all_ties_are_the_random_order():
    assert retention_curve([7, 7, 7], [0.0, 3.0, 6.0])[1] == pytest.approx([0, 1, 2, 3])
    assert retention_area([7, 7, 7], [0.0, 3.0, 6.0]) == pytest.approx(1.5)
    assert retention_ratio([7, 7, 7], [0.0, 3.0, 6.0]) == pytest.approx(0.0, abs=1e-16)
    assert retention_area([0.1], [4.0]) == 2.0
    assert retention_ratio([1, 2, 3], [1e16, 1e16, 1e16 + 2]) == 1.0


def test_nothing_to_tell_apart_is_nan_with_a_warning():
    with pytest.warns(RuntimeWarning, match="retention ratio is NaN: all 2 squared errors are 4.0"):
        assert math.isnan(retention_ratio([1, 2], [4.0, 4.0]))
    with pytest.warns(RuntimeWarning, match="retention ratio is NaN: all 1 squared errors"):
        assert math.isnan(retention_ratio([1], [4.0]))
    with pytest.warns(RuntimeWarning, match=r"error correlation is NaN: \|error\| is constant"):
        assert math.isnan(error_correlation([1, 2], [4.0, -4.0]))
    with pytest.warns(RuntimeWarning, match="error correlation is NaN: uncertainty is constant"):
        assert math.isnan(error_correlation([1], [4.0]))


# ---- what they say about bad input

COLUMNS = [rmse, mae, mean_nll, crps, crps_student_t, coverage, interval_width, coverage_error, error_correlation]
COLUMNS += [retention_area, retention_curve, retention_ratio]


def half_coverage(pit, weight=None):
    return coverage_at(pit, 0.5, weight=weight)


@pytest.mark.parametrize("metric", [*COLUMNS, half_coverage])
def test_padding_is_dropped_and_bad_columns_are_named(metric):
    parameters = inspect.signature(metric).parameters
    names = [name for name in parameters if name not in ("weight", "weights", "levels")]
    generator = np.random.default_rng(3)
    values = {name: generator.uniform(0.1, 0.9, size=(3, 4)) for name in names}
    values |= {name: values[name] + add for name, add in (("upper", 1.0), ("freedom", 2.0)) if name in names}
    weight = np.arange(4) < np.array([[4], [3], [1]])
    expected = metric(**{name: column[weight] for name, column in values.items()})
    spoiled = {name: np.where(weight, column, np.nan) for name, column in values.items()}
    assert np.allclose(metric(**spoiled, weight=weight), expected, rtol=1e-13)
    for name in names:
        bad = values[name].copy()
        bad[1, 2] = np.nan
        with pytest.raises(ValueError, match=rf"{name}\[1(, 2)?\] (is|contains) (nan|NaN)"):
            metric(**values | {name: bad})
        if len(names) > 1:
            with pytest.raises(ValueError, match=r"\w+ has shape \(.*\) but \w+ has \(.*\)"):
                metric(**values | {name: values[name][:2]})
    with pytest.raises(ValueError, match=rf"{names[0]} is empty|\w+ is empty"):
        metric(**{name: [] for name in names})
    with pytest.raises(ValueError, match=r"weight has shape \(2,\), but \w+ has \(3, 4\)"):
        metric(**values, weight=[1, 1])
    with pytest.raises(ValueError, match="every weight is 0"):
        metric(**values, weight=np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: crps([0, 0], [0, 0], [1, -1]),
            r"variance\[1\] contains -1.0: variances must be finite and at least 0",
        ),
        (lambda: crps([0, 0], [0, 0], [1, np.inf]), r"variance\[1\] contains inf"),
        (lambda: crps([0, np.inf], [0, 0], [1, 1]), r"y\[1\] is inf: pass finite numbers"),
        (lambda: crps([0], [[0, np.inf]], [[1, 1]]), r"mean\[0\] contains inf: pass finite numbers"),
        (lambda: crps([0, 0], [0, 0], [[1], [1]]), r"mean has shape \(2,\) but variance has \(2, 1\)"),
        (lambda: crps([0, 0, 0], [[0, 0]], [[1, 1]]), r"mean has shape \(1, 2\) but y has \(3,\): pass one Gaussian"),
        (lambda: crps([0], [[0, 0]], [[1, 1]], [[0.5, 0.6]]), r"weights\[0\] sums to 1.1, not 1"),
        (lambda: crps([0], [[0, 0]], [[1, 1]], [0.5, 0.5]), r"weights has shape \(2,\) but mean has \(1, 2\)"),
        (lambda: crps([0], [0], [1], [1.0]), r"weights has shape \(1,\) but mean has \(1,\)"),
        (lambda: crps([0], np.zeros((1, 0)), np.zeros((1, 0))), r"mean is empty \(shape \(1, 0\)\)"),
        (lambda: crps_student_t([0], [0], [-1], [3]), r"scale\[0\] is -1.0: scales must be finite and at least 0"),
        (lambda: crps_student_t([0], [np.inf], [1], [3]), r"mean\[0\] is inf: pass finite numbers"),
        (lambda: mixture_quantile(1.0, [0], [1]), r"p is 1.0: pass a number between 0 and 1"),
        (lambda: mixture_quantile(0.5, [], []), r"mean is empty"),
        (lambda: student_t_quantile(0.0, [0], [1], [2]), r"p is 0.0: pass a number between 0 and 1"),
        (lambda: coverage([0], [1.0], [0.5]), r"lower\[0\] is 1.0: it is above its upper end"),
        (lambda: coverage_at([0.5, 1.1], 0.5), r"pit\[1\] is 1.1, outside \[0, 1\]"),
        (lambda: coverage_at([0.5], 90), r"level is 90: pass a number between 0 and 1"),
        (lambda: coverage_error([0.5], levels=[]), "levels is empty"),
        (lambda: retention_area([0, 1], [1, -1]), r"squared_error\[1\] is -1.0: pass squares, finite and at least 0"),
        (lambda: retention_area([0, 1], [1, np.inf]), r"squared_error\[1\] is inf: pass squares"),
        (lambda: rmse([[1.0, 2.0]], [1.0]), r"predicted has shape \(1, 2\) but y has \(1,\)"),
        (lambda: rmse(np.zeros((5, 1)), np.zeros(4)), r"predicted has shape \(5, 1\) but y has \(4,\)"),
        (lambda: rmse([1.0], [1.0], weight=1.0), r"weight has shape \(\), but predicted has \(1,\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_they_are_all_there():
    assert {metric.__name__ for metric in [*COLUMNS, coverage_at]} <= set(metrics.__all__)
