"""Temperature and offset against scipy, and on labels drawn from a known pair of them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from solera.calibration import Smoothing, fit_smoothing, fit_temperature
from solera.metrics import nll


def sample(seed, temperature=1.0, offset=0.0, count=3000, classes=5, scale=3.0):
    """Logits, and labels drawn from e^{z/T} + d, normalised."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(count, classes))
    weights = np.exp(logits / temperature) + offset
    y = (np.log(weights) + generator.gumbel(size=logits.shape)).argmax(-1)
    return logits, y


def loss(logits, y, temperature, log_offset):
    mean = np.logaddexp(logits / temperature, log_offset)
    return (logsumexp(mean, -1) - mean[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize(("temperature", "offset"), [(0.5, 0.3), (2.0, 2.0)])
def test_it_is_scipys_minimum_and_finds_what_the_labels_were_drawn_from(temperature, offset):
    logits, y = sample(0, temperature, offset, count=20_000)
    fitted = fit_smoothing(logits, y)
    starts = [[math.log(t), math.log(d)] for t, d in ((0.5, 1.0), (2.0, 0.01))]
    theirs = min(
        (minimize(lambda n: loss(logits, y, math.exp(n[0]), n[1]), start, method="Nelder-Mead") for start in starts),
        key=lambda found: found.fun,
    )
    assert loss(logits, y, fitted.temperature, math.log(fitted.offset)) <= theirs.fun + 1e-9
    assert fitted.temperature == pytest.approx(temperature, rel=0.08)
    assert fitted.offset == pytest.approx(offset, rel=0.2)


def test_an_offset_that_does_not_help_is_nothing_and_the_temperature_is_the_plain_one():
    logits = np.array([[2.0, 0.0]] * 10)  # one number says all: p(0) = 0.7
    y = np.array([0] * 7 + [1] * 3)
    assert fit_smoothing(logits, y) == Smoothing(fit_temperature(logits, y), 0.0)


def test_it_is_never_worse_than_a_temperature():
    for seed in range(8):
        logits, y = sample(seed, 0.5 + seed / 4, 0.2 * (seed % 3), count=200)
        fitted, plain = fit_smoothing(logits, y), fit_temperature(logits, y)
        ours, theirs = (nll(s(torch.tensor(logits)).mean, y) for s in (fitted, Smoothing(plain)))
        assert ours <= theirs + 1e-9


def test_smoothing_is_its_formula():
    logits = torch.tensor([[200.0, -3.0, 1.0], [0.0, 0.5, -300.0]], dtype=torch.double)
    mean = (logits / 2).exp() + 0.3
    torch.testing.assert_close(Smoothing(2.0, 0.3)(logits).mean, mean / mean.sum(-1, keepdim=True))
    torch.testing.assert_close(Smoothing()(logits).mean, logits.softmax(-1))


def test_whole_weights_are_repetitions_and_padding_is_not_read():
    logits, y = sample(1, 1.5, 0.5, count=400)
    repeats = np.arange(400) % 3
    expected = fit_smoothing(logits.repeat(repeats, axis=0), y.repeat(repeats))
    spoiled, labels = logits.copy(), y.copy()
    spoiled[repeats == 0], labels[repeats == 0] = np.nan, -100
    fitted = fit_smoothing(torch.tensor(spoiled), torch.tensor(labels), torch.tensor(repeats))
    assert (fitted.temperature, fitted.offset) == pytest.approx((expected.temperature, expected.offset), rel=1e-4)


def test_errors():
    with pytest.raises(ValueError, match="offset must be 0 or more, got -1"):
        Smoothing(1.0, -1.0)
    with pytest.raises(ValueError, match="temperature must be positive"):
        Smoothing(0.0)
    with pytest.raises(ValueError, match=r"logits\[0\] contains NaN"):
        fit_smoothing([[0.0, np.nan]], [0])
