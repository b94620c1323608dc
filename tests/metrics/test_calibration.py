import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.metrics import accuracy, adaptive_ece, ece, nll, top_k_ece
from solera.metrics.calibration import confidence_ece


def predictions(seed, count, classes):
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.full(classes, 0.5), size=count), generator.integers(0, classes, size=count)


def ece_by_loop(probs, y, bins):
    """The definition, in exact comparisons: (lo, hi], one pass over all rows for each bin."""
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [
            (max(row), int(np.argmax(row)) == k) for row, k in zip(probs, y, strict=True) if low < max(row) <= high
        ]
        total += abs(math.fsum(correct - confidence for confidence, correct in inside))
    return total / len(y)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 80), classes=st.integers(2, 6), bins=st.integers(1, 20))
def test_ece_is_its_definition(seed, count, classes, bins):
    probs, y = predictions(seed, count, classes)
    assert ece(probs, y, bins) == pytest.approx(ece_by_loop(probs, y, bins), abs=1e-13)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 49, 100])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(bins):
    for edge in range(math.ceil(bins / 2), bins + 1):
        for confidence in {edge / bins, np.nextafter(edge / bins, 0), min(np.nextafter(edge / bins, 2), 1.0)}:
            # A right answer far away in the same bin, or not: only the binning decides whether the gaps cancel.
            companion = (edge - 0.5) / bins
            probs = np.array([[confidence, 1 - confidence], [max(companion, 0.5), min(1 - companion, 0.5)]])
            assert ece(probs, [1, 0], bins) == pytest.approx(ece_by_loop(probs, [1, 0], bins), abs=1e-13)


def test_edges_cancel_or_not_by_hand():
    # 0.8 = 12/15 ends its bin (11/15, 12/15]; 0.75 shares it, 0.81 does not.
    assert ece([[0.8, 0.2], [0.75, 0.25]], [1, 0]) == pytest.approx(abs(-0.8 + 0.25) / 2)
    assert ece([[0.8, 0.2], [0.81, 0.19]], [1, 0]) == pytest.approx((0.8 + 0.19) / 2)


def test_certain_predictions():
    assert ece(np.eye(4), [0, 1, 2, 3]) == 0.0
    assert ece(np.eye(4), [1, 2, 3, 0]) == 1.0
    assert ece([[1.0 + 1e-7, 0.0]], [0]) == ece([[1.0009, 0.0]], [0], bins=10_000) == 0.0  # rounding counts as 1


def test_float32_is_the_float64_result_of_the_same_numbers():
    probs, y = predictions(1, 2000, 3)
    probs = probs.astype(np.float32)
    assert ece(probs, y) == pytest.approx(ece(probs.astype(np.float64), y), abs=1e-14)


@pytest.mark.parametrize("classes", [3, 20, 40])
@pytest.mark.parametrize("shared_maximum", [False, True])
def test_more_rows_than_one_block(classes, shared_maximum):
    probs, y = predictions(2, 40_000, classes)
    if shared_maximum:  # in one block only: the first of the two classes is the prediction
        probs[100], y[100] = 0.0, 2
        probs[100, [1, 2]] = 0.5
    top, confidence = probs.argmax(-1), probs.max(-1)
    b = np.searchsorted(np.arange(16) / 15, confidence)
    expected = np.abs(np.bincount(b, weights=(top == y) - confidence)).sum() / len(y)
    assert ece(probs, y) == pytest.approx(expected, abs=1e-13)
    assert ece(np.asfortranarray(probs), y) == pytest.approx(expected, abs=1e-13)
    assert accuracy(probs, y) == pytest.approx((top == y).mean(), abs=1e-15)
    assert nll(probs.T.copy().T, y) == pytest.approx(-np.log(probs[np.arange(len(y)), y]).mean(), rel=1e-12)


def test_ece_weights_are_repetitions():
    probs, y = predictions(3, 30, 3)
    repeats = np.arange(30) % 3
    assert ece(probs, y, weight=repeats) == pytest.approx(
        ece(probs.repeat(repeats, axis=0), y.repeat(repeats)), abs=1e-14
    )


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 200), tied=st.booleans(), bins=st.integers(1, 20))
def test_torchmetrics_agrees_away_from_the_edges(seed, count, tied, bins):
    from torchmetrics.functional.classification import binary_calibration_error  # slow to import

    generator = np.random.default_rng(seed)
    confidence, correct = generator.random(count), generator.random(count) < 0.6
    if tied:
        confidence = np.round(confidence, 1)
    # At an edge the definitions differ: ours belongs to the bin below, theirs to the one above.
    confidence[np.abs(confidence * bins - np.round(confidence * bins)) < 1e-9] = 0.5 / bins
    theirs = binary_calibration_error(torch.tensor(confidence), torch.tensor(correct).long(), n_bins=bins, norm="l1")
    assert confidence_ece(confidence, correct, bins) == pytest.approx(float(theirs), abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from([np.float32, np.float64]))
def test_confidences_alone_say_the_same(seed, dtype):
    probs, y = predictions(seed, 40, 3)
    probs, weight = probs.astype(dtype), np.arange(40) % 3
    columns = probs.max(-1), probs.argmax(-1) == y
    assert confidence_ece(*columns) == pytest.approx(ece(probs, y), abs=1e-14)
    assert confidence_ece(*columns, weight=weight) == pytest.approx(ece(probs, y, weight=weight), abs=1e-14)


def adaptive_by_split(confidence, correct, bins):
    order = np.argsort(confidence)
    parts = np.array_split(order, min(bins, len(order)))
    return [(len(part), abs(np.mean(correct[part]) - np.mean(confidence[part]))) for part in parts]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60), bins=st.integers(1, 25))
def test_adaptive_ece_is_its_definition_without_ties(seed, count, bins):
    generator = np.random.default_rng(seed)
    confidence, correct = generator.permutation(count) / count, generator.random(count) < 0.6
    expected = sum(size * gap for size, gap in adaptive_by_split(confidence, correct, bins)) / count
    assert adaptive_ece(confidence, correct, bins) == pytest.approx(expected, abs=1e-13)


@given(
    cells=st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=12),
    bins=st.integers(1, 8),
    shuffle=st.randoms(use_true_random=False),
)
def test_adaptive_ece_with_ties(cells, bins, shuffle):
    confidence, correct = (np.array(column, dtype=float) for column in zip(*cells, strict=True))
    # The rule written out: every element counts as correct to the degree its block is.
    shared = np.array([correct[confidence == c].mean() for c in confidence])
    expected = sum(size * gap for size, gap in adaptive_by_split(confidence, shared, bins)) / len(cells)
    value = adaptive_ece(confidence, correct, bins)
    assert value == pytest.approx(expected, abs=1e-14)
    assert 0 <= value <= 1 + 1e-15
    shuffle.shuffle(cells)
    assert adaptive_ece(*zip(*cells, strict=True), bins) == value


def test_adaptive_ece_by_hand():
    assert adaptive_ece([0.7, 0.7, 0.7, 0.7], [1, 0, 1, 1], bins=3) == pytest.approx(0.05)
    # three elements in two bins: the lower one takes two, and counts twice
    assert adaptive_ece([0.1, 0.2, 0.9], [0, 0, 0], bins=2) == pytest.approx((2 * 0.15 + 0.9) / 3)
    assert adaptive_ece([0.3], [1], bins=10) == pytest.approx(0.7)


def pairs_by_loop(probs, y, k):
    pairs = []
    for row, label in zip(probs, y, strict=True):
        ranked = sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
        pairs += [(row[c], float(c == label)) for c in ranked]
    confidence, correct = (np.array(column) for column in zip(*pairs, strict=True))
    return confidence, np.array([correct[confidence == c].mean() for c in confidence])


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30), k=st.integers(1, 6), coarse=st.booleans())
def test_top_k_ece_is_its_definition(seed, count, k, coarse):
    generator = np.random.default_rng(seed)
    probs, y = predictions(seed, count, 6)
    if coarse:  # ties inside rows and between them
        probs = generator.multinomial(4, np.full(6, 1 / 6), size=count) / 4
    expected = np.mean([gap for _, gap in adaptive_by_split(*pairs_by_loop(probs, y, k), 10)])
    assert top_k_ece(probs, y, k) == pytest.approx(expected, abs=1e-13)
    order = generator.permutation(count)
    assert top_k_ece(probs[order], y[order], k) == top_k_ece(probs, y, k)


def test_top_1_ece_is_the_adaptive_error_of_the_confidence():
    probs, y = predictions(4, 100, 5)
    assert top_k_ece(probs, y, 1, bins=10) == pytest.approx(adaptive_ece(probs.max(-1), probs.argmax(-1) == y, 10))


def test_bins_weigh_the_same_in_top_k_ece():
    # Three pairs in two bins: (0.6, 0.7) and (0.8). Count weights would give (0.65·2 + 0.8)/3.
    assert top_k_ece([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2]], [1, 1, 1], k=1, bins=2) == pytest.approx((0.65 + 0.8) / 2)


@pytest.mark.parametrize("bins", [0, -3])
def test_bins_must_be_a_positive_whole_number(bins):
    for metric in (lambda: ece([[0.5, 0.5]], [0], bins), lambda: adaptive_ece([0.5], [1], bins)):
        with pytest.raises(ValueError, match=f"bins is {bins}: pass a whole number, at least 1"):
            metric()


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_fit_the_classes(k):
    with pytest.raises(ValueError, match=f"k is {k}: with 3 classes pass a whole number from 1 to 3"):
        top_k_ece([[0.2, 0.3, 0.5]], [0], k)
