"""The categorical against 60-digit arithmetic and torch.distributions."""

import math

import hypothesis.extra.numpy as arrays
import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.distributions import Categorical
from tests import referee
from tests.distributions.inputs import FLOATS, LEVELS, MEMBERS, members_of, quick

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}

logits_of_any_kind = arrays.arrays(np.float32, st.integers(2, 12), elements=st.floats(-40, 40, width=32))


def relative(ours: torch.Tensor, true) -> float:
    """Error ÷ the true value."""
    return float(abs(mp.mpf(ours.item()) - true) / abs(true))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("kind", MEMBERS)
def test_probabilities_and_entropy(kind, classes, dtype):
    logits = torch.tensor(members_of(kind, classes)[0], dtype=dtype)
    row = referee.numbers(logits)
    probabilities = referee.softmax(row)
    ours = Categorical(logits)
    for k in {0, 1, classes - 1}:
        assert relative(ours.mean[k], probabilities[k]) < TOLERANCE[dtype]
        error = abs(mp.mpf(ours.log_prob(torch.tensor(k)).item()) - mp.log(probabilities[k]))
        assert float(error) < TOLERANCE[dtype]
    assert relative(ours.total, referee.entropy(probabilities)) < TOLERANCE[dtype]


def test_forty_thousand_probabilities_sum_to_one():
    logits = torch.tensor(members_of("cruel", 40_000), dtype=torch.float32)
    assert (Categorical(logits).mean.sum(-1, dtype=torch.float64) - 1).abs().max() < 5e-7
    assert (Categorical(torch.zeros(40_000)).total - math.log(40_000)).abs() < 2e-6


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("second", MEMBERS)
@pytest.mark.parametrize("first", MEMBERS)
def test_kl(first, second, dtype):
    one, other = members_of(first, 10)[0], members_of(second, 10)[1]
    true = referee.kl(*(referee.softmax(referee.numbers(row)) for row in (one, other)))
    ours = Categorical(torch.tensor(one, dtype=dtype)).kl(Categorical(torch.tensor(other, dtype=dtype)))
    # a KL is ½ Σ p·d² where d = ln p − ln q is small: d rounded by δ shifts it by δ·√(2·KL)
    slack = torch.finfo(dtype).eps * mp.sqrt(true)
    assert ours >= 0
    assert abs(mp.mpf(ours.item()) - true) <= TOLERANCE[dtype] * true + slack


def test_agrees_with_torch_distributions():
    torch.manual_seed(0)
    logits, others, y = torch.randn(4, 3, 7), torch.randn(4, 3, 7), torch.randint(7, (4, 3))
    ours, theirs = Categorical(logits), torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(ours.mean, theirs.probs)
    torch.testing.assert_close(ours.total, theirs.entropy())
    torch.testing.assert_close(ours.log_prob(y), theirs.log_prob(y))
    kl = torch.distributions.kl_divergence(theirs, torch.distributions.Categorical(logits=others))
    torch.testing.assert_close(ours.kl(Categorical(others)), kl)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch_axes(batch):
    prediction = Categorical(torch.randn(*batch, 5))
    y = torch.zeros(batch, dtype=torch.long)
    for value in (prediction.total, prediction.log_prob(y), prediction.kl(prediction), prediction.tempered(2.0).total):
        assert value.shape == batch
    assert prediction.mean.shape == (*batch, 5)


def test_an_impossible_class_costs_nothing_unless_the_other_thinks_it_possible():
    possible, impossible = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -math.inf, 3.0])
    p, q = Categorical(impossible), Categorical(possible)
    assert p.kl(p) == 0
    torch.testing.assert_close(p.kl(q), -torch.log(1 - q.mean[1]))
    assert q.kl(p) == math.inf
    torch.testing.assert_close(p.total, Categorical(torch.tensor([1.0, 3.0])).total)


@pytest.mark.parametrize("temperature", [0.5, 2.0, 10.0])
def test_tempered_is_the_softmax_of_logits_over_temperature(temperature):
    logits = torch.tensor(LEVELS, dtype=torch.float64)
    true = referee.softmax(referee.numbers(logits), temperature)
    ours = Categorical(logits).tempered(temperature).mean
    assert max(relative(a, b) for a, b in zip(ours, true, strict=True)) < 1e-13


def test_a_temperature_must_be_positive():
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        Categorical(torch.zeros(3)).tempered(0.0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", MEMBERS)
def test_members_are_averaged_as_probabilities(kind, dtype):
    rows = members_of(kind, 10)
    true = referee.mean([referee.softmax(referee.numbers(row)) for row in rows])
    ours = Categorical(torch.tensor(rows, dtype=dtype)).averaged().mean
    assert max(relative(a, b) for a, b in zip(ours, true, strict=True)) < TOLERANCE[dtype]


def test_the_average_of_one_member_is_that_member():
    logits = 20 * torch.randn(4, 1, 9)
    assert torch.equal(Categorical(logits).averaged().mean, Categorical(logits.squeeze(1)).mean)


@pytest.mark.parametrize(
    "logits", [[40.0, -40.0, 0.0], [60.0, -60.0, -60.0], [300.0, -300.0, 0.0], [2.0, 2.0, 1.0], [0.0, 0.0, 0.0]]
)
def test_gradients_are_exact_and_finite(logits):
    """dH/dz_k = −p_k·(ln p_k + H); d ln p_y/dz_k = [k = y] − p_k; dKL[p ‖ q]/dz_k = p_k·(ln(p_k/q_k) − KL)."""
    z = torch.tensor(logits, requires_grad=True)
    other = torch.tensor([1.0, 2.0, 3.0])
    p = torch.tensor(logits).double().softmax(-1)
    log_p, log_q = torch.tensor(logits).double().log_softmax(-1), other.double().log_softmax(-1)
    entropy, kl = -(p * log_p).sum(), (p * (log_p - log_q)).sum()
    cases = [
        (Categorical(z).total, -p * (log_p + entropy)),
        (Categorical(z).log_prob(torch.tensor(1)), torch.tensor([0.0, 1.0, 0.0]) - p),
        (Categorical(z).kl(Categorical(other)), p * (log_p - log_q - kl)),
        (Categorical(other).kl(Categorical(z)), p - log_q.exp()),
    ]
    for value, true in cases:
        (slope,) = torch.autograd.grad(value, z)
        torch.testing.assert_close(slope.double(), true, rtol=1e-5, atol=1e-6)


@quick
@given(logits_of_any_kind, st.sampled_from([-64.0, -1.0, 0.5, 8.0]))
def test_a_constant_added_to_the_logits_changes_nothing(logits, constant):
    logits = torch.tensor(logits)
    shifted = logits + constant
    logits = shifted - constant  # so that the sum is exact
    for name in ("mean", "total"):
        torch.testing.assert_close(
            getattr(Categorical(shifted), name), getattr(Categorical(logits), name), rtol=2e-5, atol=1e-7
        )


@quick
@given(logits_of_any_kind, st.randoms(use_true_random=False))
def test_kl_is_never_negative_and_zero_at_home(logits, random):
    order = list(range(len(logits)))
    random.shuffle(order)
    p, q = Categorical(torch.tensor(logits)), Categorical(torch.tensor(logits[order]))
    assert p.kl(q) >= 0
    assert p.kl(p) == 0
    torch.testing.assert_close(q.total, p.total, rtol=1e-5, atol=1e-12)
