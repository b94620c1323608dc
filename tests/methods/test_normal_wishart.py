"""The Normal-Wishart method: its loss against 60 digits, its optimum against the truth, and where there is none."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import torch

from solera import distributions
from solera.distributions import Categorical, Gaussian, Mixture
from solera.methods import NormalWishart, normal_wishart_loss
from solera.nn import MLP
from tests import referee
from tests.distributions.test_normal_wishart import exact_density

FLOATS = [torch.float32, torch.float64]


def fitted(mean, log_variance, steps: int = 60) -> distributions.NormalWishart:
    """The likeliest Normal-Wishart of these members [M, D], by LBFGS from outputs of nought; in float64."""
    output = torch.zeros(NormalWishart().outputs(mean.shape[-1]), dtype=torch.float64, requires_grad=True)
    settings = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-10, "tolerance_change": 1e-14}
    optimizer = torch.optim.LBFGS([output], max_iter=20, **settings)

    def closure():
        optimizer.zero_grad()
        loss = normal_wishart_loss(output, mean, log_variance)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    assert output.grad is not None
    assert output.grad.abs().max() < 1e-6, "not yet at the optimum"
    return NormalWishart().predict(output.detach())


def exact_loss(output, mean, log_variance, temperature=1, weights=None):
    """−(1/T)·mean_m ln NW, members drawn together and κ, ν multiplied, in 60 digits, of the student's own fields."""
    count, t = len(mean), mp.mpf(temperature)
    w = [mp.mpf(1) / count] * count if weights is None else referee.numbers(weights)
    means, variances = (
        [referee.numbers(row) for row in mean],
        [[mp.exp(v) for v in referee.numbers(r)] for r in log_variance],
    )

    def drawn(rows):
        centre = [mp.fsum(s * x for s, x in zip(w, column, strict=True)) for column in zip(*rows, strict=True)]
        return [[c + 2 / (t + 1) * (x - c) for x, c in zip(row, centre, strict=True)] for row in rows]

    student = distributions.NormalWishart.from_output(output.double())
    surer = distributions.NormalWishart(
        student.location, student.log_variance, temperature * student.belief, temperature * student.freedom
    )
    each = [
        exact_density(surer, m, [mp.log(x) for x in v]) for m, v in zip(drawn(means), drawn(variances), strict=True)
    ]
    return -mp.fsum(s * x for s, x in zip(w, each, strict=True)) / t


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("temperature", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("level", [-40.0, -5.0, 0.0, 5.0, 40.0])
def test_loss(level, size, weighted, temperature, dtype):
    generator = np.random.default_rng(size)
    mean = torch.tensor(generator.choice([-2.0, 0.5, 3.0], (4, size)), dtype=dtype)
    log_variance = torch.tensor(generator.choice([-5.0, 0.0, 1.5], (4, size)), dtype=dtype)
    weights = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=dtype) if weighted else None
    output = torch.tensor([0.5] * size + [level / 8] * size + [level, level], dtype=dtype)
    true = exact_loss(output, mean, log_variance, temperature, weights)
    ours = normal_wishart_loss(output, mean, log_variance, temperature, weights)
    assert ours.dtype == dtype
    assert abs(mp.mpf(ours.item()) - true) <= (2e-7 if dtype == torch.float32 else 1e-13) * max(abs(true), 1)


def test_the_fit_recovers_a_normal_wishart_of_one_dimension():
    """50,000 members, drawn by scipy: κ and ν to 3 %, m and ln σ² to 0.02."""
    belief, freedom, variance, location = 3.0, 7.0, 0.5, 1.5
    generator, count = np.random.default_rng(0), 50_000
    precision = scipy.stats.wishart.rvs(freedom, 1 / (variance * (freedom - 2)), count, random_state=generator)
    mean = location + generator.normal(size=count) / np.sqrt(belief * precision)
    ours = fitted(torch.tensor(mean).unsqueeze(-1), torch.tensor(-np.log(precision)).unsqueeze(-1))
    assert ours.mean.item() == pytest.approx(location, abs=0.02)
    assert ours.log_variance.item() == pytest.approx(math.log(variance), abs=0.02)
    assert ours.belief.item() == pytest.approx(belief, rel=0.03)
    assert ours.freedom.item() == pytest.approx(freedom, rel=0.03)
    ensemble = Mixture(Gaussian(torch.tensor(mean).unsqueeze(-1), torch.tensor(-np.log(precision)).unsqueeze(-1)))
    for name in ("total", "data", "knowledge"):
        assert getattr(ours, name).item() == pytest.approx(getattr(ensemble, name).item(), rel=0.05), name


def test_the_fit_recovers_a_normal_wishart_of_two_dimensions():
    """From diagonal members with the moments of the NW that its likelihood reads: E λ, E ln|Λ|, E λμ and E λμ².

    An exponential family is fitted by its moments alone. λ_d ~ Gamma of the shape s that has E ln|Λ| of the Wishart.
    50,000 members: κ and ν to 3 %, m and ln σ² to 0.02.
    """
    belief, freedom = 3.0, 9.0
    location, variance = np.array([1.5, -0.5]), np.array([0.5, 2.0])
    scale = 1 / (variance * (freedom - 3))
    wanted = scipy.special.psi([freedom / 2, (freedom - 1) / 2]).mean() - math.log(freedom / 2)
    shape = scipy.optimize.brentq(lambda s: scipy.special.psi(s) - math.log(s) - wanted, 0.5, 50)
    generator, count = np.random.default_rng(0), 50_000
    precision = generator.gamma(shape, freedom * scale / shape, (count, 2))
    mean = location + generator.normal(size=(count, 2)) / np.sqrt(belief * precision)
    ours = fitted(torch.tensor(mean), torch.tensor(-np.log(precision)))
    np.testing.assert_allclose(ours.mean, location, atol=0.02)
    np.testing.assert_allclose(ours.log_variance, np.log(variance), atol=0.02)
    assert ours.belief.item() == pytest.approx(belief, rel=0.03)
    assert ours.freedom.item() == pytest.approx(freedom, rel=0.03)


@pytest.mark.parametrize("size", [2, 4])
def test_of_full_matrices_the_diagonal_makes_freedom_larger_not_the_variance(size):
    """What the class says of D > 1: full Λ are drawn, and members keep the diagonal. The likeliest ν solves
    D·[ψ(ν/2) − ln ν] = Σ_j ψ((ν̂ − j)/2) − D·ln ν̂, about (D + 1)/2·ν; λ̄ and m are those of the Wishart.
    """
    freedom, belief, count = 60.0, 3.0, 20_000
    generator = np.random.default_rng(0)
    precision = scipy.stats.wishart.rvs(freedom, np.eye(size) / freedom, count, random_state=generator)
    steps = np.linalg.cholesky(np.linalg.inv(belief * precision)) @ generator.normal(size=(count, size, 1))
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    ours = fitted(torch.tensor(steps[..., 0]), torch.tensor(-np.log(diagonal)))
    left = size * (scipy.special.psi(freedom / 2) - math.log(freedom))

    def gap(nu):
        return scipy.special.psi((nu - np.arange(size)) / 2).sum() - size * math.log(nu) - left

    expected = scipy.optimize.brentq(gap, size + 1, 1e4)
    assert expected == pytest.approx((size + 1) / 2 * freedom, rel=0.05)
    assert ours.freedom.item() == pytest.approx(expected, rel=0.03)
    np.testing.assert_allclose(ours.log_variance.exp(), (1 / diagonal).mean(0), rtol=0.01)
    np.testing.assert_allclose(ours.mean, np.zeros(size), atol=0.02)


@pytest.mark.parametrize("members", [2, 5])
def test_the_optimum_has_the_moments_of_the_members(members):
    """dL/dm = 0, dL/dσ² = 0 and dL/dκ = 0 say: m = Σ λμ/Σ λ, E[λ] = mean λ, D/κ = mean Σ λ(μ − m)²."""
    torch.manual_seed(0)
    mean, log_variance = (
        torch.randn(members, 2, dtype=torch.float64),
        0.3 * torch.randn(members, 2, dtype=torch.float64),
    )
    ours, precision = fitted(mean, log_variance), (-log_variance).exp()
    torch.testing.assert_close(ours.mean, (precision * mean).sum(0) / precision.sum(0), rtol=1e-5, atol=1e-6)
    expected = ours.freedom / (ours.freedom - 3) * (-ours.log_variance).exp()
    torch.testing.assert_close(expected, precision.mean(0), rtol=1e-5, atol=0)
    spread = (precision * (mean - ours.mean).square()).sum(-1).mean()
    torch.testing.assert_close(ours.belief, 2 / spread, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("members", "size"), [(1, 2), (3, 1)])
def test_members_that_agree_leave_everything_finite(size, members, dtype):
    """κ and ν would grow for ever; the links let them grow to their caps, loss and gradient stay numbers."""
    mean, log_variance = (torch.full((5, members, size), x, dtype=dtype) for x in (3.0, -4.0))
    method, targets = NormalWishart(), Mixture(Gaussian(mean, log_variance))
    start = torch.cat([mean[:, 0], log_variance[:, 0], torch.zeros(5, 2, dtype=dtype)], -1)
    output = start.add(0.1).requires_grad_()
    optimizer = torch.optim.Adam([output], lr=0.1, betas=(0.9, 0.9))
    losses = []
    for step in range(300):
        optimizer.zero_grad()
        loss = method.loss(output, targets, step / 299)
        loss.sum().backward()
        assert loss.isfinite().all()
        assert output.grad is not None
        assert output.grad.isfinite().all()
        losses.append(loss.mean().item())
        optimizer.step()
    ours = method.predict(output.detach())
    torch.testing.assert_close(ours.mean, mean[:, 0], rtol=0, atol=0.05)
    torch.testing.assert_close(ours.log_variance, log_variance[:, 0], rtol=0, atol=0.1)
    assert (ours.knowledge < 0.01 * ours.data).all()
    assert (ours.belief > 1e3).all()
    assert (ours.freedom > 1e3).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("temperature", [1.0, 10.0])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 20.0, 40.0])
@pytest.mark.parametrize("far", [0.0, 1.0, 40.0])
def test_loss_and_gradient_are_finite_at_outputs_and_members_to_forty(far, scale, temperature):
    torch.manual_seed(0)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 6)
    output = (far * signs).requires_grad_()
    mean, log_variance = scale * torch.randn(2, len(signs), 4, 2).clamp(-1, 1)
    loss = normal_wishart_loss(output, mean, log_variance, temperature)
    (gradient,) = torch.autograd.grad(loss.sum(), output)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("temperature", [1.0, 5.0])
@pytest.mark.parametrize("silent", [1e30, math.inf, math.nan])
def test_a_member_of_weight_zero_does_not_count(silent, temperature):
    torch.manual_seed(0)
    mean, log_variance = torch.randn(2, 3, 4, 2, dtype=torch.float64)
    output = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    dropped = normal_wishart_loss(output, mean[:, 1:], log_variance[:, 1:], temperature)
    mean[:, 0], log_variance[:, 0] = silent, silent
    weights = torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]).expand(3, 4)
    ours = normal_wishart_loss(output, mean, log_variance, temperature, weights)
    torch.testing.assert_close(ours, dropped)
    slopes = [torch.autograd.grad(loss.sum(), output)[0] for loss in (ours, dropped)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("size", [1, 3])
def test_gradients_agree_with_finite_differences(size, temperature):
    torch.manual_seed(0)
    output = torch.randn(2, 3, 2 * size + 2, dtype=torch.float64, requires_grad=True)
    mean, log_variance = torch.randn(2, 2, 3, 4, size, dtype=torch.float64)
    weights = torch.rand(2, 3, 4, dtype=torch.float64).softmax(-1)
    assert torch.autograd.gradcheck(lambda z: normal_wishart_loss(z, mean, log_variance, temperature, weights), output)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("size", [1, 2])
def test_any_batch_axes(batch, size):
    method = NormalWishart()
    assert method.outputs(size) == 2 * size + 2
    output = torch.randn(*batch, method.outputs(size))
    targets = Mixture(Gaussian(torch.randn(*batch, 4, size), torch.randn(*batch, 4, size)))
    for progress in (0.0, 0.5, 1.0):
        assert method.loss(output, targets, progress).shape == batch
    prediction = method.predict(output)
    assert isinstance(prediction, distributions.NormalWishart)
    assert prediction.mean.shape == (*batch, size)


def test_half_precision_outputs_are_read():
    output, mean = torch.randn(3, 4).bfloat16(), torch.randn(3, 5, 1)
    loss = normal_wishart_loss(output, mean, mean)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, normal_wishart_loss(output.float(), mean, mean))


def test_the_temperature_falls_in_the_second_third():
    method = NormalWishart(initial_temperature=7.0)
    assert [method.temperature(p) for p in (0.0, 0.3, 0.5, 0.7, 1.0)] == pytest.approx([7.0, 7.0, 4.0, 1.0, 1.0])
    torch.manual_seed(0)
    output, fields = torch.randn(3, 4), torch.randn(2, 3, 5, 1)
    for progress, temperature in ((0.0, 7.0), (0.5, 4.0), (1.0, 1.0)):
        ours = method.loss(output, Mixture(Gaussian(*fields)), progress)
        torch.testing.assert_close(ours, normal_wishart_loss(output, *fields, temperature))


@pytest.mark.parametrize("temperature", [0.5, 0.0, -1.0, math.nan, math.inf])
def test_a_temperature_below_one_is_refused(temperature):
    with pytest.raises(ValueError, match="initial_temperature must be at least 1, got"):
        NormalWishart(initial_temperature=temperature)
    with pytest.raises(ValueError, match="temperature must be at least 1, got"):
        normal_wishart_loss(torch.zeros(4), torch.zeros(3, 1), torch.zeros(3, 1), temperature)


def test_members_that_speak_of_classes_are_refused():
    targets = Mixture(Categorical(torch.zeros(3, 5, 4)))
    said = "NormalWishart needs means and variances of continuous targets: use ProxyDirichlet"
    with pytest.raises(ValueError, match=said):
        NormalWishart().loss(torch.zeros(3, 10), targets)


def test_a_network_of_the_wrong_width_is_told_the_right_one():
    with pytest.raises(ValueError, match="4 outputs is for 1 target dimensions, the members have 2: give it 6 outputs"):
        normal_wishart_loss(torch.zeros(3, 4), torch.zeros(3, 5, 2), torch.zeros(3, 5, 2))


def test_the_loss_leaves_its_inputs_alone():
    output, mean, log_variance, weights = (
        torch.randn(3, 4),
        torch.randn(3, 5, 1),
        torch.randn(3, 5, 1),
        torch.full((3, 5), 0.2),
    )
    before = [t.clone() for t in (output, mean, log_variance, weights)]
    normal_wishart_loss(output, mean, log_variance, 3.0, weights)
    assert all(torch.equal(a, b) for a, b in zip(before, (output, mean, log_variance, weights), strict=True))


def test_a_few_members_at_odds_about_the_noise_do_not_spoil_the_variance_everywhere():
    """Where precisions differ by e⁴ the likeliest freedom is the least, and the variance the law's own tail."""
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 512)[:, None]
    mean = torch.sin(x)[:, None] + 0.02 * torch.randn(512, 10, 1)
    log_variance, odd = 0.03 * torch.randn(512, 10, 1) - 2, torch.rand(512) < 0.05
    log_variance[odd] += 4 * torch.randn(int(odd.sum()), 10, 1)
    members = Mixture(Gaussian(mean, log_variance))
    method = NormalWishart()
    network = MLP.for_inputs(x, 4, (50,), activation="softplus", targets=torch.sin(x))
    method.begin(network, members)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for step in range(500):
        optimizer.zero_grad()
        method.loss(network(x), members, step / 500).mean().backward()
        optimizer.step()
    with torch.no_grad():
        kept = (method.predict(network(x)).data / members.data)[~odd]
    assert 1 / 3 < kept.median() < 3
