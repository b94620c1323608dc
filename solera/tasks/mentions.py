"""Entities as people want them: text, type, place, how sure, and why not surer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.data import Tags
from solera.data.words import Word
from solera.tasks.entities import entity_columns, spans_of


@dataclass(frozen=True)
class Entity:
    """Characters `start` to `end` − 1 of a text; `confidence` is P(exactly these tokens, exactly this type).

    The uncertainties are the mean over its tokens, in nats; data and knowledge are None where a student has no split.
    """

    text: str
    type: str
    start: int
    end: int
    confidence: float
    total: float
    data: float | None = None
    knowledge: float | None = None

    def entry(self) -> dict[str, Any]:
        """For JSON: what is known."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def placed(tokens: Sequence[str]) -> tuple[str, list[Word]]:
    """Tokens as a text, a blank between any two, and where each stands in it."""
    words, start = [], 0
    for token in tokens:
        words.append(Word(token, start, start + len(token)))
        start += len(token) + 1
    return " ".join(tokens), words


def mentions(
    text: str,
    words: Sequence[Word],
    mean: Float[Tensor, "T K"],
    uncertainties: Mapping[str, Float[Tensor, " T"]],
    tags: Tags,
) -> list[Entity]:
    """The entities of a text whose words have these tag probabilities and uncertainties."""
    if not words:
        return []
    counted = torch.ones(1, len(words), dtype=torch.bool)
    columns = entity_columns(mean[None], {k: v[None] for k, v in uncertainties.items()}, counted, tags, None)
    found = []
    for span in spans_of(columns["predicted"], tags).listed(tags):
        start, end = words[span.start].start, words[span.stop - 1].end
        known = {name: float(columns[f"entity_{name}"][0, span.start]) for name in uncertainties}
        confidence = min(1.0, float(columns["entity_confidence"][0, span.start]))
        found.append(Entity(text[start:end], span.kind, start, end, confidence, **known))
    return found
