"""spaCy pipelines, through the scores that their components have.

- `tagger`, trained on BIO tags as fine-grained tags: a softmax for every token.
- `spancat` and `spancat_singlelabel`: a probability for every candidate span, each by itself. Given that entities do
  not overlap, P(these spans) ∝ Π odds(span, type), and every token's tags follow by a forward and a backward pass.
- any component with `labels` and `tag_scores(doc)`, logits or log-probabilities of tags `[tokens, labels]`.
- `ner` has none: it is refused.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.teachers.adapters.words import Words, WordTagger

SPANS = ("spancat", "spancat_singlelabel")
SURE = 2.0**-25  # a float32 probability of 1 leaves at most this for anything else


def span_marginals(
    spans: Int[np.ndarray, "N 2"], log_odds: Float[np.ndarray, "N types"], tokens: int
) -> Float[np.ndarray, "tokens tags"]:
    """ln P of O, B-X, I-X, B-Y, I-Y, … for every token, where P(a set of spans) ∝ Π odds and no two of them overlap."""
    types = log_odds.shape[1]
    whole = np.logaddexp.reduce(log_odds, 1)
    before, after = np.zeros(tokens + 1), np.zeros(tokens + 1)  # ln Σ over all that stands before, from a place on
    ending: list[list[int]] = [[] for _ in range(tokens + 1)]
    beginning: list[list[int]] = [[] for _ in range(tokens + 1)]
    for number, (start, stop) in enumerate(spans.tolist()):
        ending[stop].append(number)
        beginning[start].append(number)
    for place in range(1, tokens + 1):
        ways = [before[place - 1], *(before[spans[n, 0]] + whole[n] for n in ending[place])]
        before[place] = np.logaddexp.reduce(ways)
    for place in range(tokens - 1, -1, -1):
        ways = [after[place + 1], *(after[spans[n, 1]] + whole[n] for n in beginning[place])]
        after[place] = np.logaddexp.reduce(ways)
    found = np.full((tokens, 1 + 2 * types), -np.inf)
    found[:, 0] = before[:-1] + after[1:] - after[0]
    for (start, stop), odds in zip(spans.tolist(), log_odds, strict=True):
        there = before[start] + odds + after[stop] - after[0]
        found[start, 1::2] = np.logaddexp(found[start, 1::2], there)
        found[start + 1 : stop, 2::2] = np.logaddexp(found[start + 1 : stop, 2::2], there)
    return found


def _component(nlp: Any) -> tuple[str, str, Any]:
    """The component that has scores: its name, what kind it is, and itself."""
    made = {name: nlp.get_pipe_meta(name).factory for name in nlp.pipe_names}
    for name in nlp.pipe_names:
        pipe = nlp.get_pipe(name)
        if hasattr(pipe, "tag_scores"):
            return name, "own", pipe
        if made[name] in SPANS:
            return name, "spans", pipe
        if made[name] == "tagger" and "O" in pipe.labels:
            return name, "tagger", pipe
    if "ner" in made.values():
        raise ValueError(
            "this spaCy pipeline finds entities by its component 'ner', which chooses one action after the other and "
            "gives no token and no entity a probability: train a 'spancat' or, on BIO tags, a 'tagger', or pass what "
            "'ner' found as a CoNLL file, one voter among several"
        )
    raise ValueError(
        f"this spaCy pipeline ({', '.join(nlp.pipe_names) or 'empty'}) has no component with scores of entities: it "
        "needs a 'spancat', a 'tagger' whose labels are BIO tags, or a component with labels and tag_scores(doc)"
    )


class SpacyTagger(WordTagger):
    """A spaCy pipeline that reads our words, not its own tokenizer's."""

    def __init__(self, nlp: Any, sentences: Words) -> None:
        self.nlp, self.sentences = nlp, sentences
        self.name, self.kind, self.pipe = _component(nlp)
        labels = [str(label) for label in self.pipe.labels]
        self.class_names = ["O", *(f"{p}-{x}" for x in labels for p in "BI")] if self.kind == "spans" else labels

    @property
    def fingerprint(self) -> str:
        """Of all components; not of the vocabulary, which grows with every text it reads."""
        content = hashlib.sha256()
        for name, pipe in self.nlp.pipeline:
            content.update(name.encode())
            if hasattr(pipe, "to_bytes"):
                content.update(pipe.to_bytes(exclude=["vocab"]))
        content.update(np.ascontiguousarray(self.nlp.vocab.vectors.data).tobytes())
        return content.hexdigest()[:16]

    def said(self, rows: Sequence[int]) -> list[Float[Tensor, "_ K"]]:
        from spacy.tokens import Doc

        docs = [Doc(self.nlp.vocab, words=list(self.sentences[row])) for row in rows]
        for name, pipe in self.nlp.pipeline:
            if name == self.name:
                break
            docs = [pipe(doc) for doc in docs]
        return [torch.from_numpy(self._scores(doc)).float() for doc in docs]

    def _scores(self, doc: Any) -> Float[np.ndarray, "T K"]:
        if self.kind == "own":
            return np.asarray(self.pipe.tag_scores(doc), dtype=np.float64)
        if self.kind == "tagger":
            return _as_logits(np.asarray(self.pipe.model.predict([doc])[0], dtype=np.float64))
        indices, scores = self.pipe.predict([doc])
        scores = np.asarray(scores, dtype=np.float64)
        if self.pipe.add_negative_label:  # one softmax: a type against no type
            scores, none = scores[:, :-1], scores[:, -1:]
        else:
            none = 1 - scores
        with np.errstate(divide="ignore"):
            log_odds = np.log(scores) - np.log(np.maximum(none, SURE))
        return span_marginals(np.asarray(indices.data), log_odds, len(doc))


def _as_logits(scores: Float[np.ndarray, "T K"]) -> Float[np.ndarray, "T K"]:
    """spaCy's softmax is told by its settings whether to normalise: then its numbers are probabilities."""
    normalised = (scores >= 0).all() and np.allclose(scores.sum(-1), 1, atol=1e-4)
    with np.errstate(divide="ignore"):
        return np.log(scores) if normalised else scores
