"""The tags of a tagging task: their names, their scheme, and the number of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from solera.data.batch import UNLABELLED
from solera.data.conll import Sentence
from solera.data.tag_scheme import Forbidden, forbidden_tags, split_tags


@dataclass(frozen=True)
class Tags:
    """BIO, BIOES or BILOU tags by name; a tag's number is its place. `Tags.of(sentences)` reads them from the data."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        split_tags(self.names)
        if "O" not in self.names:
            raise ValueError(f"tags need an O, for tokens outside of entities, got {', '.join(self.names)}")

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "Tags":
        """The tags of these sentences, and whatever else their scheme has for their types: O, then type by type."""
        found = {tag for sentence in sentences for tag in sentence.tags or ()}
        if not found:
            raise ValueError("these sentences have no tags: load a file whose lines are a token, a tab and its tag")
        prefixes = {name.partition("-")[0] for name in found} - {"O"}
        order = "BILU" if prefixes & set("LU") else "BIES" if prefixes & set("ES") else "BI"
        types = sorted({name.partition("-")[2] for name in found - {"O"}})
        return cls(("O", *(f"{prefix}-{kind}" for kind in types for prefix in order)))

    @classmethod
    def read(cls, given: "Tags | Mapping[str, Any] | Sequence[str]") -> "Tags":
        """Tags as they are, as a file has them, or as a list of names."""
        if isinstance(given, Tags):
            return given
        return cls(tuple(given["names"] if isinstance(given, Mapping) else given))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def scheme(self) -> str:
        """BIO, BIOES or BILOU."""
        prefixes = {name.partition("-")[0] for name in self.names}
        return "BILOU" if prefixes & set("LU") else "BIOES" if prefixes & set("ES") else "BIO"

    @property
    def types(self) -> tuple[str, ...]:
        """The types of entities."""
        return tuple(dict.fromkeys(kind for _, kind in split_tags(self.names) if kind))

    @property
    def forbidden(self) -> Forbidden:
        """Which tags may not follow each other, begin or end a sentence."""
        return forbidden_tags(self.names)

    def spelled(self, kind: str, length: int) -> list[str]:
        """The tags of an entity of this type and so many tokens."""
        last, alone = {"BIO": "IB", "BIOES": "ES", "BILOU": "LU"}[self.scheme]
        prefixes = alone if length == 1 else "B" + "I" * (length - 2) + last
        return [f"{prefix}-{kind}" for prefix in prefixes]

    def __call__(self, sentences: Sequence[Sentence | Sequence[str | None]]) -> list[Int[Tensor, " T"]]:
        """The numbers of each sentence's tags; None for a tag means unlabelled."""
        numbers: dict[str | None, int] = {name: number for number, name in enumerate(self.names)} | {None: UNLABELLED}
        found = []
        for place, sentence in enumerate(sentences):
            row = sentence.tags if isinstance(sentence, Sentence) else sentence
            if row is None:
                raise ValueError(f"sentence {place} has no tags: load a file with a column of them")
            if unknown := [tag for tag in row if tag not in numbers]:
                raise ValueError(
                    f"sentence {place} has the tag {unknown[0]!r}, which is none of {', '.join(self.names)}: rename or "
                    'drop its type, load_conll(path, types={"person": "PER", "product": None})'
                )
            found.append(torch.tensor([numbers[tag] for tag in row], dtype=torch.int64))
        return found
