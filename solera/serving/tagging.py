"""A tagger that is served: text or tokens in, entities out."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from solera.data import Tags
from solera.data.chunks import windows
from solera.data.words import Word, words_of
from solera.nn import WordFeatures
from solera.serving.graph import Arrays
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

    async def entities(self, texts: Texts, ask: Callable[[np.ndarray], Awaitable[Arrays]]) -> list[list[Entity]]:
        """Of each text; `ask` gives the graph's outputs for numbers `[1, tokens, columns]`."""
        return [await self._of_text(text, words, ask) for text, words in texts]

    async def _of_text(
        self, text: str, words: Sequence[Word], ask: Callable[[np.ndarray], Awaitable[Arrays]]
    ) -> list[Entity]:
        if not words:
            return []
        numbers = self.words([[word.text for word in words]])[0].numpy()
        most = len(words) if self.context is None else WINDOW
        parts: list[Arrays] = []
        for seen, kept in windows(len(words), most, self.context or 0):
            said = await ask(numbers[None, seen])
            parts.append({name: array[0, kept] for name, array in said.items()})
        whole = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        # Viterbi takes its time over a long text, and others wait for the event loop
        return await asyncio.to_thread(mentions, text, words, whole.pop("mean"), whole, self.tags)


def _tokens(value: Any, where: str) -> list[str]:
    for place, token in enumerate(value):
        if not isinstance(token, str) or not token.strip():
            raise RefusedError(422, f"{where}[{place}]", f"{where}[{place}] is {short(token)}, not a word: {SEND}")
    return value


def read_texts(body: bytes) -> Texts:
    """{"text": ...} or {"tokens": ...}, one or a list of them."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "body", f"the body is not JSON ({short(str(error))}): {SEND}") from None
    given = [key for key in KEYS if isinstance(content, dict) and key in content]
    if len(given) != 1 or len(content) != 1:
        raise RefusedError(422, "body", f"the body is {short(content)}, not one of {', '.join(KEYS)}: {SEND}")
    value = content[given[0]]
    if given == ["text"]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise RefusedError(422, "text", f"text is {short(value)}: {SEND}")
        return [(text, words_of(text)) for text in texts]
    if not isinstance(value, list) or not value:
        raise RefusedError(422, "tokens", f"tokens is {short(value)}: {SEND}")
    if any(isinstance(row, list) for row in value):
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
