"""The Normal-Wishart against 60-digit arithmetic, scipy's full matrices, quadrature and samples."""

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.distributions import Gaussian, NormalWishart
from solera.distributions.normal_wishart import BELIEF_CAP, FREEDOM_CAP, FREEDOM_FLOOR, LOG_VARIANCE_CAP
from tests import referee
from tests.distributions.inputs import FLOATS, quick

MEASURES = ["total", "data", "knowledge", "epkl", "mutual_information", "rmi"]
LOG_VARIANCES = [-60.0, -5.0, 0.0, 5.0, 60.0]
ABOVE = [2.0**-10, 5.0, 1e3, 1e7, 1e12]  # κ, and how far ν is above D + 1


def normal_wishart(mean, log_variance, belief, freedom, dtype=torch.float64) -> NormalWishart:
    return NormalWishart(*(torch.as_tensor(t, dtype=dtype) for t in (mean, log_variance, belief, freedom)))


def some(*batch: int, size: int = 2, seed: int = 0) -> NormalWishart:
    """Ordinary ones, in float64."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    mean, log_variance = torch.randn(*batch, size, **draw), torch.randn(*batch, size, **draw)
    belief, freedom = torch.randn(batch, **draw).exp(), size + 1.5 + 5 * torch.rand(batch, **draw)
    return NormalWishart(mean, log_variance, belief, freedom)


def scale_of(ours: NormalWishart) -> np.ndarray:
    """The Wishart's W as a full matrix, of one distribution."""
    size = ours.mean.shape[-1]
    return np.diag((-ours.log_variance).exp().numpy() / (ours.freedom.item() - size - 1))


# The formulas as the textbook has them, in 60 digits.


def log_multigamma(x, size):
    value = mp.mpf(size * (size - 1)) / 4 * mp.log(mp.pi)
    return value + mp.fsum(referee.loggamma(x - mp.mpf(j) / 2) for j in range(size))


def exact_scale(ours: NormalWishart):
    """m, the diagonal of W, κ and ν of one distribution, exactly as its floats say."""
    mean, log_variance = referee.numbers(ours.location), referee.numbers(ours.log_variance)
    kappa, nu = mp.mpf(ours.belief.item()), mp.mpf(ours.freedom.item())
    return mean, [mp.exp(-v) / (nu - len(mean) - 1) for v in log_variance], kappa, nu


def exact_density(ours: NormalWishart, mu, log_variance):
    m, w, kappa, nu = exact_scale(ours)
    size, precision = len(m), [mp.exp(-v) for v in log_variance]
    pairs = zip(precision, w, strict=True)
    value = mp.fsum((nu - size - 1) / 2 * mp.log(p) - p / (2 * s) - nu / 2 * mp.log(s) for p, s in pairs)
    value -= nu * size / 2 * mp.log(2) + log_multigamma(nu / 2, size)
    places = zip(precision, mu, m, strict=True)
    normal = mp.fsum(mp.log(kappa * p / (2 * mp.pi)) - kappa * p * (a - b) ** 2 for p, a, b in places)
    return value + normal / 2


def exact_log_prob(ours: NormalWishart, y):
    m, w, kappa, nu = exact_scale(ours)
    size, n = len(m), nu - len(m) + 1
    scale = [(kappa + 1) / (kappa * n * s) for s in w]
    value = referee.loggamma((n + size) / 2) - referee.loggamma(n / 2)
    value -= mp.fsum(mp.log(n * mp.pi * s) for s in scale) / 2
    far = mp.fsum((a - b) ** 2 / s for a, b, s in zip(y, m, scale, strict=True)) / n
    return value - (n + size) / 2 * mp.log(1 + far)


def exact_measures(ours: NormalWishart):
    m, w, kappa, nu = exact_scale(ours)
    size, n = len(m), nu - len(m) + 1
    variance = mp.fsum(1 / (s * (nu - size - 1)) for s in w)
    far, near = (n + size) / 2, n / 2
    student = referee.loggamma(near) - referee.loggamma(far)
    student += mp.fsum(mp.log(mp.pi * (kappa + 1) / (kappa * s)) for s in w) / 2
    student += far * (referee.digamma(far) - referee.digamma(near))
    log_det = mp.fsum(referee.digamma((nu - j) / 2) + mp.log(2 * s) for j, s in enumerate(w))
    information = student - size * (1 + mp.log(2 * mp.pi)) / 2 + log_det / 2
    epkl = (size * nu / (nu - size - 1) * (1 + 1 / kappa) - size + size / kappa) / 2
    return {
        "total": variance * (1 + 1 / kappa),
        "data": variance,
        "knowledge": variance / kappa,
        "epkl": epkl,
        "mutual_information": information,
        "rmi": epkl - information,
    }


@cache
def cruel(size: int, dtype: torch.dtype) -> list[NormalWishart]:
    generator = np.random.default_rng(size)
    return [
        normal_wishart(
            generator.choice([-3.0, 0.0, 0.5], size), generator.choice(LOG_VARIANCES, size), k, a + size + 1, dtype
        )
        for k in ABOVE
        for a in ABOVE
    ]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_measures(size, dtype):
    for ours in cruel(size, dtype):
        true = exact_measures(ours)
        for name in MEASURES:
            error = abs(mp.mpf(getattr(ours, name).item()) - true[name])
            scale = true["epkl"] if name == "rmi" else true[name]  # rmi is a difference
            # relative; but mutual information is a sum of numbers of size one, each good to a unit of float64
            slack = 4e-15 if name in ("mutual_information", "rmi") else 0
            assert error <= (4e-7 if dtype == torch.float32 else 4e-15) * scale + slack, (name, ours)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_log_prob(size, dtype):
    for number, ours in enumerate(cruel(size, dtype)):
        noise = np.random.default_rng(number).normal(size=size)
        for far in (0.0, 1.0, 30.0, 1e4):
            y = (ours.mean.double() + far * (0.5 * ours.log_variance.double()).exp() * torch.tensor(noise)).to(dtype)
            true = exact_log_prob(ours, referee.numbers(y))
            error = abs(mp.mpf(ours.log_prob(y).item()) - true)
            # e^{−½ ln σ²} is rounded where |ln σ²| is 60
            assert error <= (2e-7 if dtype == torch.float32 else 1e-13) * max(abs(true), 1), (ours, y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_log_density(size, dtype):
    for number, ours in enumerate(cruel(size, dtype)):
        generator = np.random.default_rng(number)
        for near in (1.0, 0.0):
            # a likely member, or one that knows nothing of this distribution; the first lies within 1/√ν and 1/√κ
            spread = 1 / math.sqrt(ours.freedom.item())
            log_variance = near * (ours.log_variance.double() + spread * torch.tensor(generator.normal(size=size)))
            sigma = (0.5 * log_variance - 0.5 * ours.belief.double().log()).exp()
            mean = near * (ours.mean.double() + sigma * torch.tensor(generator.normal(size=size)))
            mean, log_variance = mean.to(dtype), log_variance.to(dtype)
            true = exact_density(ours, referee.numbers(mean), referee.numbers(log_variance))
            value = ours.log_density(mean.unsqueeze(0), log_variance.unsqueeze(0)).item()
            if abs(true) > torch.finfo(dtype).max:
                assert value == -math.inf
                continue
            # ln λ − ln λ̄ of numbers to 60 is rounded to 1e-14, and ν multiplies what follows from it
            slack = 1e-14 * (1 + math.sqrt(ours.freedom.item())) * size
            assert abs(mp.mpf(value) - true) <= (2e-7 if dtype == torch.float32 else 1e-13) * max(abs(true), 1) + slack


@pytest.mark.parametrize("size", [1, 2, 3])
def test_agrees_with_scipys_full_matrices(size):
    for ours in (some(size=size, seed=seed) for seed in range(5)):
        scale, kappa, nu = scale_of(ours), ours.belief.item(), ours.freedom.item()
        members = some(4, size=size, seed=9)
        theirs = []
        for mean, log_variance in zip(members.mean.numpy(), members.log_variance.numpy(), strict=True):
            precision = np.diag(np.exp(-log_variance))
            value = scipy.stats.wishart.logpdf(precision, nu, scale)
            theirs.append(
                value
                + scipy.stats.multivariate_normal.logpdf(mean, ours.mean.numpy(), np.linalg.inv(kappa * precision))
            )
        np.testing.assert_allclose(ours.log_density(members.mean, members.log_variance), theirs, rtol=1e-10)
        n = nu - size + 1
        shape = np.linalg.inv(scale) * (1 + 1 / kappa) / n
        predictive = scipy.stats.multivariate_t(ours.mean.numpy(), shape, df=n)
        for y in members.mean:
            np.testing.assert_allclose(ours.log_prob(y), predictive.logpdf(y.numpy()), rtol=1e-10)
        log_det = (
            scipy.special.psi((nu - np.arange(size)) / 2).sum() + size * math.log(2) + np.log(np.diag(scale)).sum()
        )
        entropy = 0.5 * size * (1 + math.log(2 * math.pi)) - 0.5 * log_det
        np.testing.assert_allclose(ours.mutual_information, predictive.entropy() - entropy, rtol=1e-8)
        np.testing.assert_allclose(ours.total, np.trace(shape) * n / (n - 2), rtol=1e-12)


def test_one_dimension_is_students_t():
    ours = some(7, size=1)
    n = ours.freedom.numpy()
    scale = np.sqrt(((1 + 1 / ours.belief) * ours.data * (ours.freedom - 2) / ours.freedom).numpy())
    y = ours.mean.squeeze(-1) + 0.3
    np.testing.assert_allclose(
        ours.log_prob(y), scipy.stats.t.logpdf(y.numpy(), n, ours.mean.squeeze(-1).numpy(), scale)
    )
    np.testing.assert_allclose(ours.total, scipy.stats.t.var(n, scale=scale))


@pytest.mark.parametrize(("belief", "freedom"), [(0.3, 2.5), (2.0, 6.0), (50.0, 200.0)])
def test_the_density_integrates_to_one(belief, freedom):
    """Over μ and λ, by the trapezium rule in u = (μ − m)·√(κλ) and v = ln λ, whose ends are nothing."""
    ours = normal_wishart([0.7], [-1.3], belief, freedom)
    u, v = torch.linspace(-9, 9, 181, dtype=torch.float64), torch.linspace(-40, 12, 4001, dtype=torch.float64)
    mean = 0.7 + u.unsqueeze(-1) * (-0.5 * v).exp() / math.sqrt(belief)
    log_variance = -v.expand_as(mean)
    density = ours.log_density(mean.reshape(-1, 1), log_variance.reshape(-1, 1)).exp().reshape(mean.shape)
    measure = (v - 0.5 * v).exp() / math.sqrt(belief)  # dλ = λ·dv, dμ = du/√(κλ)
    assert torch.trapezoid(torch.trapezoid(density * measure, v), u).item() == pytest.approx(1, abs=1e-9)


def test_log_prob_is_the_average_over_the_density():
    """∫∫ N(y; μ, 1/λ)·NW(μ, λ) dμ dλ, by the same rule."""
    ours = normal_wishart([0.7], [-1.3], 2.0, 6.0)
    u, v = torch.linspace(-9, 9, 181, dtype=torch.float64), torch.linspace(-40, 12, 4001, dtype=torch.float64)
    mean = 0.7 + u.unsqueeze(-1) * (-0.5 * v).exp() / math.sqrt(2)
    members = Gaussian(mean.reshape(-1, 1), -v.expand_as(mean).reshape(-1, 1))
    joint = ours.log_density(members.mean, members.log_variance) + members.log_prob(
        torch.full((mean.numel(),), 1.9).double()
    )
    density = joint.exp().reshape(mean.shape) * (0.5 * v).exp() / math.sqrt(2)
    value = torch.trapezoid(torch.trapezoid(density, v), u).log().item()
    assert ours.log_prob(torch.tensor(1.9, dtype=torch.float32)).item() == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(("size", "belief", "freedom"), [(1, 1.5, 8.0), (2, 0.7, 9.0), (3, 20.0, 40.0)])
def test_measures_are_what_samples_show(size, belief, freedom):
    ours = normal_wishart(np.arange(size), np.linspace(-1, 1, size), belief, freedom)
    generator, count = np.random.default_rng(size), 100_000
    wishart = scipy.stats.wishart(freedom, scale_of(ours))
    precisions = wishart.rvs(2 * count, random_state=generator).reshape(2, count, size, size)
    covariances = np.linalg.inv(precisions)
    steps = np.linalg.cholesky(covariances / belief) @ generator.normal(size=(2, count, size, 1))
    means = ours.mean.numpy() + steps[..., 0]
    targets = means[0] + (np.linalg.cholesky(covariances[0]) @ generator.normal(size=(count, size, 1)))[..., 0]
    away = means[0] - means[1]
    log_det = np.linalg.slogdet(precisions)[1]
    kl = np.einsum("nij,nji->n", precisions[1], covariances[0]) - size + log_det[0] - log_det[1]
    kl = 0.5 * (kl + np.einsum("ni,nij,nj->n", away, precisions[1], away))
    member = 0.5 * (log_det[0] - size * math.log(2 * math.pi))
    member -= 0.5 * np.einsum("ni,nij,nj->n", targets - means[0], precisions[0], targets - means[0])
    shown = {
        "total": np.square(targets - ours.mean.numpy()).sum(-1),
        "data": np.trace(covariances[0], axis1=-2, axis2=-1),
        "knowledge": np.square(means[0] - ours.mean.numpy()).sum(-1),
        "epkl": kl,
        "mutual_information": member - ours_log_prob(ours, targets),  # E ln p(y | member)/p(y)
    }
    for name, values in shown.items():
        doubt = values.std() / math.sqrt(count)
        assert abs(getattr(ours, name).item() - values.mean()) <= 5 * doubt, name


def ours_log_prob(ours: NormalWishart, y: np.ndarray) -> np.ndarray:
    spread = [t.expand(len(y), *t.shape) for t in (ours.location, ours.log_variance, ours.belief, ours.freedom)]
    return NormalWishart(*spread).log_prob(torch.tensor(y)).numpy()


@pytest.mark.parametrize("dtype", FLOATS)
def test_becomes_the_gaussian_as_freedom_grows(dtype):
    torch.manual_seed(0)
    mean, log_variance, y = torch.randn(3, 3, 2, dtype=dtype)
    many = torch.full((3,), 1e12, dtype=dtype)
    ours, gaussian = NormalWishart(mean, log_variance, many, many), Gaussian(mean, log_variance)
    for target in (y, mean, mean + 5):
        torch.testing.assert_close(ours.log_prob(target), gaussian.log_prob(target), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(ours.total, gaussian.total)
    assert (ours.mutual_information < 1e-10).all()


@quick
@given(
    st.integers(1, 6),
    st.floats(-40, 40, width=32),
    st.floats(-40, 40, width=32),
    st.floats(-40, 40, width=32),
    st.sampled_from(FLOATS),
)
def test_identities_at_any_output(size, variance, belief, freedom, dtype):
    output = torch.tensor([0.5] * size + [variance] * size + [belief, freedom], dtype=dtype)
    ours = NormalWishart.from_output(output)
    torch.testing.assert_close(ours.total, ours.data + ours.knowledge)
    torch.testing.assert_close(ours.epkl, ours.mutual_information + ours.rmi)
    assert all(getattr(ours, name).isfinite() for name in MEASURES)
    assert all(getattr(ours, name) > 0 for name in ("total", "data", "knowledge", "epkl"))
    slack = torch.finfo(dtype).eps * ours.epkl + 1e-15
    assert ours.mutual_information >= -slack
    assert ours.rmi >= -slack  # EPKL ≥ MI
    assert ours.log_prob(output[:size]).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("level", [-40.0, -6.0, 0.0, 6.0, 40.0])
def test_outputs_are_bounded_and_never_without_slope(level, dtype):
    """Of ±40, in every precision: finite, within the caps, and with a gradient that still moves an optimiser."""
    output = torch.full((4,), level, dtype=dtype, requires_grad=True)
    ours = NormalWishart.from_output(output)
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    fields = (ours.location, ours.log_variance, ours.belief, ours.freedom)
    assert all(t.dtype == expected and t.isfinite().all() for t in fields)
    assert ours.location.item() == level
    mean_precision = (ours.freedom / (ours.freedom - 2)).log() - ours.log_variance
    assert abs(mean_precision.item()) < LOG_VARIANCE_CAP
    assert abs(ours.belief.log().item()) < BELIEF_CAP
    assert -FREEDOM_FLOOR < math.log(ours.freedom.item() - 2) < FREEDOM_CAP
    logs = -mean_precision.sum() + ours.belief.log() + (ours.freedom - 2).log()
    (slope,) = torch.autograd.grad(logs, output)
    least = {40.0: 0.001, 6.0: 0.2, 0.0: 0.99}[abs(level)]
    assert (slope[1:3] > least).all()
    assert slope[3] > {-40.0: 4e-6, -6.0: 1e-3}.get(level, least)  # near the floor of the freedom there is little left
    assert (slope[1:] <= 1.01).all()


def test_outputs_near_nought_are_the_logarithms_themselves():
    output = torch.tensor([3.0, -2.0, 0.1, -0.2, 0.3, -0.1], dtype=torch.float64)
    ours = NormalWishart.from_output(output)
    torch.testing.assert_close(ours.location, output[:2])
    wider = (ours.freedom / (ours.freedom - 3)).log()
    torch.testing.assert_close(ours.log_variance, output[2:4] + wider, rtol=1e-4, atol=0)
    torch.testing.assert_close(ours.belief.log(), output[4], rtol=1e-3, atol=0)
    torch.testing.assert_close((ours.freedom - 3).log(), output[5], rtol=2e-2, atol=0)  # the floor is near
    assert NormalWishart.outputs(2) == 6


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_wrong_number_of_outputs_is_refused(count):
    with pytest.raises(
        ValueError, match=rf"needs 2·D \+ 2 outputs, got {count}: give the network NormalWishart.outputs"
    ):
        NormalWishart.from_output(torch.zeros(3, count))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("size", [1, 3])
def test_any_batch_axes(batch, size):
    ours = NormalWishart.from_output(torch.randn(*batch, NormalWishart.outputs(size)))
    for name in MEASURES:
        assert getattr(ours, name).shape == batch
        assert getattr(ours, name).dtype == torch.float32
    assert ours.mean.shape == (*batch, size)
    assert ours.log_prob(torch.zeros(*batch, size)).shape == batch
    assert ours.log_density(torch.zeros(*batch, 4, size), torch.zeros(*batch, 4, size)).shape == (*batch, 4)


def test_a_target_of_one_dimension_may_come_without_its_axis():
    ours, y = some(3, 2, size=1), torch.randn(3, 2, dtype=torch.float64)
    assert torch.equal(ours.log_prob(y), ours.log_prob(y.unsqueeze(-1)))
    with pytest.raises(
        ValueError, match=r"targets of shape \(3,\) do not fit predictions of shape \(3, 2\): the last axis"
    ):
        some(3, size=2).log_prob(torch.zeros(3))
    with pytest.raises(ValueError, match="the last axis holds the target's dimensions"):
        some(3, size=2).log_prob(torch.zeros(3, 1))


def test_the_order_of_the_dimensions_does_not_matter():
    ours, order = some(4, size=3), [2, 0, 1]
    other = NormalWishart(ours.location[:, order], ours.log_variance[:, order], ours.belief, ours.freedom)
    for name in MEASURES:
        torch.testing.assert_close(getattr(ours, name), getattr(other, name))
    y = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(y), other.log_prob(y[:, order]))


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_agree_with_finite_differences(size):
    ours, members = some(2, size=size), some(2, 4, size=size, seed=1)
    y = torch.randn(2, size, dtype=torch.float64)
    fields = [t.requires_grad_() for t in (ours.location, ours.log_variance, ours.belief, ours.freedom)]

    def everything(*fields):
        student = NormalWishart(*fields)
        density = student.log_density(members.mean, members.log_variance)
        return *(getattr(student, name) for name in MEASURES), student.log_prob(y), density

    assert torch.autograd.gradcheck(everything, fields)
    assert torch.autograd.gradcheck(
        ours.log_density, [t.requires_grad_() for t in (members.location, members.log_variance)]
    )
