import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.metrics import adaptive_ece, balanced_brier, balanced_ece, stratified_brier


def cells(seed, tokens=60, types=3):
    """Distinct confidences within each type, few gold labels, the last type without any."""
    generator = np.random.default_rng(seed)
    confidence = np.stack([generator.permutation(tokens) / tokens for _ in range(types)], -1)
    label = generator.random((tokens, types)) < 0.2 * confidence + 0.05
    label[:, -1] = False
    label[0, 0] = True
    return confidence, label


def top_cells(confidence, label):
    """Per type with gold cells: weight 2N and the 2N most confident cells."""
    for c, gold in zip(confidence.T, label.T, strict=True):
        kept = 2 * int(gold.sum())
        if kept:
            top = np.argsort(-c, kind="stable")[:kept]
            yield kept, c[top], gold[top]


@given(seed=st.integers(0, 2**32 - 1))
def test_balanced_scores_are_their_definitions(seed):
    confidence, label = cells(seed)
    types = list(top_cells(confidence, label))
    total = sum(kept for kept, _, _ in types)
    squares = sum(kept * np.mean((c - gold) ** 2) for kept, c, gold in types) / total
    gaps = sum(kept * adaptive_ece(c, gold, 20) for kept, c, gold in types) / total
    assert balanced_brier(confidence, label) == pytest.approx(squares, abs=1e-13)
    assert balanced_ece(confidence, label) == pytest.approx(gaps, abs=1e-13)


@given(seed=st.integers(0, 2**32 - 1))
def test_stratified_brier_is_its_definition(seed):
    confidence, label = cells(seed)
    positive, negative = stratified_brier(torch.tensor(confidence), torch.tensor(label))
    assert positive == pytest.approx(np.mean([(1 - c) ** 2 for c in confidence[label]]))
    assert negative == pytest.approx(np.mean([c**2 for c in confidence[~label]]))
    assert stratified_brier(1 - confidence, ~label) == pytest.approx((negative, positive))


def test_by_hand():
    confidence = np.array([[0.9, 0.1], [0.6, 0.2], [0.5, 0.0], [0.1, 0.3]])
    label = np.array([[1, 0], [0, 0], [0, 0], [0, 0]])
    # one gold cell: the two most confident of the first type (0.9 gold, 0.6 not); the second type has none
    assert balanced_brier(confidence, label) == pytest.approx((0.01 + 0.36) / 2)
    assert balanced_ece(confidence, label) == pytest.approx((0.1 + 0.6) / 2)  # two cells, two bins
    assert balanced_ece(confidence, label, bins=1) == pytest.approx(abs(0.5 - 0.75))
    assert stratified_brier(confidence, label) == pytest.approx((0.01, (0.36 + 0.25 + 0.01 + 0.01 + 0.04 + 0.09) / 7))


def test_fewer_tokens_than_twice_the_gold_count_keeps_all_cells_and_the_weight():
    confidence, label = np.array([[0.9, 0.8], [0.7, 0.3], [0.2, 0.1]]), np.array([[1, 1], [1, 0], [1, 0]])
    first = np.mean([0.01, 0.09, 0.64])  # N = 3: all three cells, weight 6
    second = np.mean([0.04, 0.09])  # N = 1: two cells, weight 2
    assert balanced_brier(confidence, label) == pytest.approx((6 * first + 2 * second) / 8)


def test_a_block_tied_at_the_cut_enters_as_its_average():
    # N = 1, so two cells are kept: 0.9 and one of the three tied at 0.5, of which one third is gold.
    confidence, label = [0.9, 0.5, 0.5, 0.5], [0, 1, 0, 0]
    assert balanced_brier(confidence, label) == pytest.approx((0.81 + 0.25) / 2)
    assert balanced_ece(confidence, label) == pytest.approx((0.9 + (0.5 - 1 / 3)) / 2)


@given(
    rows=st.lists(st.tuples(st.sampled_from([0.0, 0.4, 1.0]), st.booleans()), min_size=1, max_size=15),
    shuffle=st.randoms(use_true_random=False),
)
def test_order_never_matters_and_ties_average_over_all_orders(rows, shuffle):
    rows.append((0.4, True))
    confidence, label = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    values = balanced_brier(confidence, label), balanced_ece(confidence, label, bins=3)
    shuffle.shuffle(rows)
    assert (balanced_brier(*zip(*rows, strict=True)), balanced_ece(*zip(*rows, strict=True), bins=3)) == values
    # The tie rule is the expectation over the random order of a block: cell i is kept with probability `share`.
    kept = min(2 * int(label.sum()), len(label))
    above, tied = (confidence[:, None] < confidence).sum(-1), (confidence[:, None] == confidence).sum(-1)
    share = np.clip((kept - above) / tied, 0, 1)
    assert values[0] == pytest.approx((share * (confidence - label) ** 2).sum() / kept, abs=1e-14)


def test_padding_is_per_token():
    confidence, label = cells(3)
    weight = np.arange(60) % 3 > 0
    spoiled = confidence.copy()
    spoiled[~weight] = np.nan
    batch = (4, 15)
    for metric in (stratified_brier, balanced_brier, balanced_ece):
        expected = metric(confidence[weight], label[weight])
        assert metric(spoiled, label, weight=weight) == pytest.approx(expected, abs=1e-15)
        folded = metric(spoiled.reshape(*batch, 3), label.reshape(*batch, 3), weight=weight.reshape(batch))
        assert folded == pytest.approx(expected, abs=1e-15)
    one_type = balanced_brier(spoiled[:, 0], label[:, 0], weight=weight)
    assert one_type == balanced_brier(confidence[weight, :1], label[weight, :1])


def test_stratified_weights_are_repetitions():
    confidence, label = cells(4)
    repeats = np.arange(60) % 4
    expected = stratified_brier(confidence.repeat(repeats, axis=0), label.repeat(repeats, axis=0))
    assert stratified_brier(confidence, label, weight=repeats) == pytest.approx(expected)


def test_what_is_not_there_is_nan_with_a_warning():
    with pytest.warns(RuntimeWarning, match=r"BS\+ is NaN: no cell has label 1"):
        positive, negative = stratified_brier([0.5, 0.2], [0, 0])
    assert math.isnan(positive)
    assert negative == pytest.approx(0.145)
    with pytest.warns(RuntimeWarning, match="BS− is NaN: no cell has label 0"):
        assert math.isnan(stratified_brier([0.5], [1])[1])
    with pytest.warns(RuntimeWarning, match="balanced score is NaN: no cell has label 1"):
        assert math.isnan(balanced_brier([[0.5, 0.2]], [[0, 0]]))


def test_errors_say_what_and_where():
    with pytest.raises(ValueError, match=r"confidence has shape \(1, 2\) but label has \(2,\)"):
        balanced_brier([[0.1, 0.2]], [0, 1])
    with pytest.raises(
        ValueError, match=r"weight has shape \(2,\), but the tokens have \(1,\): pass one weight per token"
    ):
        balanced_brier([[0.1, 0.2]], [[0, 1]], weight=[1, 1])
    with pytest.raises(ValueError, match=r"confidence\[1, 0\] is 1.5, outside \[0, 1\]: pass probabilities"):
        stratified_brier([[0.1], [1.5]], [[0], [1]])
    with pytest.raises(ValueError, match=r"label\[1\] is 2: pass only 0 and 1"):
        balanced_ece([0.1, 0.5], [0, 2])
