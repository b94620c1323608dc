"""What the recipe `ner` reads: sentences with tags, from Wikipedia and from elsewhere, and word features."""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from solera.core.seeds import stream as seed_of
from solera.data import Sentence, Sequences, Tags, load_conll
from solera.nn import WordFeatures
from solera.tasks import Tagging

if TYPE_CHECKING:
    from solera.recipes.ner import Ner

OUTSIDE: dict[str, dict[str, str]] = {
    "en": {
        "tweets": "btc_en.test",
        "WNUT-17": "wnut17_en.test",
        "UNER web": "uner_ewt_en.test",
        "wikiann": "wikiann_en.test",
    },
    "de": {
        "GermEval": "germeval14_de.test",
        "MobIE": "mobie_de.test",
        "UNER news": "uner_pud_de.test",
        "wikiann": "wikiann_de.test",
    },
}
WORDS = {"en": {"vectors": "glove100_en", "clusters": "clusters_en"}, "de": {"clusters": "clusters_de"}}
# other sets' names of the types; what is not here is no entity
SAME = {"PER": "PER", "LOC": "LOC", "ORG": "ORG", "MISC": "MISC", "OTH": "MISC", "person": "PER", "location": "LOC"}
SAME |= {"corporation": "ORG", "group": "ORG", "organization": "ORG", "organization-company": "ORG"}
SAME |= {"location-city": "LOC", "location-stop": "LOC", "location-street": "LOC", "location-route": "LOC"}
HELD = 10  # the last tenth of the training file is for validation: a block, for neighbours are alike
TOKENS = 768
EXCHANGED = 0.3  # of the words of a copy


class Text:
    """What all studies read."""

    def __init__(self, recipe: "Ner") -> None:
        folder = Path(recipe.data)
        files = {key: folder / "words" / f"{name}.npz" for key, name in WORDS[recipe.language].items()}
        self.recipe, self.ner = recipe, folder / "ner"
        self.words = WordFeatures(**files)  # type: ignore[arg-type]
        sentences = self._read(f"wikineural_{recipe.language}.val", 0)
        self.tags = Tags.of(sentences)
        self.task = Tagging(self.tags)
        held = len(sentences) // HELD
        known = (sentences[:-held][: recipe.sentences or None], sentences[-held:])
        copies = [copy for number in range(recipe.copies) for copy in reworded(known[0], recipe.seed + number)]
        self.every = self.batches([*known[0], *known[1], *copies])
        rows = torch.arange(self.every.examples)
        train, held, more = rows.split([len(known[0]), len(known[1]), len(copies)])
        self.train, self.held, self.shown = (self.every.of(some) for some in (train, held, torch.cat([train, more])))

    def _read(self, name: str, most: int) -> list[Sentence]:
        path = self.ner / f"{name}.conll.gz"
        found = load_conll(path)
        types = {kind: SAME.get(kind) for kind in Tags.of(found).types}
        return load_conll(path, types=types)[: most or None]

    def batches(self, sentences: list[Sentence], tokens: int = TOKENS) -> Sequences:
        """Bucketed by length; those without tags are unlabelled."""
        tags = self.tags([sentence.tags or [None] * len(sentence.tokens) for sentence in sentences])
        return Sequences(self.words(sentences), tags, tokens=tokens)

    @cached_property
    def sets(self) -> dict[str, Sequences]:
        """The test set and unfamiliar ones."""
        recipe = self.recipe
        test = self._read(f"wikineural_{recipe.language}.test", recipe.test_sentences)
        others = {name: self._read(file, recipe.other_sentences) for name, file in OUTSIDE[recipe.language].items()}
        return {name: self.batches(some, 4096) for name, some in {"test": test, **others}.items()}


def reworded(sentences: list[Sentence], seed: int) -> list[Sentence]:
    """The same sentences with words of others in some places, unlabelled: the teacher says what they are."""
    draw = np.random.default_rng(seed_of(seed, "copies"))
    words = np.concatenate([np.array(sentence.tokens, dtype=object) for sentence in sentences])
    found = []
    for sentence in sentences:
        own = np.array(sentence.tokens, dtype=object)
        exchanged = draw.random(len(own)) < EXCHANGED
        own[exchanged] = words[draw.integers(0, len(words), int(exchanged.sum()))]
        found.append(Sentence(own.tolist()))
    return found


@lru_cache(maxsize=1)
def text_of(recipe: "Ner") -> Text:
    """The text of a recipe, read once."""
    return Text(recipe)
