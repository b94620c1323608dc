"""What taggers said, in CoNLL files: probabilities of tags, or tags alone."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.data.tag_probabilities import load_tag_probabilities
from solera.teachers.adapters.probabilities import without_zeros
from solera.teachers.adapters.words import Words, WordTagger


class ConllTagger(WordTagger):
    """One member's file: its tokens must be those of the data, line by line.

    A file of tags alone is a voter: its tag is as good as certain (1 − 1e-4), one of `names`, the tags of the data.
    """

    def __init__(self, path: str | Path, sentences: Words, names: Sequence[str] | None = None) -> None:
        found = load_tag_probabilities(path, names)
        found.require_tokens(sentences)
        self.class_names = list(found.names)
        self.log_probs = [without_zeros(torch.from_numpy(rows)).log().float() for rows in found.probabilities]

    @property
    def fingerprint(self) -> str:
        content = np.concatenate([rows.numpy() for rows in self.log_probs]).tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def said(self, rows: Sequence[int]) -> list[Float[Tensor, "_ K"]]:
        return [self.log_probs[row] for row in rows]
