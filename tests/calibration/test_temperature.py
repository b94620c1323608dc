import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from solera.calibration import calibrated_ece, calibrated_nll, fit_temperature
from solera.metrics import accuracy, ece, nll


def sample(seed, temperature=1.0, count=400, classes=5, scale=3.0):
    """Logits, and labels drawn from softmax(logits/temperature)."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(count, classes))
    return logits, (logits / temperature + generator.gumbel(size=logits.shape)).argmax(-1)


def loss(logits, y, temperature):
    return -np.take_along_axis(log_softmax(logits / temperature, axis=-1), y[:, None], -1).mean()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), temperature=st.floats(0.3, 8.0), classes=st.integers(2, 8))
def test_temperature_is_scipys_minimum(seed, temperature, classes):
    logits, y = sample(seed, temperature, classes=classes)
    fitted = fit_temperature(logits, y)
    referee = minimize_scalar(
        lambda log_t: loss(logits, y, math.exp(log_t)), bounds=(math.log(0.01), math.log(100)), method="bounded"
    )
    assert loss(logits, y, fitted) <= referee.fun + 1e-12
    # scipy compares values, so near the minimum it sees only half the digits
    assert fitted == pytest.approx(math.exp(referee.x), rel=1e-3)


def test_the_slope_vanishes_to_rounding():
    for seed, temperature in [(0, 0.2), (1, 1.0), (2, 5.0), (3, 40.0)]:
        logits, y = sample(seed, temperature, scale=20.0 * temperature)
        p = softmax(logits / fit_temperature(logits, y), axis=-1)
        slope = ((p * logits).sum(-1) - logits[np.arange(len(y)), y]).mean()
        assert abs(slope) < 1e-10 * np.abs(logits).max()


def test_a_known_temperature_is_recovered():
    logits, y = sample(0, temperature=2.5, count=40_000)
    assert fit_temperature(logits, y) == pytest.approx(2.5, rel=0.03)


@given(seed=st.integers(0, 2**32 - 1), factor=st.floats(0.2, 5.0))
def test_scaling_logits_scales_the_temperature_and_shifting_does_nothing(seed, factor):
    logits, y = sample(seed)
    fitted = fit_temperature(logits, y)
    assert fit_temperature(factor * logits, y) == pytest.approx(factor * fitted, rel=1e-9)
    assert fit_temperature(logits + np.linspace(-50, 50, len(y))[:, None], y) == pytest.approx(fitted, rel=1e-9)
    assert fit_temperature(log_softmax(logits, axis=-1), y) == pytest.approx(fitted, rel=1e-9)


def test_the_nll_after_fitting_is_never_worse_and_accuracy_stays():
    for seed in range(20):
        logits, y = sample(seed, temperature=0.5 + seed / 5, count=50)
        p, q = softmax(logits, axis=-1), softmax(logits / fit_temperature(logits, y), axis=-1)
        assert nll(q, y) <= nll(p, y) + 1e-14
        assert accuracy(q, y) == accuracy(p, y)


def test_batch_axes_dtypes_padding_and_weights():
    logits, y = sample(4, temperature=2.0, count=60)
    logits = logits.astype(np.float32)
    fitted = fit_temperature(logits.astype(np.float64), y)
    assert fit_temperature(torch.tensor(logits), torch.tensor(y)) == pytest.approx(fitted, rel=1e-12)
    assert fit_temperature(logits.reshape(3, 20, 5), y.reshape(3, 20)) == pytest.approx(fitted, rel=1e-12)
    repeats = np.arange(60) % 3
    expected = fit_temperature(logits.repeat(repeats, axis=0), y.repeat(repeats))
    assert expected != pytest.approx(fitted, rel=1e-3)
    spoiled, labels = logits.copy(), y.copy()
    spoiled[repeats == 0], labels[repeats == 0] = np.nan, -100
    assert fit_temperature(spoiled, labels, weight=repeats) == pytest.approx(expected, rel=1e-10)


def test_impossible_classes_are_left_out():
    logits, y = sample(5, classes=4)
    padded = np.insert(logits, 2, -np.inf, axis=-1)
    assert fit_temperature(padded, y + (y >= 2)) == pytest.approx(fit_temperature(logits, y), rel=1e-12)


def test_separable_data_is_cut_to_the_lowest_temperature():
    with pytest.warns(RuntimeWarning, match=r"not inside \[0.01, 100.0\] and was cut to 0.01: use more"):
        assert fit_temperature([[3.0, 0.0], [0.0, 1.0]], [0, 1]) == 0.01
    with pytest.warns(RuntimeWarning, match=r"was cut to 0\.01"):  # the loss is 0 to rounding at every temperature
        assert fit_temperature([[1e6, 0.0], [0.0, 1e6]], [0, 1]) == 0.01


def test_logits_worse_than_chance_are_cut_to_the_highest_temperature():
    with pytest.warns(RuntimeWarning, match="was cut to 100"):
        assert fit_temperature([[3.0, 0.0], [0.0, 1.0]], [1, 0]) == 100.0


def test_logits_without_opinion_have_temperature_one():
    assert fit_temperature(np.full((4, 3), 7.0), [0, 1, 2, 0]) == 1.0


@pytest.mark.parametrize("scale", [0.1, 1.0, 600.0])
def test_hard_cases_end_at_the_minimum(scale):
    # One wrong answer among a thousand certain ones: the NLL is flat on one side and steep on the other.
    logits = np.zeros((1000, 2))
    logits[:, 0] = scale
    y = np.zeros(1000, dtype=int)
    y[0] = 1
    # softmax(z/T) must say 0.999: z/T = ln 999
    assert fit_temperature(logits, y) == pytest.approx(scale / math.log(999), rel=1e-9)


def test_calibrated_metrics_are_the_metrics_of_the_scaled_prediction():
    validation_logits, validation_y = sample(6, temperature=3.0)
    logits, y = sample(7, temperature=3.0)
    temperature = fit_temperature(validation_logits, validation_y)
    scaled = softmax(logits / temperature, axis=-1)
    inputs = (validation_logits, validation_y, logits, y)
    assert calibrated_nll(*inputs) == pytest.approx(nll(scaled, y), rel=1e-12)
    assert calibrated_ece(*inputs) == pytest.approx(ece(scaled, y), abs=1e-12)
    assert calibrated_ece(*inputs, bins=4) == pytest.approx(ece(scaled, y, 4), abs=1e-12)
    assert calibrated_nll(*inputs) < nll(softmax(logits, axis=-1), y) - 0.1
    assert calibrated_ece(*inputs) < ece(softmax(logits, axis=-1), y) - 0.1
    # whole weights are repetitions, of the validation data and of the test data alike
    first, second = np.arange(400) % 3, np.arange(400) // 7 % 4
    repeated = [column.repeat(n, axis=0) for column, n in zip(inputs, (first, first, second, second), strict=True)]
    for metric in (calibrated_nll, calibrated_ece):
        weighted = metric(*inputs, validation_weight=first, weight=second)
        assert weighted == pytest.approx(metric(*repeated), abs=1e-10)


def test_an_ensemble_is_scaled_after_averaging():
    generator = np.random.default_rng(8)
    logits, y = sample(8, temperature=2.0)
    members = logits[:, None] + 2.0 * generator.normal(size=(400, 4, 5))
    mean = softmax(members, axis=-1).mean(-2)
    referee = minimize_scalar(
        lambda log_t: loss(np.log(mean), y, math.exp(log_t)), bounds=(math.log(0.01), math.log(100)), method="bounded"
    )
    assert calibrated_nll(np.log(mean), y, np.log(mean), y) == pytest.approx(referee.fun, abs=1e-9)


def test_a_tiny_probability_does_not_become_infinite():
    validation = sample(9)
    temperature = fit_temperature(*validation)
    assert calibrated_nll(*validation, [[0.0, 5000.0]], [0]) == pytest.approx(5000.0 / temperature, rel=1e-12)


def test_errors():
    with pytest.raises(ValueError, match=r"true class at \[1\] has probability 0 at every temperature: pass logits"):
        fit_temperature([[0.0, 1.0], [0.0, -np.inf]], [0, 1])
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"logits\[0\] contains NaN or \+∞"):
            fit_temperature([[0.0, bad]], [0])
    with pytest.raises(ValueError, match=r"logits\[0\] contains NaN or \+∞, or nothing but −∞"):
        fit_temperature([[-np.inf, -np.inf]], [0])
    with pytest.raises(ValueError, match=r"y\[1\] is 2, but there are 2 classes"):
        fit_temperature([[0.0, 1.0], [0.0, 1.0]], [0, 2])
    with pytest.raises(ValueError, match=r"logits has shape \(1, 2\) but y has \(2,\)"):
        fit_temperature([[0.0, 1.0]], [0, 1])
    with pytest.raises(ValueError, match=r"logits is empty"):
        fit_temperature([], [])
