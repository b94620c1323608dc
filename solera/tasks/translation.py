"""Translations: what a model writes in another language, beside a person's translation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from solera.metrics import text
from solera.tasks.base import Columns, ErrorKind, Margin, Row, Score
from solera.tasks.generation import Generation


@dataclass(frozen=True)
class Translation(Generation):
    """BLEU and chrF by sacreBLEU, and how well each sequence measure tells bad translations and unfamiliar sources.

    `lowercase` leaves out case. Models are what they wrote, by set:
    `evaluate({"student": {"test": translate(student, pairs)}}, pairs, task=Translation())`.
    """

    lowercase: bool = False
    name: ClassVar[str] = "translation"
    table: ClassVar[tuple[Score, ...]] = (
        Score("BLEU", 1, "How many words and short phrases it shares with the reference, by sacreBLEU.", percent=True),
        Score("chrF", 1, "How many short runs of characters it shares with the reference.", percent=True),
        Score("length", 0, "Its length in words as a share of the reference's.", percent=True),
        Score(
            "PRR",
            1,
            "How much of an oracle's gain in sentence BLEU is had when the translations of the most total uncertainty "
            "are rejected: 100 is all, 0 is chance.",
            percent=True,
        ),
        Score("PRR by knowledge", 1, "The same by knowledge uncertainty.", percent=True),
        Score("PRR by score", 1, "The same by the probability of the translation's own tokens.", percent=True),
        Score("agreement", 1, "How often it writes the very sentence that the ensemble writes.", percent=True),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "BLEU", 0.01),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("BLEU", "chrF")
    errors: ClassVar[ErrorKind] = ErrorKind("1 − sentence BLEU", percent=True, wanted=(0.9, 0.8, 0.7), relative=True)
    question: ClassVar[str] = "Are the translations that it keeps better?"

    def compared(self, written: Sequence[Any], wanted: Sequence[Any]) -> dict[str, np.ndarray]:
        """`bleu` and `chrf`, statistics that add up, and `error`: 1 − BLEU of the sentence."""
        matches = text.bleu_statistics(written, wanted, self.lowercase)
        return {
            "error": 1 - text.sentence_bleu(matches),
            "bleu": matches,
            "chrf": text.chrf_statistics(written, wanted, self.lowercase),
        }

    def quality(self, columns: Columns) -> Row:
        length, reference = columns["bleu"][:, :2].sum(0)
        return {
            "BLEU": text.bleu(columns["bleu"]),
            "chrF": text.chrf(columns["chrf"]),
            "length": float(length / reference),
        }
