"""What every metric says about bad input, and that padding is as good as absent."""

import inspect

import numpy as np
import pytest
import torch

import solera.metrics
from solera.metrics import (
    accuracy,
    adaptive_ece,
    aupr,
    auroc,
    brier,
    ece,
    fpr_at_tpr,
    nll,
    prediction_rejection_ratio,
    top_k_ece,
)


def top_2_ece(probs, y, weight=None):
    return top_k_ece(probs, y, 2, weight=weight)


def adaptive_5_ece(confidence, correct, weight=None):
    return adaptive_ece(confidence, correct, 5, weight=weight)


SPANS = "solera.metrics.spans"  # lists of entities have no padding
OF_ROWS = [accuracy, nll, brier, ece, top_2_ece]
OF_COLUMNS = [adaptive_5_ece, auroc, aupr, fpr_at_tpr, prediction_rejection_ratio]


def test_every_metric_takes_weights_last():
    names = [name for name in solera.metrics.__all__ if getattr(solera.metrics, name).__module__ != SPANS]
    for name in names:
        assert list(inspect.signature(getattr(solera.metrics, name)).parameters)[-1] == "weight", name


@pytest.mark.parametrize("metric", OF_ROWS)
def test_padding_of_rows_is_dropped(metric):
    generator = np.random.default_rng(0)
    probs, y = generator.dirichlet(np.ones(4), size=(3, 10)), generator.integers(0, 4, size=(3, 10))
    weight = (np.arange(10) < np.array([[10], [7], [1]])).astype(float)
    expected = metric(probs[weight > 0], y[weight > 0])
    assert expected != pytest.approx(metric(probs, y), abs=1e-6)  # otherwise this test shows nothing
    probs[weight == 0], y[weight == 0] = np.nan, -100
    assert metric(probs, y, weight=weight) == pytest.approx(expected, abs=1e-15)
    tensors = torch.tensor(probs), torch.tensor(y), torch.tensor(weight, dtype=torch.bool)
    assert metric(*tensors[:2], weight=tensors[2]) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("metric", OF_COLUMNS)
def test_padding_of_columns_is_dropped(metric):
    generator = np.random.default_rng(1)
    positive = generator.integers(0, 2, size=(3, 10))
    score = (generator.random((3, 10)) + 0.4 * positive) / 1.4
    weight = np.arange(10) < np.array([[10], [7], [2]])
    expected = metric(score[weight], positive[weight])
    assert expected != pytest.approx(metric(score, positive), abs=1e-6)
    score[~weight], positive[~weight] = np.nan, -100
    assert metric(score, positive, weight=weight) == expected
    assert metric(torch.tensor(score), torch.tensor(positive), weight=torch.tensor(weight) * 0.3) == expected


@pytest.mark.parametrize("metric", OF_ROWS)
@pytest.mark.parametrize(
    ("probs", "y", "message"),
    [
        (
            [[0.5, 0.5], [2.0, -1.0]],
            [0, 0],
            r"probs\[1\] contains -1.0, outside \[0, 1\]: pass probabilities, not logits",
        ),
        ([[0.5, 0.5], [0.5, 0.502]], [0, 0], r"probs\[1\] sums to 1.002, not 1: pass probabilities, not logits"),
        ([[3.0, 4.0]], [0], r"probs\[0\] sums to 7, not 1"),
        ([[np.inf, 0.0]], [0], r"probs\[0\] sums to inf, not 1"),
        ([[0.5, 0.5], [np.nan, 0.5]], [0, 0], r"probs\[1\] contains NaN"),
        ([[0.5, 0.5], [0.5, 0.5]], [1, 2], r"y\[1\] is 2, but there are 2 classes: labels must be 0 to 1"),
        ([[[0.5, 0.5], [0.5, 0.5]]], [[0, -1]], r"y\[0, 1\] is -1, but there are 2 classes"),
        ([[0.5, 0.5]], [0.0], r"y has type float64: pass whole class indices"),
        ([[0.5, 0.5]], [0, 1], r"probs has shape \(1, 2\) but y has \(2,\)"),
        ([[0.5, 0.5]], [[0]], r"probs has shape \(1, 2\) but y has \(1, 1\)"),
        ([[0.5, 0.5], [1.0]], [0, 0], r"probs is ragged: pad it"),
        (np.zeros((0, 2)), [], r"probs is empty \(shape \(0, 2\)\)"),
        ([], [], r"probs is empty \(shape \(0,\)\)"),
        ([["a", "b"]], [0], r"probs has type <U1: pass numbers"),
    ],
)
def test_bad_rows(metric, probs, y, message):
    with pytest.raises(ValueError, match=message):
        metric(probs, y)


@pytest.mark.parametrize("metric", OF_COLUMNS)
def test_bad_columns(metric):
    first, second = list(inspect.signature(metric).parameters)[:2]
    with pytest.raises(ValueError, match=rf"{first}\[1\] is nan|{first}\[1\] is NaN: remove the element"):
        metric([0.5, np.nan], [0, 1])
    with pytest.raises(ValueError, match=rf"{second}\[0\] is 3: pass only 0 and 1"):
        metric([0.5, 0.1], [3, 1])
    with pytest.raises(ValueError, match=rf"{first} has shape \(2,\) but {second} has \(3,\)"):
        metric([0.5, 0.1], [0, 1, 1])
    with pytest.raises(ValueError, match=rf"{first} is empty \(shape \(0,\)\)"):
        metric([], [])


@pytest.mark.parametrize("metric", [*OF_ROWS, *OF_COLUMNS])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, -1], r"weight\[1\] is -1.0: weights must be finite and at least 0"),
        ([np.nan, 1], r"weight\[0\] is nan"),
        ([np.inf, 1], r"weight\[0\] is inf"),
        ([0, 0], r"every weight is 0"),
        ([1, 1, 1], r"weight has shape \(3,\), but \w+ has \(2,\)"),
    ],
)
def test_bad_weights(metric, weight, message):
    inputs = ([[0.5, 0.5], [0.5, 0.5]], [0, 1]) if metric in OF_ROWS else ([0.1, 0.9], [0, 1])
    with pytest.raises(ValueError, match=message):
        metric(*inputs, weight=weight)


def test_positions_are_the_callers_with_padding_and_in_later_blocks():
    probs, y = np.full((3, 20_000, 3), 1 / 3), np.zeros((3, 20_000), dtype=int)
    probs[2, 6998, 1] = 0.9
    y[0, :5] = -100
    with pytest.raises(ValueError, match=r"probs\[2, 6998\] sums to 1.56667, not 1"):
        nll(probs, y, weight=y >= 0)


def test_confidence_is_a_probability():
    with pytest.raises(ValueError, match=r"confidence\[1\] is 1.1, outside \[0, 1\]: pass probabilities, not logits"):
        adaptive_ece([0.2, 1.1], [0, 1], 5)
    with pytest.raises(ValueError, match=r"confidence\[0\] is -0.1, outside"):
        adaptive_ece([-0.1, 1.0], [0, 1], 5)
    assert adaptive_ece([1.0 + 1e-7], [1], 5) == 0.0


def test_sums_may_be_off_by_rounding_only():
    assert accuracy([[0.5, 0.5009]], [1]) == 1.0
    with pytest.raises(ValueError, match=r"sums to 0\.9989"):
        accuracy([[0.5, 0.4989]], [0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=dtype)
    assert brier(probs, torch.tensor([1, 0])) == pytest.approx((2 * 0.0625 + 0.5) / 2)
