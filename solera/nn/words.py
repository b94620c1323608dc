"""What a tagger knows of a word: hashed spellings, a pretrained vector, a cluster."""

import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from solera.core.array_files import UnknownArrayError, read_npz
from solera.data.conll import Sentence

HASHED = {"norm": 6000, "prefix": 2000, "suffix": 3000, "shape": 1000}  # buckets
COARSE = (0xF, 0x3F, 0x3FF)  # the low bits of a cluster are its coarser clusters
REMEMBERED = (64, 1 << 17)  # words of at most so many letters, and how many of them: about 50 MB


def _shape(word: str) -> str:
    """Xxxx, dd, X.X.: letters and digits by kind, at most four alike in a row; other characters stay."""
    kinds = ["d" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in word]
    return "".join(kind for place, kind in enumerate(kinds) if kinds[max(0, place - 4) : place] != [kind] * 4)


def _spellings(word: str) -> tuple[str, str, str, str]:
    """The values of the hashed columns; composed characters, so that é is é however it was typed."""
    word = unicodedata.normalize("NFC", word)
    return word.lower(), word[:3], word[-3:], _shape(word)


def _bucket(value: str, size: int) -> int:
    """1 to size; 0 is padding."""
    return 1 + zlib.crc32(value.encode("utf-8", "surrogatepass")) % size


def _opened(path: str | Path, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all words, joined by line ends, and what the file has for each."""
    try:
        words, values = read_npz(Path(path), "words"), read_npz(Path(path), column)
    except UnknownArrayError as error:
        raise ValueError(f"{error}: it needs `words` (UTF-8, joined by \\n) and {column!r}") from error
    if (count := bytes(words).count(b"\n") + 1) != len(values):
        raise ValueError(f"{path} has {count} words and {len(values)} rows of {column!r}: there must be one each")
    return words, values


class WordFeatures(nn.Module):
    """Sentences in, whole numbers `[T, columns]` out, one row per token: what a `Tagger` looks up.

    Columns: hashed norm, prefix, suffix and shape (from 1: 0 is padding); with `vectors`, the row of the word's vector;
    with `clusters`, its cluster and coarser ones. The files are NumPy archives: `words`, the UTF-8 bytes of all words
    joined by line ends, beside `vectors` [words, D] (of lower-case words) or `cluster` [words]. What they hold is
    stored with the network, so that a saved student needs no other file.
    """

    vectors: Tensor
    vector_words: Tensor
    clusters: Tensor
    cluster_words: Tensor
    cluster_paths: Tensor

    def __init__(self, vectors: str | Path | None = None, clusters: str | Path | None = None) -> None:
        super().__init__()
        none = np.zeros(0, np.uint8)
        words, values = (none, np.zeros((0, 0), np.float16)) if vectors is None else _opened(vectors, "vectors")
        named, paths = (none, np.zeros(0, np.int64)) if clusters is None else _opened(clusters, "cluster")
        kinds, numbers = np.unique(paths, return_inverse=True)
        self._store(
            {
                "vectors": torch.from_numpy(
                    np.concatenate([np.zeros_like(values, shape=(1, values.shape[1])), values])
                ),
                "vector_words": torch.from_numpy(words),
                "clusters": torch.from_numpy(1 + numbers.astype(np.int32)),
                "cluster_words": torch.from_numpy(named),
                "cluster_paths": torch.from_numpy(kinds.astype(np.int64)),
            }
        )

    def _store(self, tables: Mapping[str, Tensor]) -> None:
        for name, tensor in tables.items():
            self.register_buffer(name, tensor)
        self._cache: dict[str, list[int]] = {}
        self._lookups: tuple[dict[str, int], dict[str, list[int]]] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The sizes of its tables, by which an empty one can be made for a saved student's to be put in."""
        tables = self.named_buffers()
        return {name: [str(tensor.dtype).removeprefix("torch."), *tensor.shape] for name, tensor in tables}

    @classmethod
    def empty(cls, settings: Mapping[str, Sequence[Any]]) -> "WordFeatures":
        """Tables of these sizes, to be filled by `load_state_dict`."""
        made = cls()
        made._store({name: torch.zeros(*size, dtype=getattr(torch, kind)) for name, (kind, *size) in settings.items()})
        return made

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._cache, self._lookups = {}, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}, "_lookups": None}  # copies look words up anew

    @property
    def sizes(self) -> list[int]:
        """How many values each column has, padding included; the vectors' column is not among them."""
        hashed = [1 + size for size in HASHED.values()]
        if not len(self.cluster_paths):
            return hashed
        return [*hashed, 1 + len(self.cluster_paths), *(1 + bits for bits in COARSE)]

    def _tables(self) -> tuple[dict[str, int], dict[str, list[int]]]:
        """The row of each word's vector, and the numbers of each word's clusters."""
        if self._lookups is None:
            words = bytes(self.vector_words.cpu().numpy()).decode().split("\n")
            rows = {word: row for row, word in enumerate(words, 1)} if len(self.vectors) > 1 else {}
            paths, own = self.cluster_paths.cpu().numpy(), self.clusters.tolist()
            kinds = [[1 + kind, *(int(path) & bits for bits in COARSE)] for kind, path in enumerate(paths)]
            named = bytes(self.cluster_words.cpu().numpy()).decode().split("\n")
            clusters = {word: kinds[kind - 1] for word, kind in zip(named, own, strict=False)}
            self._lookups = rows, clusters
        return self._lookups

    def _row(self, word: str) -> list[int]:
        """The columns of one word."""
        found = self._cache.get(word)
        if found is None:
            rows, clusters = self._tables()
            spellings = _spellings(word)
            found = [_bucket(value, size) for value, size in zip(spellings, HASHED.values(), strict=True)]
            if len(self.cluster_paths):
                composed = unicodedata.normalize("NFC", word)
                found += clusters.get(composed) or clusters.get(spellings[0]) or [0] * (1 + len(COARSE))
            if len(self.vectors) > 1:
                found.append(rows.get(spellings[0], 0))
            if len(word) <= REMEMBERED[0] and len(self._cache) < REMEMBERED[1]:
                self._cache[word] = found
        return found

    def forward(self, sentences: Sequence[Sentence | Sequence[str]]) -> list[Int[Tensor, "T columns"]]:
        """The columns of every token of every sentence."""
        if isinstance(sentences, str) or any(isinstance(sentence, str) for sentence in sentences):
            raise ValueError("sentences are lists of tokens, got a text: split it into words, [text.split()]")
        found = []
        for number, sentence in enumerate(sentences):
            tokens = sentence.tokens if isinstance(sentence, Sentence) else sentence
            if not len(tokens):
                raise ValueError(f"sentence {number} is empty: leave it out")
            found.append(torch.tensor([self._row(token) for token in tokens], dtype=torch.int32))
        return found
