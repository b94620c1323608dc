"""Entities of tags, against seqeval (its default and its strict mode) and nervaluate."""

import gzip
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nervaluate import Evaluator
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from seqeval.scheme import BILOU, IOB2, IOBES, Entities
from sklearn.metrics import average_precision_score

from solera.data.tag_scheme import Span
from solera.metrics import (
    lenient_spans,
    precision_recall,
    span_brier,
    span_counts,
    span_counts_by_type,
    strict_spans,
)
from solera.metrics.spans import SpanCounts

NER = Path(__file__).parents[2] / "../shared/data/ner"
TYPES = ("PER", "creative-work")  # a type may hold a hyphen


def tags(prefixes):
    return st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in TYPES)])


def sentences(prefixes, count=3):
    return st.lists(st.lists(tags(prefixes), min_size=1, max_size=9), min_size=count, max_size=count)


def seqeval_lenient(rows):
    return [Span(r, a, b + 1, k) for r, row in enumerate(rows) for k, a, b in get_entities(row)]


def seqeval_strict(rows, scheme):
    return [Span(r, e.start, e.end, e.tag) for r, row in enumerate(Entities(rows, scheme).entities) for e in row]


@given(sentences("BIES"))
def test_lenient_spans_are_seqevals(rows):
    assert lenient_spans(rows) == seqeval_lenient(rows)


@given(sentences("BI"), sentences("BIES"), sentences("BILU"))
def test_strict_spans_are_seqevals(bio, bioes, bilou):
    assert strict_spans(bio) == seqeval_strict(bio, IOB2)
    assert strict_spans(bioes, "BIOES") == seqeval_strict(bioes, IOBES)
    assert strict_spans(bilou, "BIOES") == seqeval_strict(bilou, BILOU)


def assert_scores_of_seqeval_and_nervaluate(predicted, gold):
    said, true = lenient_spans(predicted), lenient_spans(gold)
    whole, each = span_counts(said, true), span_counts_by_type(said, true)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        micro = precision_recall_fscore_support(gold, predicted, average="micro")
        per_type = precision_recall_fscore_support(gold, predicted)
    assert (whole.precision, whole.recall, whole.f1) == pytest.approx(micro[:3], abs=1e-12)
    assert [counts.gold for counts in each.values()] == list(per_type[3])
    for place, name in enumerate(("precision", "recall", "f1")):
        assert [getattr(counts, name) for counts in each.values()] == pytest.approx(list(per_type[place]), abs=1e-12)
    judged = Evaluator(gold, predicted, tags=list(each), loader="list").evaluate()
    theirs = judged["overall"]["strict"]
    assert (theirs.correct, theirs.actual, theirs.possible) == whole
    for kind, counts in each.items():
        theirs = judged["entities"][kind]["strict"]
        assert (theirs.correct, theirs.actual, theirs.possible) == counts


@given(sentences("BI"), st.data())
def test_scores_are_seqevals_and_nervaluates(gold, data):
    predicted = [data.draw(st.lists(tags("BI"), min_size=len(row), max_size=len(row))) for row in gold]
    assert_scores_of_seqeval_and_nervaluate(predicted, gold)


@pytest.mark.data
@pytest.mark.parametrize("file", ["wnut17_en.dev", "btc_en.dev", "uner_ewt_en.dev", "germeval14_de.dev"])
def test_scores_on_real_sets(file):
    if not NER.exists():
        pytest.skip(f"{NER} is not there")
    with gzip.open(NER / f"{file}.conll.gz", "rt", encoding="utf-8", newline="\n") as lines:
        blocks = lines.read().strip("\n").split("\n\n")[:400]
    gold = [[line.split("\t")[1] for line in block.split("\n")] for block in blocks]
    names = sorted({tag for row in gold for tag in row})
    random = np.random.default_rng(0)
    predicted = [[str(random.choice(names)) if random.random() < 0.1 else tag for tag in row] for row in gold]
    assert lenient_spans(predicted) == seqeval_lenient(predicted)
    assert strict_spans(predicted) == seqeval_strict(predicted, IOB2)
    assert 0.3 < span_counts(lenient_spans(predicted), lenient_spans(gold)).f1 < 0.95
    assert_scores_of_seqeval_and_nervaluate(predicted, gold)


def test_nothing_predicted_and_nothing_there():
    assert SpanCounts(0, 0, 0).f1 == SpanCounts(0, 0, 3).precision == SpanCounts(0, 3, 0).recall == 0


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_precision_recall_is_counting_at_every_threshold(size, missed, seed):
    random = np.random.default_rng(seed)
    confidence = random.integers(0, 8, size) / 7  # with ties
    correct = random.random(size) < confidence
    correct[0] = True
    gold = int(correct.sum()) + missed
    curve = precision_recall(confidence, correct, gold)
    for threshold, precision, recall in zip(*curve, strict=True):
        kept = correct[confidence >= threshold]
        assert (precision, recall) == (kept.mean(), kept.sum() / gold)
    of_found = average_precision_score(correct, confidence)
    assert curve.area == pytest.approx(of_found * correct.sum() / gold, abs=1e-12)


def test_brier_by_hand():
    assert span_brier([0.9, 0.5, 0.2], [True, False, False]) == pytest.approx((0.01 + 0.25 + 0.04) / 3)


def test_refusals():
    with pytest.raises(ValueError, match="'X-PER' is neither O nor B"):
        lenient_spans([["X-PER"]])
    with pytest.raises(ValueError, match="'E-PER' of sentence 1 is not of the scheme BIO: pass scheme='BIOES'"):
        strict_spans([["O"], ["B-PER", "E-PER"]])
    with pytest.raises(ValueError, match="gold is 1, but 2 predicted entities are correct"):
        precision_recall([0.5, 0.6], [True, True], 1)
    with pytest.raises(ValueError, match=r"confidence\[1\] is 1.5, outside"):
        span_brier([0.5, 1.5], [True, False])
