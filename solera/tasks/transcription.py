"""Transcriptions: what a model heard, beside what was said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from solera.metrics import speech
from solera.tasks.base import Columns, ErrorKind, Margin, Row, Score
from solera.tasks.generation import Generation


@dataclass(frozen=True)
class Transcription(Generation):
    """Word error rate by jiwer, and how well each sequence measure tells wrong transcriptions and unfamiliar speech.

    Models are what they heard, by set: `evaluate({"student": {"test": transcribe(student, test)}}, test,
    task=Transcription())`.
    """

    name: ClassVar[str] = "transcription"
    table: ClassVar[tuple[Score, ...]] = (
        Score("WER", -1, "Words that must be changed, deleted or inserted, as a share of those said.", percent=True),
        Score("exact", 1, "How often every word is right.", percent=True),
        Score(
            "PRR",
            1,
            "How much of an oracle's fall in word errors is had when the transcriptions of the most total uncertainty "
            "are rejected: 100 is all, 0 is chance.",
            percent=True,
        ),
        Score("PRR by knowledge", 1, "The same by knowledge uncertainty.", percent=True),
        Score("PRR by score", 1, "The same by the probability of the transcription's own tokens.", percent=True),
        Score("agreement", 1, "How often it writes the very words that the ensemble writes.", percent=True),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "WER", 0.01),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("WER", "exact")
    errors: ClassVar[ErrorKind] = ErrorKind("word error rate", percent=True, wanted=(0.01, 0.02, 0.05, 0.10))
    question: ClassVar[str] = "Are the transcriptions that it keeps better?"

    def compared(self, written: Sequence[Any], wanted: Sequence[Any]) -> dict[str, np.ndarray]:
        """`counts`, which add up, and `error`: the word error rate of the one text."""
        counts = speech.word_errors(written, wanted)
        return {"error": counts[:, :3].sum(-1) / np.maximum(counts[:, 3], 1), "counts": counts}

    def quality(self, columns: Columns) -> Row:
        return {"WER": speech.wer(columns["counts"]), "exact": float(np.mean(columns["error"] == 0))}
