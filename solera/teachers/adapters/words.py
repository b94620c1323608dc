"""Taggers that read words, whatever they make of them inside: each answers for the sentences it was given."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.data.sequences import padded
from solera.teachers.adapters.huggingface import WORD_STARTS, TokenClassifier
from solera.teachers.adapters.pieces import word_pieces

Words = Sequence[Sequence[str]]  # sentences
PIECES = 4096  # that a transformer reads at once, padding included


class WordTagger(ABC):
    """One member: tag log-probabilities or logits of every word of some sentences."""

    class_names: list[str] | None = None  # the names of the tags, in the order of the columns

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A name that changes when the member does."""

    @abstractmethod
    def said(self, rows: Sequence[int]) -> list[Float[Tensor, "_ K"]]:
        """What it says of the sentences with these numbers."""


def _longest(model: nn.Module) -> float:
    """How many pieces a transformer can read."""
    limit = getattr(model.config, "max_position_embeddings", None)
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding) and part.padding_idx is not None:
            return part.num_embeddings - part.padding_idx - 1  # RoBERTa's positions start after that of padding
    return math.inf if limit is None else limit


class TransformerTagger(WordTagger):
    """A Hugging Face token classifier with its own tokenizer."""

    def __init__(self, model: nn.Module, tokenizer: Any, sentences: Words) -> None:
        self.network = TokenClassifier(model).eval()
        self.class_names = self.network.class_names
        self.pieces = word_pieces(sentences, tokenizer, min(_longest(model), tokenizer.model_max_length))
        self.padding = {"input_ids": tokenizer.pad_token_id or 0}

    @property
    def fingerprint(self) -> str:
        return self.network.fingerprint

    @torch.no_grad()
    def said(self, rows: Sequence[int]) -> list[Float[Tensor, "_ K"]]:
        lengths = {row: len(self.pieces["input_ids"][row]) for row in rows}
        found: dict[int, Tensor] = {}
        for part in _parts(sorted(rows, key=lengths.__getitem__), lengths, PIECES):
            columns = {key: [torch.tensor(values[row]) for row in part] for key, values in self.pieces.items()}
            inputs = {key: padded(column, self.padding.get(key, 0))[0] for key, column in columns.items()}
            device = next(self.network.parameters()).device
            said = self.network({key: value.to(device) for key, value in inputs.items()})
            words = [len(self.pieces[WORD_STARTS][row]) for row in part]
            found |= {row: said[place, :count] for place, (row, count) in enumerate(zip(part, words, strict=True))}
        return [found[row] for row in rows]


def _parts(rows: Sequence[int], lengths: dict[int, int], most: int) -> list[list[int]]:
    """Rows of rising length in parts that hold at most so many places, padding included; one row may be longer."""
    parts: list[list[int]] = []
    for row in rows:
        if not parts or (len(parts[-1]) + 1) * lengths[row] > most:
            parts.append([])
        parts[-1].append(row)
    return parts
