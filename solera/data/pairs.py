"""Pairs of texts: what is read and what is to be written, as sequences of tokens."""

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from solera.data.batch import UNLABELLED, Batch
from solera.data.sequences import Sequences
from solera.data.tokenizers import Tokenizer, as_tokenizer, train_bpe


def read_lines(text: Any) -> list[str]:
    """A text file, one sentence a line (it may be packed by gzip), or a list of sentences as it is."""
    if isinstance(text, str | Path):
        path = Path(text)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}: pass a text file, or a list of sentences")
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8").splitlines()
    lines = list(text)
    for number, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"line {number} is a {type(line).__name__}, not text: pass a list of sentences")
    return lines


def _require_text(lines: Sequence[str], side: str) -> None:
    if not lines:
        raise ValueError(f"there are no {side} lines: pass at least one sentence")
    for number, line in enumerate(lines):
        if not line.strip():
            raise ValueError(f"{side} line {number} is empty: leave the pair out")


class Pairs(Sequences):
    """Pairs of sentences, dealt out in batches of at most `tokens` tokens on the longer side, padding included.

    `source` and `target` are text files, one sentence a line, or lists; without a target they are sentences to be
    translated. `tokenizer` is one of `transformers`, `tokenizers` or sentencepiece, or a file of one; without it a
    joint byte-pair encoding of `vocabulary` tokens is trained on both sides. `start` is the decoder's first token (see
    `as_tokenizer`). Inputs: `input_ids`, `attention_mask` and, with a target, `decoder_input_ids`: names that
    Hugging Face's models know. The target, also in `written`, is every token of the sentence and its end.
    """

    causal: bool = False  # the source is the beginning of the target's own sequence

    def __init__(
        self,
        source: Any,
        target: Any = None,
        tokenizer: Any = None,
        *,
        tokens: int = 1536,
        vocabulary: int = 4000,
        start: int | None = None,
        index: Tensor | None = None,
    ) -> None:
        self.source = read_lines(source)
        self.target_text = None if target is None else read_lines(target)
        _require_text(self.source, "source")
        if self.target_text is not None:
            if len(self.target_text) != len(self.source):
                raise ValueError(
                    f"there are {len(self.source)} source lines and {len(self.target_text)} target lines: line n of "
                    "one must translate line n of the other"
                )
            _require_text(self.target_text, "target")
        if tokenizer is None:
            tokenizer = train_bpe([*self.source, *(self.target_text or [])], vocabulary)
        self.tokenizer: Tokenizer = as_tokenizer(tokenizer, start)
        written = None if self.target_text is None else self.tokenizer.targets(self.target_text)
        self._fill(self.tokenizer.sources(self.source), written, tokens, index)

    def _fill(self, sources: list[Any], targets: list[Any] | None, tokens: int, index: Tensor | None) -> None:
        self._sources, pad = sources, self.tokenizer.pad
        inputs, wanted = self._laid_out(sources, targets)
        super().__init__(
            inputs,
            wanted,
            tokens=tokens,
            padding={"input_ids": pad, "attention_mask": 0, "decoder_input_ids": pad},
            index=index,
            per_token=targets is not None,
        )
        self.written = targets

    def _laid_out(self, sources: list[Any], targets: list[Any] | None) -> tuple[dict[str, Any], list[Any] | None]:
        """Inputs by name and, where there are any, the targets."""
        inputs = {"input_ids": sources, "attention_mask": [[1] * len(source) for source in sources]}
        if targets is None:
            return inputs, None
        prefixes = [[self.tokenizer.start, *target[:-1]] for target in targets]
        if not self.causal:
            return {**inputs, "decoder_input_ids": prefixes}, targets
        whole = [[*source, *prefix] for source, prefix in zip(sources, prefixes, strict=True)]
        wanted = [[*[UNLABELLED] * len(source), *target] for source, target in zip(sources, targets, strict=True)]
        return {"input_ids": whole, "attention_mask": [[1] * len(row) for row in whole]}, wanted

    def _targets(self, chosen: list[int], mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
        target, weight = super()._targets(chosen, mask)
        return target, weight if target is None or weight is None else weight * (target != UNLABELLED)

    @property
    def longest(self) -> int:
        """How many tokens a model may write for any of these: twice the source's and ten."""
        return 2 * int(self.lengths.max()) + 10

    def has_source(self, row: int, batch: Batch, place: int) -> bool:
        """Whether a batch has this row's source at this place."""
        ids = batch.inputs["input_ids"][place]
        mask = batch.inputs["attention_mask"][place].bool() if "attention_mask" in batch.inputs else ids == ids
        return self._sources[row] == ids[mask].tolist()[: len(self._sources[row])]

    @property
    def vocabulary(self) -> str:
        """The fingerprint of the tokenizer: a memory of another one's tokens is refused."""
        return self.tokenizer.fingerprint

    def fingerprint(self) -> str:
        """Changes when any sentence or the tokenizer does."""
        return hashlib.sha256(f"{super().fingerprint()} {self.vocabulary}".encode()).hexdigest()[:16]

    def of(self, rows: Tensor) -> "Pairs":
        """Some of the pairs, which keep their index."""
        chosen = rows.tolist()
        targets = None if self.written is None else [self.written[i] for i in chosen]
        text = None if self.target_text is None else [self.target_text[i] for i in chosen]
        return self._with([self.source[i] for i in chosen], text, [self._sources[i] for i in chosen], targets, rows)

    def with_targets(self, targets: Sequence[Sequence[int]]) -> "Pairs":
        """The same sources with other targets: tokens, the end of each included."""
        if len(targets) != self.examples:
            raise ValueError(f"there are {self.examples} sources and {len(targets)} targets: give one each")
        text = [self.tokenizer.decode(target) for target in targets]
        return self._with(self.source, text, self._sources, [list(target) for target in targets], None)

    def without_targets(self) -> "Pairs":
        """The sources alone."""
        return self._with(self.source, None, self._sources, None, None)

    def text(self, example: int) -> Sequence[str]:
        """The words of the pair of this index."""
        row = int((self.index == example).nonzero()[0])
        wanted = [] if self.target_text is None else ["→", *self.target_text[row].split()]
        return [*self.source[row].split(), *wanted]

    def _bare(self) -> "Pairs":
        """Pairs of this kind, to be filled."""
        other = Pairs.__new__(Pairs)
        other.tokenizer, other.causal = self.tokenizer, self.causal
        return other

    def _with(
        self, source: list[str], text: list[str] | None, sources: list[Any], targets: list[Any] | None, rows: Any
    ) -> "Pairs":
        other = self._bare()
        other.source, other.target_text = source, text
        other._fill(sources, targets, self.tokens, self.index if rows is None else self.index[rows])
        return other


class CausalPairs(Pairs):
    """The same for models without an encoder (Llama, GPT-2): source, start and target are one sequence.

    `input_ids` holds all of it but the target's end; of the targets, those at the source's places are unlabelled and
    have weight 0: nothing is learned, remembered or measured of them.
    """

    causal = True
