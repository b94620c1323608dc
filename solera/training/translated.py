"""What a model wrote: one translation at a time, or as new targets to learn from and to be measured by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.errors import MismatchError
from solera.data import Batch, Pairs
from solera.distributions.decoded import Decoded

Ragged = Sequence[Tensor]  # one number for each token of every translation


@dataclass(frozen=True)
class Token:
    """A piece of a translation, a token or a whole word, and its uncertainties in nats; a word has its tokens' most."""

    text: str
    total: float
    knowledge: float | None = None


@dataclass(frozen=True)
class Translated:
    """One sentence: its text, the means of its tokens' uncertainties, and the tokens.

    `data`, `knowledge` and `rmi` are None where one model spoke, which cannot know them. `log_prob` is that of the
    whole sequence.
    """

    source: str
    text: str
    log_prob: float = 0.0
    total: float = 0.0
    data: float | None = None
    knowledge: float | None = None
    rmi: float | None = None
    tokens: Sequence[Token] = ()
    words: Sequence[Token] = ()
    measures: Mapping[str, float] = field(default_factory=dict)  # every other one, by its name


class TranslatedPairs(Pairs):
    """Sources and a model's own outputs: pairs to capture and to distil on, with the uncertainty of every output.

    `total`, `knowledge`, `rmi` and the other `measures` are means over tokens, one number for each pair. In an
    evaluation it stands for the model on this set: `evaluate({"student": {"test": it}}, …)`.
    """

    live = False
    members = 1
    wanted: list[str] | None  # the targets that the pairs had before
    log_probs: Float[Tensor, " N"]
    measures: dict[str, Float[Tensor, " N"]]
    token_measures: dict[str, Ragged]
    fingerprints: list[str]
    _place: dict[int, int]  # the row of each example

    @classmethod
    def made(
        cls,
        pairs: Pairs,
        written: Sequence[Sequence[int]],
        log_probs: Float[Tensor, " N"],
        measures: dict[str, Float[Tensor, " N"]],
        token_measures: dict[str, Ragged],
        fingerprints: list[str],
    ) -> "TranslatedPairs":
        """The pairs with what was written as their targets."""
        found = object.__new__(_kind(type(pairs)))
        found.__dict__ |= pairs.with_targets(written).__dict__  # with `causal`, whatever class the pairs were of
        found.wanted, found.log_probs, found.fingerprints = pairs.target_text, log_probs, fingerprints
        found.measures, found.token_measures = measures, token_measures
        found._place = {int(number): row for row, number in enumerate(found.index)}
        return found

    def __getattr__(self, name: str) -> Any:
        measures = self.__dict__.get("measures", {})
        if name in measures:
            return measures[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}; its measures are {', '.join(measures)}")

    def __getitem__(self, row: int) -> Translated:
        assert self.target_text is not None
        assert self.written is not None
        ids = list(self.written[row])
        each = {name: values[row].tolist() for name, values in self.token_measures.items()}
        known = {name: float(values[row]) for name, values in self.measures.items()}
        main = {name: known.pop(name) for name in ("total", "data", "knowledge", "rmi") if name in known}

        def piece(text: str, places: Sequence[int]) -> Token:
            return Token(text, **{name: max(values[place] for place in places) for name, values in each.items()})

        words = self.tokenizer.words(ids)
        pieces = [self.tokenizer.piece(ids, place) for place in range(len(ids))]
        return Translated(
            self.source[row],
            self.target_text[row],
            float(self.log_probs[row]),
            **main,
            tokens=[piece(text, [place]) for place, text in enumerate(pieces)],
            words=[piece(text, places) for text, places in words],
            measures=known,
        )

    def check(self, batch: Batch) -> None:
        """Refuses other inputs than those that were translated."""
        for place, number in enumerate(batch.index.tolist()):
            row = self._place.get(number)
            if row is None or not self.has_source(row, batch, place):
                raise MismatchError(
                    f"example {number} is not among the translated sources: translate these pairs, with this tokenizer"
                )

    def __call__(self, batch: Batch) -> Decoded:
        """What was written for these examples."""
        assert self.target_text is not None
        rows = torch.tensor([self._place[int(number)] for number in batch.index])
        return Decoded(
            [self.target_text[row] for row in rows],
            None if self.wanted is None else [self.wanted[row] for row in rows],
            {name: values[rows] for name, values in self.measures.items()},
            self.log_probs[rows],
        )


@cache
def _kind(kind: type[Pairs]) -> type[TranslatedPairs]:
    """The class of what was written for pairs of this class, whose inputs stay as that one lays them out."""
    return (
        kind if issubclass(kind, TranslatedPairs) else type(f"Translated{kind.__name__}", (TranslatedPairs, kind), {})
    )
