import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.metrics import auroc, prediction_rejection_ratio, rejection_curve

tied = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 2.0]), st.booleans()), min_size=0, max_size=20).map(
    lambda rows: [*rows, (0.1, True), (0.5, False)]
)


def split(rows):
    uncertainty, error = zip(*rows, strict=True)
    return np.array(uncertainty), np.array(error)


def errors_left(error_in_order_of_rejection):
    return np.append(np.cumsum(np.asarray(error_in_order_of_rejection)[::-1])[::-1], 0.0)


def ratio_by_areas(uncertainty, error):
    """Three curves over N + 1 points and their trapezoids; a tied block rejects its mean error again and again."""
    shared = np.array([error[uncertainty == u].mean() for u in uncertainty])
    model = errors_left(shared[np.argsort(-uncertainty, kind="stable")])
    oracle = errors_left(np.sort(error.astype(float))[::-1])
    random = np.linspace(error.sum(), 0, len(error) + 1)
    return np.trapezoid(random - model) / np.trapezoid(random - oracle)


@given(tied, st.randoms(use_true_random=False))
def test_ratio_is_its_definition(rows, shuffle):
    uncertainty, error = split(rows)
    value = prediction_rejection_ratio(uncertainty, error)
    assert value == pytest.approx(ratio_by_areas(uncertainty, error), abs=1e-13)
    assert value == pytest.approx(2 * auroc(uncertainty, error) - 1, abs=1e-15)
    assert -1 <= value <= 1
    assert prediction_rejection_ratio(-uncertainty, error) == pytest.approx(-value, abs=1e-15)
    assert prediction_rejection_ratio(np.exp(uncertainty), error) == value
    shuffle.shuffle(rows)
    assert prediction_rejection_ratio(*split(rows)) == value


def test_ties_are_the_mean_over_all_orders_of_the_block():
    uncertainty, error = np.array([3, 2, 2, 2, 1, 0]), np.array([0, 1, 0, 1, 1, 0])
    orders = [
        np.argsort(-uncertainty - 0.1 * np.array([0, *order, 0, 0])) for order in itertools.permutations((1, 2, 3))
    ]
    curves = [errors_left(error[order]) for order in orders]
    fraction, left = rejection_curve(uncertainty, error)
    assert fraction == pytest.approx(np.arange(7) / 6)
    assert left == pytest.approx(np.mean(curves, 0) / 6)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1.5, math.inf]), st.booleans()), min_size=1, max_size=15
    ),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_curve_rejects_blocks_from_the_top(rows, dtype):
    uncertainty, error = split(rows)
    shared = np.array([error[uncertainty == u].mean() for u in uncertainty])
    expected = errors_left(shared[np.argsort(-uncertainty, kind="stable")])
    _, left = rejection_curve(uncertainty.astype(dtype), error)
    assert left == pytest.approx(expected / len(rows), abs=1e-14)


def test_oracle_perverse_and_useless_orders():
    error = torch.tensor([1, 1, 0, 0, 0])
    assert prediction_rejection_ratio(error.float(), error) == 1.0
    assert prediction_rejection_ratio(-error.float(), error) == -1.0
    assert prediction_rejection_ratio(torch.zeros(5), error) == 0.0
    assert prediction_rejection_ratio([0.1, 0.2, 0.3], [False, True, False]) == 0.0


def test_curve_of_an_oracle_falls_at_once():
    fraction, left = rejection_curve([5, 4, 1, 2], [1, 1, 0, 0])
    assert fraction.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert left.tolist() == [0.5, 0.25, 0, 0, 0]


@given(tied)
def test_curve_starts_at_the_error_rate_and_never_rises(rows):
    uncertainty, error = split(rows)
    fraction, left = rejection_curve(uncertainty, error)
    assert len(fraction) == len(left) == len(rows) + 1
    assert left[0] == pytest.approx(error.mean())
    assert left[-1] == 0
    assert (np.diff(left) <= 1e-15).all()


def test_nothing_to_tell_apart_is_nan_with_a_warning():
    with pytest.warns(RuntimeWarning, match="rejection ratio is NaN: there are no errors among 3"):
        assert math.isnan(prediction_rejection_ratio([1, 2, 3], [0, 0, 0]))
    with pytest.warns(RuntimeWarning, match="rejection ratio is NaN: every example is an error among 1"):
        assert math.isnan(prediction_rejection_ratio([1], [1]))


def test_padding_is_dropped():
    uncertainty, error, weight = [[0.3, np.nan], [0.1, 0.2]], [[0, -100], [0, 1]], [[1, 0], [1, 1]]
    assert prediction_rejection_ratio(uncertainty, error, weight=weight) == 0.0
    assert rejection_curve(uncertainty, error, weight=weight)[1] == pytest.approx([1 / 3, 1 / 3, 0, 0])


def test_errors_must_be_zero_or_one():
    with pytest.raises(ValueError, match=r"error\[1\] is 0.3: pass only 0 and 1"):
        prediction_rejection_ratio([1, 2], [0.0, 0.3])
