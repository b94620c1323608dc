"""A tagger that is served: text or tokens in, entities out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from solera.data import Tags
from solera.data.chunks import windows
from solera.data.words import Word, words_of
from solera.nn import WordFeatures
from solera.serving.graph import Arrays
from solera.serving.limits import Limits
from solera.serving.nested import json_of
from solera.serving.refused import RefusedError, short
from solera.serving.trace import tagger_in
from solera.tasks.mentions import Entity, mentions, placed
from solera.training.student import Student

WINDOW = 512  # tokens of a text that the graph looks at together
KEYS = ("text", "tokens")
SEND = 'send {"text": "Angela Merkel visited Paris."}, or {"tokens": ["Angela", "Merkel"]}, or a list of either'
Texts = list[tuple[str, list[Word]]]


@dataclass(frozen=True)
class Reader:
    """What turns words into a graph's numbers, and its answers into entities."""

    words: WordFeatures
    tags: Tags
    context: int | None  # neighbours on each side that can change a tag; None: all of them

    @classmethod
    def of(cls, student: Student) -> "Reader | None":
        """That of a student whose network is a tagger of words."""
        network = tagger_in(student)
        if network is None:
            return None
        return cls(network.words, network.tags, None if network.crf is not None else network.context)

    def numbers(self, words: Sequence[Word]) -> np.ndarray:
        """What the graph takes of a text: `[tokens, columns]`."""
        return self.words([[word.text for word in words]])[0].numpy()

    def windows(self, tokens: int) -> list[tuple[slice, slice]]:
        """The parts of a text that the graph sees, and what of each is kept."""
        return list(windows(tokens, tokens if self.context is None else WINDOW, self.context or 0))

    def entities(self, text: str, words: Sequence[Word], parts: Sequence[Arrays]) -> list[Entity]:
        """Of a text, from what the graph said about its parts."""
        whole = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        return mentions(text, words, whole.pop("mean"), whole, self.tags)


def _tokens(value: Any, where: str) -> list[str]:
    for place, token in enumerate(value):
        if not isinstance(token, str) or not token.strip():
            raise RefusedError(422, f"{where}[{place}]", f"{where}[{place}] is {short(token)}, not a word: {SEND}")
    return value


def read_texts(body: bytes, limits: Limits) -> Texts:
    """{"text": ...} or {"tokens": ...}, one or a list of them; counted before they are split into words."""
    content = json_of(body, SEND)
    given = [key for key in KEYS if isinstance(content, dict) and key in content]
    if len(given) != 1 or len(content) != 1:
        raise RefusedError(422, "body", f"the body is {short(content)}, not one of {', '.join(KEYS)}: {SEND}")
    value = content[given[0]]
    if given == ["text"]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise RefusedError(422, "text", f"text is {short(value)}: {SEND}")
        limits.check_rows(len(texts), "text", "texts")
        limits.check_characters(sum(map(len, texts)), "text")
        found = [(text, words_of(text)) for text in texts]
        limits.check_tokens(sum(len(words) for _, words in found), "text")
        return found
    if not isinstance(value, list) or not value:
        raise RefusedError(422, "tokens", f"tokens is {short(value)}: {SEND}")
    rows = [row for row in value if isinstance(row, list)]
    limits.check_rows(len(rows), "tokens", "sentences")
    limits.check_tokens(sum(map(len, rows)) if rows else len(value), "tokens")
    if rows:
        if wrong := [place for place, row in enumerate(value) if not isinstance(row, list) or not row]:
            where = f"tokens[{wrong[0]}]"
            raise RefusedError(422, where, f"{where} is {short(value[wrong[0]])}, not a sentence of words: {SEND}")
        return [placed(_tokens(row, f"tokens[{place}]")) for place, row in enumerate(value)]
    return [placed(_tokens(value, "tokens"))]


def as_json(texts: Texts, found: Sequence[Sequence[Entity]], fingerprint: str, types: Sequence[str]) -> bytes:
    """One object for every text."""
    answers = [
        {"text": text, "entities": [entity.entry() for entity in entities]}
        for (text, _), entities in zip(texts, found, strict=True)
    ]
    return json.dumps({"fingerprint": fingerprint, "types": list(types), "answers": answers}).encode()
