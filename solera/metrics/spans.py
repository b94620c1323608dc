"""Entities: spans of tokens with a type, read from tags, and how well they are found.

Tags that break their scheme (I-X after O) are read in one of two ways: leniently, as conlleval and seqeval do by
default and nervaluate does, where any change of type and any I after O begins an entity; or strictly, as seqeval does
with mode="strict", where only a whole B I … (BIO) or B I … E or S (BIOES, BILOU) is one. On valid tags both agree.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solera.data.tag_scheme import Span, split_tag
from solera.metrics.inputs import Values, columns, unit_interval, zero_or_one
from solera.metrics.ties import cumulative_counts

Scheme = Literal["BIO", "BIOES"]
Sentences = Sequence[Sequence[str]]
_split = lru_cache(maxsize=4096)(split_tag)


def lenient_spans(sentences: Sentences) -> list[Span]:
    """The entities of each sentence's tags: one goes on until O, B, S, another type, or a token after E or S."""
    found = []
    for row, tags in enumerate(sentences):
        start, before, kind = 0, "O", ""
        for place, tag in enumerate([*tags, "O"]):
            prefix, new = _split(tag)
            goes_on = prefix in "IE" and before in "BI" and new == kind
            if before != "O" and not goes_on:
                found.append(Span(row, start, place, kind))
            if prefix != "O" and not goes_on:
                start = place
            before, kind = prefix, new
    return found


def strict_spans(sentences: Sentences, scheme: Scheme = "BIO") -> list[Span]:
    """The entities that are tagged as the scheme demands from their first token to their last; the rest is passed over.

    BIO: B-X, then any number of I-X. BIOES: S-X, or B-X, any number of I-X, and E-X. BILOU's L and U are E and S.
    """
    found, closes = [], scheme == "BIOES"
    for row, tags in enumerate(sentences):
        start, kind = -1, ""  # of the entity that is open; −1: none is
        for place, tag in enumerate([*tags, "O"]):
            prefix, new = _split(tag)
            if not closes and prefix in "ES":
                raise ValueError(f"tag {tag!r} of sentence {row} is not of the scheme BIO: pass scheme='BIOES'")
            if start >= 0 and new == kind and prefix in "IE":
                if prefix == "E":
                    found.append(Span(row, start, place + 1, kind))
                    start = -1
                continue
            if start >= 0 and not closes:
                found.append(Span(row, start, place, kind))
            start, kind = (place, new) if prefix == "B" else (-1, "")
            if prefix == "S":
                found.append(Span(row, place, place + 1, new))
    return found


class SpanCounts(NamedTuple):
    """How many entities were predicted, how many there are, and how many of them are the same: tokens and type."""

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """The share of predicted entities that are right; 0 if there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of all entities that were found; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall: 2·correct/(predicted + gold)."""
        return 2 * self.correct / (self.predicted + self.gold) if self.predicted + self.gold else 0.0


def span_counts(predicted: Iterable[Span], gold: Iterable[Span]) -> SpanCounts:
    """Of all types together (micro average)."""
    said, true = set(predicted), set(gold)
    return SpanCounts(len(said & true), len(said), len(true))


def span_counts_by_type(predicted: Iterable[Span], gold: Iterable[Span]) -> dict[str, SpanCounts]:
    """Of each type that was predicted or is there."""
    said, true = set(predicted), set(gold)
    kinds = sorted({span.kind for span in said | true})
    return {
        kind: span_counts((s for s in said if s.kind == kind), (s for s in true if s.kind == kind)) for kind in kinds
    }


def span_brier(confidence: Values, correct: Values) -> float:
    """The mean (confidence − correct)² over predicted entities; their ECE is `confidence_ece`."""
    layout, (certain, right) = columns({"confidence": confidence, "correct": correct}, None)
    return float(np.mean((unit_interval(certain, "confidence", layout) - zero_or_one(right, "correct", layout)) ** 2))


class PrecisionRecall(NamedTuple):
    """Points of a curve, from the highest threshold to the lowest: what is kept are the entities at least so sure."""

    threshold: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    @property
    def area(self) -> float:
        """Average precision Σ_t (recall_t − recall_{t−1})·precision_t, no interpolation; at most the last recall."""
        return float(np.diff(self.recall, prepend=0.0) @ self.precision)


def precision_recall(confidence: Values, correct: Values, gold: int) -> PrecisionRecall:
    """Over predicted entities by confidence, one point for each distinct one; `gold` entities were to be found.

    An entity that was never predicted is missed at every threshold: the curve ends at the recall of all predictions.
    """
    layout, (certain, right) = columns({"confidence": confidence, "correct": correct}, None)
    certain, right = unit_interval(certain, "confidence", layout), zero_or_one(right, "correct", layout)
    if gold < max(int(right.sum()), 1):
        raise ValueError(f"gold is {gold}, but {int(right.sum())} predicted entities are correct: count all there are")
    kept, found = cumulative_counts(certain, right)
    return PrecisionRecall(np.unique(certain)[::-1], found[1:] / kept[1:], found[1:] / gold)
