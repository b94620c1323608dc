import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from solera.metrics import aupr, auroc, fpr_at_tpr

tied_scores = st.lists(
    st.tuples(st.sampled_from([-np.inf, -2.0, 0.0, 1e-300, 0.5, 3.0, np.inf]), st.booleans()), min_size=1, max_size=25
).map(lambda rows: [*rows, (0.5, True), (0.5, False)])


def split(rows):
    score, positive = zip(*rows, strict=True)
    return np.array(score), np.array(positive)


@given(tied_scores)
def test_auroc_is_the_share_of_pairs_in_order(rows):
    score, positive = split(rows)
    pairs = list(itertools.product(score[positive], score[~positive]))
    wins = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs)
    assert auroc(score, positive) == pytest.approx(wins / len(pairs), abs=1e-15)


@given(tied_scores)
def test_aupr_and_fpr_by_thresholds(rows):
    score, positive = split(rows)
    thresholds = sorted(set(score), reverse=True)
    recall, area = 0.0, 0.0
    for threshold in thresholds:
        flagged = score >= threshold
        area += (flagged[positive].mean() - recall) * positive[flagged].mean()
        recall = flagged[positive].mean()
    assert aupr(score, positive) == pytest.approx(area, abs=1e-14)
    for tpr in (0.01, 0.5, 0.95, 1.0):
        rates = [(score[~positive] >= t).mean() for t in thresholds if (score[positive] >= t).mean() >= tpr]
        assert fpr_at_tpr(score, positive, tpr) == pytest.approx(rates[0], abs=1e-15)


EDGES = [-np.inf, -3.5, -1e-45, -0.0, 0.0, 1e-45, 1.0, float(np.nextafter(np.float32(1), np.float32(2))), np.inf]


def share_of_pairs(score, positive):
    """Every positive against every negative, ties by half, in whole numbers."""
    high, low = score[positive][:, None], score[~positive]
    return (2 * int((high > low).sum()) + int((high == low).sum())) / (2 * high.shape[0] * len(low))


@given(
    rows=st.lists(st.tuples(st.sampled_from(EDGES), st.booleans()), min_size=1, max_size=30),
    dtype=st.sampled_from([np.float32, np.float64, np.longdouble, ">f4", ">f8"]),
)
def test_signs_zeros_and_infinities_of_every_type(rows, dtype):
    score, positive = split([*rows, (-0.0, True), (0.0, False)])
    score = score.astype(dtype)
    assert auroc(score, positive) == share_of_pairs(score, positive)
    finite = np.searchsorted(np.unique(score), score)  # ranks: scikit-learn refuses infinities
    assert auroc(score, positive) == pytest.approx(roc_auc_score(positive, finite), abs=1e-14)
    assert aupr(score, positive) == pytest.approx(average_precision_score(positive, finite), abs=1e-14)


@given(
    values=st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.booleans()), min_size=1, max_size=20),
    largest=st.sampled_from([np.int8, np.uint8, np.int64, np.uint64]).map(np.iinfo),
)
def test_whole_numbers_that_no_float_tells_apart(values, largest):
    below, positive = split([*values, (0, True), (0, False)])
    score = np.array([largest.max - int(step) for step in below], dtype=largest.dtype)
    assert auroc(score, positive) == share_of_pairs(score, positive)
    if largest.min < 0:
        assert auroc(-score, positive) == pytest.approx(1 - auroc(score, positive), abs=1e-15)


def test_a_column_of_a_larger_array_is_read_as_it_is():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(50, 3)).round(1)
    positive = generator.random(50) < 0.4
    kept = table.copy()
    assert auroc(table[::-1, 1], positive) == share_of_pairs(table[::-1, 1], positive)
    assert (table == kept).all()


@pytest.mark.parametrize("levels", [None, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scikit_learn_agrees(levels, dtype):
    generator = np.random.default_rng(5)
    positive = generator.random(3000) < 0.1
    score = (generator.normal(size=3000) + positive).astype(dtype)
    score = score if levels is None else np.round(score * levels) / levels
    assert auroc(torch.tensor(score), torch.tensor(positive)) == pytest.approx(
        roc_auc_score(positive, score), abs=1e-13
    )
    assert aupr(score, positive.astype(int)) == pytest.approx(average_precision_score(positive, score), abs=1e-13)
    false, true, _ = roc_curve(positive, score, drop_intermediate=False)
    assert fpr_at_tpr(score, positive.astype(float)) == pytest.approx(false[np.argmax(true >= 0.95)], abs=1e-15)


@given(tied_scores, st.randoms(use_true_random=False))
def test_detection_is_invariant(rows, shuffle):
    score, positive = split(rows)
    values = [metric(score, positive) for metric in (auroc, aupr, fpr_at_tpr)]
    assert all(0 <= value <= 1 for value in values)
    assert auroc(-score, positive) == pytest.approx(1 - values[0], abs=1e-15)
    assert auroc(score, ~positive) == pytest.approx(1 - values[0], abs=1e-15)
    for monotone in (np.searchsorted(np.unique(score), score), np.arctan(score)):
        if len(set(monotone)) == len(set(score)):  # arctan may round two scores into one
            assert [metric(monotone, positive) for metric in (auroc, aupr, fpr_at_tpr)] == values
    shuffle.shuffle(rows)
    assert [metric(*split(rows)) for metric in (auroc, aupr, fpr_at_tpr)] == values


def test_extremes_by_hand():
    assert [m([3, 2, 1, 0], [1, 1, 0, 0]) for m in (auroc, aupr, fpr_at_tpr)] == [1.0, 1.0, 0.0]
    assert [m([0, 1, 2, 3], [1, 1, 0, 0]) for m in (auroc, fpr_at_tpr)] == [0.0, 1.0]
    assert aupr([0, 1, 2, 3], [1, 1, 0, 0]) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert [m([7, 7, 7, 7], [1, 0, 0, 0]) for m in (auroc, aupr, fpr_at_tpr)] == [0.5, 0.25, 1.0]
    assert aupr([0.3], [True]) == 1.0
    # 19 of 20 positives are exactly 95 %: the twentieth, below the only negative, need not be found
    assert fpr_at_tpr([*range(2, 21), 0, 1], [1] * 20 + [0]) == 0.0


def test_one_class_is_an_error_that_names_the_missing_one():
    for metric in (auroc, fpr_at_tpr):
        with pytest.raises(ValueError, match="no negative among 2 elements: pass scores of both classes"):
            metric([0.1, 0.2], [1, 1])
    for metric in (auroc, aupr, fpr_at_tpr):
        with pytest.raises(ValueError, match="no positive among 2 elements: pass scores of both classes"):
            metric([0.1, 0.2], [0, 0])


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_must_be_a_rate(tpr):
    with pytest.raises(ValueError, match=f"tpr is {tpr}: pass a rate above 0 and at most 1"):
        fpr_at_tpr([1, 0], [1, 0], tpr)
