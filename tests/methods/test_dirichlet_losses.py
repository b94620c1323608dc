"""EnD, EnD² and Proxy-Dirichlet against 60-digit arithmetic, gradients too, at ordinary and at cruel inputs."""

import mpmath as mp
import numpy as np
import pytest
import torch

from solera.core.errors import DivergedError
from solera.distributions.matching import SMALLEST_SPREAD
from solera.methods import end2_loss, end_loss, proxy_dirichlet_loss, proxy_precision
from tests import referee

LEVELS = [-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0]
MEMBERS = 3


def members_of(kind: str, classes: int) -> torch.Tensor:
    generator = np.random.default_rng(classes)
    if kind == "ordinary":
        return torch.tensor(generator.choice([-3.0, -1.0, 0.0, 0.5, 2.0], (MEMBERS, classes)))
    if kind == "one-hot":
        logits = torch.full((MEMBERS, classes), -40.0)
        logits[:, 1] = torch.tensor([40.0, 39.0, 38.0])
        return logits.double()
    if kind == "disagree":
        logits = torch.full((MEMBERS, classes), -40.0)
        for m in range(MEMBERS):
            logits[m, m % classes] = 40.0
        return logits.double()
    return torch.tensor(generator.choice([-3.0, 0.0, 2.0], (1, classes))).expand(MEMBERS, classes).clone()  # identical


def student_of(level: float, classes: int) -> torch.Tensor:
    """One logit at the cruel level, the rest ordinary."""
    logits = torch.tensor(np.random.default_rng(1).choice([-4.0, -1.0, 0.25, 1.5], classes))
    logits[0] = level
    return logits


def check(ours: torch.Tensor, logits: torch.Tensor, value, gradient, tolerance: float) -> None:
    """Value relative to one at least; gradient relative to its largest entry, or to 0.1: near an optimum it is a
    difference of terms of size one.
    """
    (slope,) = torch.autograd.grad(ours.sum(), logits)
    assert float(abs(mp.mpf(ours.item()) - value) / max(abs(value), 1)) < tolerance, (ours.item(), float(value))
    true = np.array([float(g) for g in gradient])
    assert np.abs(slope.double().numpy() - true).max() / max(np.abs(true).max(), 0.1) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["ordinary", "one-hot", "disagree"])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_proxy_dirichlet_loss(classes, kind, level, dtype):
    logits, members = student_of(level, classes).to(dtype), members_of(kind, classes).to(dtype)
    rows = [referee.numbers(m) for m in members]
    divisor = min(referee.proxy_precision(rows), (classes - 1) / mp.mpf(SMALLEST_SPREAD))
    centre = referee.mean([referee.softmax(m) for m in rows])
    for as_released in (False, True):
        b = divisor + classes * as_released
        value, gradient = referee.proxy_loss(referee.numbers(logits), centre, b)
        z = logits.clone().requires_grad_()
        ours = proxy_dirichlet_loss(z, members, as_released=as_released)
        check(ours, z, value, gradient, 1e-6 if dtype == torch.float32 else 1e-12)


def test_proxy_dirichlet_loss_at_forty_thousand_classes():
    classes = 40_000
    logits, members = student_of(20.0, classes).float(), members_of("disagree", classes).float()
    rows = [referee.numbers(m) for m in members]
    centre = referee.mean([referee.softmax(m) for m in rows])
    value, gradient = referee.proxy_loss(referee.numbers(logits), centre, referee.proxy_precision(rows))
    z = logits.clone().requires_grad_()
    check(proxy_dirichlet_loss(z, members), z, value, gradient, 2e-6)


@pytest.mark.parametrize("everywhere", [-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_proxy_dirichlet_loss_with_all_logits_equal(classes, everywhere):
    logits, members = torch.full((classes,), everywhere), members_of("disagree", classes).float()
    rows = [referee.numbers(m) for m in members]
    centre = referee.mean([referee.softmax(m) for m in rows])
    value, gradient = referee.proxy_loss(referee.numbers(logits), centre, referee.proxy_precision(rows))
    z = logits.clone().requires_grad_()
    check(proxy_dirichlet_loss(z, members), z, value, gradient, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 10.0])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["ordinary", "one-hot", "disagree", "identical"])
@pytest.mark.parametrize("classes", [2, 10, 200])
def test_end2_loss(classes, kind, level, temperature, dtype):
    logits, members = student_of(level, classes).to(dtype), members_of(kind, classes).to(dtype)
    rows = [referee.numbers(m) for m in members]
    value, gradient = referee.end2_loss(referee.numbers(logits), rows, temperature)
    z = logits.clone().requires_grad_()
    # z/T is itself rounded, and e^{z/T} feels that |z/T|-fold; the loss is T² times the likelihood
    tolerance = (1e-6 if dtype == torch.float32 else 1e-13) * max(1.0, abs(level) / temperature) * temperature**2
    check(end2_loss(z, members, temperature), z, value, gradient, tolerance)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["ordinary", "one-hot", "disagree", "identical"])
def test_end_loss(kind, level, temperature):
    logits, members = student_of(level, 10).float(), members_of(kind, 10).float()
    rows = [referee.numbers(m) for m in members]
    value = referee.end_loss(referee.numbers(logits), rows, temperature)
    assert abs(end_loss(logits, members, temperature).item() - float(value)) < 2e-6 * max(1, float(value))


def test_end_loss_is_zero_at_perfect_imitation():
    members = 5 * torch.randn(7, 1, 30)
    loss = end_loss(members.squeeze(1), members, temperature=2.0)
    assert loss.abs().max() < 1e-12


@pytest.mark.parametrize("match", ["rmi", "epkl"])
@pytest.mark.parametrize("kind", ["ordinary", "one-hot", "disagree"])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_proxy_precision(classes, kind, match):
    members = members_of(kind, classes).float()
    true = float(referee.proxy_precision([referee.numbers(m) for m in members], match))
    if true < (classes - 1) * 1e7:
        assert proxy_precision(members, match).item() == pytest.approx(true, rel=2e-6)
    else:
        assert proxy_precision(members, match).item() >= (classes - 1) * 1e7


@pytest.mark.parametrize("match", ["rmi", "epkl"])
def test_identical_members_have_the_greatest_precision_not_an_infinite_one(match):
    precision = proxy_precision(members_of("identical", 100).float(), match)
    assert precision.item() == pytest.approx(99e8, rel=1e-6)


def test_epkl_match_recovers_the_precision_of_a_dirichlet():
    concentration = torch.tensor([2.0, 5.0, 3.0, 10.0], dtype=torch.double)
    torch.manual_seed(0)
    members = torch.distributions.Dirichlet(concentration).sample(torch.Size([20_000])).log()
    assert proxy_precision(members, "epkl").item() == pytest.approx(20.0, rel=0.03)


@pytest.mark.parametrize("silent", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("loss", [end_loss, end2_loss, proxy_dirichlet_loss])
def test_a_member_of_weight_zero_is_not_read(loss, silent):
    logits, members = torch.randn(5, 4), torch.randn(5, 3, 4)
    weights = torch.tensor([0.25, 0.75]).expand(5, 2)
    spoken = loss(logits, members[:, 1:], weights=weights)
    members[:, 0] = silent
    heard = loss(logits, members, weights=torch.cat([torch.zeros(5, 1), weights], -1))
    torch.testing.assert_close(heard, spoken, rtol=1e-6, atol=0)


@pytest.mark.parametrize("loss", [end2_loss, proxy_dirichlet_loss])
def test_logits_that_diverged_are_an_error_not_a_nan(loss):
    logits, members = torch.zeros(4, 3), torch.randn(4, 2, 3)
    logits[2, 1] = 104.0
    with pytest.raises(
        DivergedError, match=r"the loss is (nan|-?inf) at \[2\], where the largest logit is 104: beyond 88"
    ):
        loss(logits, members)
    logits[2, 1] = 80.0
    assert loss(logits, members).isfinite().all()


def test_end2_bears_a_class_that_a_member_rules_out_if_it_smooths():
    members = torch.tensor([[[0.0, -torch.inf, 0.0], [0.0, 0.0, 1.0]]])
    assert end2_loss(torch.zeros(1, 3), members).isfinite().all()
    with pytest.raises(DivergedError, match="keep smoothing above 0"):
        end2_loss(torch.zeros(1, 3), members, smoothing=0.0)
