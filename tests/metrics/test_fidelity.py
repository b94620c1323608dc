import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy, spearmanr

from solera.metrics import agreement, mean_absolute_difference, mean_kl, rank_correlation

seeds = st.integers(0, 2**32 - 1)


def two(seed, count=20, classes=4):
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.ones(classes), size=(2, count))


@given(seeds)
def test_mean_kl_and_agreement_by_referees(seed):
    teacher, student = two(seed)
    assert mean_kl(teacher, student) == pytest.approx(entropy(teacher, student, axis=-1).mean(), rel=1e-10)
    same = np.mean([np.argmax(p) == np.argmax(q) for p, q in zip(teacher, student, strict=True)])
    assert agreement(teacher, student) == agreement(student, teacher) == pytest.approx(same)
    assert (mean_kl(teacher, teacher), agreement(teacher, teacher)) == (0.0, 1.0)


def test_zero_probabilities():
    assert mean_kl([[0.0, 1.0]], [[0.5, 0.5]]) == pytest.approx(math.log(2))
    assert mean_kl([[0.0, 1.0]], [[0.0, 1.0]]) == 0.0
    assert mean_kl([[0.5, 0.5]], [[0.0, 1.0]]) == math.inf
    assert mean_kl([[0.5, 0.5]], [[5e-324, 1.0]]) == pytest.approx(
        0.5 * math.log(0.5) - 0.5 * math.log(5e-324) + 0.5 * math.log(0.5)
    )


def test_a_small_divergence_survives_float32_rows():
    logits = torch.randn(500, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = logits + 1e-4 * torch.randn(500, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = mean_kl(logits.softmax(-1), moved.softmax(-1))
    assert 1e-10 < exact < 1e-7
    assert mean_kl(logits.float().softmax(-1), moved.float().softmax(-1)) == pytest.approx(exact, rel=0.01)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=0, max_size=20))
def test_rank_correlation_is_scipys_with_ties(rows):
    left, right = (np.array(column, dtype=float) for column in zip(*rows, (0, 1), (1, 0), strict=True))
    value = rank_correlation(left, right)
    assert value == pytest.approx(spearmanr(left, right).statistic, abs=1e-12)
    assert -1 - 1e-15 <= value <= 1 + 1e-15
    assert rank_correlation(np.exp(left), -right) == pytest.approx(-value, abs=1e-15)
    assert rank_correlation(left, left**3) == 1.0
    assert rank_correlation(left, -left) == -1.0


def test_a_constant_column_has_no_order():
    with pytest.warns(RuntimeWarning, match="rank correlation is NaN: student is constant"):
        assert math.isnan(rank_correlation([1, 2], [3, 3]))
    with pytest.warns(RuntimeWarning, match="rank correlation is NaN: teacher is constant"):
        assert math.isnan(rank_correlation([1], [3]))


def test_mean_absolute_difference():
    assert mean_absolute_difference(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [[1, 0], [6, 4]]) == pytest.approx(1.25)
    assert mean_absolute_difference(np.uint8([1]), np.uint8([3])) == 2.0  # not 254
    assert mean_absolute_difference([1, 2], [2, 5], weight=[3, 1]) == pytest.approx(1.5)


def test_padding_is_dropped():
    teacher, student = two(7)
    weight = np.arange(20) % 4 > 0
    spoiled = student.copy()
    spoiled[~weight] = 17.0
    for metric in (agreement, mean_kl):
        assert metric(teacher, spoiled, weight=weight) == pytest.approx(metric(teacher[weight], student[weight]))
    for metric in (rank_correlation, mean_absolute_difference):
        expected = metric(teacher[weight, 0], student[weight, 0])
        assert metric(teacher[:, 0], spoiled[:, 0], weight=weight) == pytest.approx(expected)


def test_errors_name_the_side():
    with pytest.raises(ValueError, match=r"p_student\[1\] sums to 0.9, not 1"):
        mean_kl([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(ValueError, match=r"p_teacher has shape \(1, 2\) but p_student has \(1, 3\)"):
        agreement([[0.5, 0.5]], [[0.2, 0.3, 0.5]])
    with pytest.raises(ValueError, match=r"teacher has shape \(2,\) but student has \(3,\)"):
        rank_correlation([1, 2], [1, 2, 3])
