import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from solera.metrics import accuracy, brier, nll


def predictions(seed, count=40, classes=5, dtype=np.float64):
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(classes, 0.5), size=count).astype(dtype)
    return probs, generator.integers(0, classes, size=count)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60), classes=st.integers(2, 7))
def test_scores_are_scikit_learns(seed, count, classes):
    probs, y = predictions(seed, count, classes)
    assert accuracy(probs, y) == pytest.approx(accuracy_score(y, probs.argmax(-1)), abs=1e-15)
    assert nll(probs, y) == pytest.approx(log_loss(y, probs, labels=range(classes)), rel=1e-12)
    loop = sum((p - (k == label)) ** 2 for row, label in zip(probs, y, strict=True) for k, p in enumerate(row))
    assert brier(probs, y) == pytest.approx(loop / count, rel=1e-12)


def test_scores_of_certain_predictions():
    certain = np.eye(3)
    assert (accuracy(certain, [0, 1, 2]), nll(certain, [0, 1, 2]), brier(certain, [0, 1, 2])) == (1.0, 0.0, 0.0)
    assert (accuracy(certain, [1, 2, 0]), nll(certain, [1, 2, 0]), brier(certain, [1, 2, 0])) == (0.0, math.inf, 2.0)
    assert nll(certain, [0, 1, 0]) == math.inf


def test_equally_probable_classes_predict_the_first():
    assert accuracy([[0.4, 0.2, 0.4], [0.4, 0.2, 0.4]], [0, 2]) == 0.5


def test_a_tiny_brier_score_is_not_lost_in_a_cancellation():
    assert brier([[1e-12, 1.0]], [1]) == pytest.approx(1e-24, rel=1e-12)


@pytest.mark.parametrize("score", [accuracy, nll, brier])
def test_lists_arrays_tensors_and_batch_axes_are_the_same(score):
    probs, y = predictions(0, count=24, dtype=np.float32)
    expected = score(probs.astype(np.float64), y)
    tensor = torch.tensor(probs, requires_grad=True)
    assert isinstance(score(tensor, torch.tensor(y)), float)
    for given_probs, given_y in [
        (probs, y),
        (probs.tolist(), y.tolist()),
        (tensor, torch.tensor(y)),
        (probs.reshape(2, 3, 4, 5), y.reshape(2, 3, 4)),
        (np.asfortranarray(probs), y.astype(np.uint8)),
    ]:
        assert score(given_probs, given_y) == pytest.approx(expected, rel=1e-14)
    assert score(probs[0], y[0]) == pytest.approx(score(probs[:1], y[:1]))


@pytest.mark.parametrize("score", [accuracy, nll, brier])
def test_scores_leave_the_inputs_alone(score):
    probs, y = predictions(1)
    before = probs.copy()
    score(probs, y)
    assert np.array_equal(probs, before)


@pytest.mark.parametrize("score", [accuracy, nll, brier])
def test_a_whole_weight_is_a_repetition(score):
    probs, y = predictions(2, count=12)
    repeats = np.arange(12) % 4
    expected = score(probs.repeat(repeats, axis=0), y.repeat(repeats))
    assert score(probs, y, weight=repeats) == pytest.approx(expected, rel=1e-14)
