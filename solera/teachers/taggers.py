"""Taggers of any kinds as one teacher: asked for words, by the number of the sentence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solera.core.errors import MismatchError
from solera.core.renamed import RenamedAttribute, renamed_arguments
from solera.data import Batch, tensors_in
from solera.data.names import Names, as_names
from solera.data.sequences import padded
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture
from solera.teachers.adapters.conll import ConllTagger
from solera.teachers.adapters.spacy import SpacyTagger
from solera.teachers.adapters.words import TransformerTagger, Words, WordTagger
from solera.teachers.base import as_saw, member_weights, stack_members, with_mask
from solera.teachers.class_order import align, in_order

ACCEPTED = (
    "a pair of a Hugging Face token classifier and its tokenizer, a spaCy pipeline, or the path of a CoNLL file with "
    "its predictions"
)


def word_tagger(member: Any, sentences: Words, class_names: Names | None = None) -> WordTagger:
    """A member of any kind, ready to answer for these sentences; a file of bare tags needs to know all tags."""
    if isinstance(member, WordTagger):
        return member
    if isinstance(member, (str, Path)):
        return ConllTagger(member, sentences, None if class_names is None else as_names(class_names))
    if isinstance(member, tuple) and len(member) == 2:
        return TransformerTagger(*member, sentences)
    if hasattr(member, "pipeline") and hasattr(member, "vocab"):
        return SpacyTagger(member, sentences)
    raise TypeError(f"a {type(member).__name__} is no tagger of words: pass {ACCEPTED}")


class Taggers:
    """A teacher made of taggers that read words: transformers with their tokenizers, spaCy pipelines, CoNLL files.

    `sentences` are the words of all examples: batches ask by their index, whatever their inputs are, so a student may
    read other features than its teachers. Tags are put into the order of `class_names` (`Tags.names`) by their names.
    """

    live = False

    labels = RenamedAttribute("class_names")

    @renamed_arguments(labels="class_names")
    def __init__(
        self, members: Sequence[Any], sentences: Words, class_names: Names | None = None, saw: Any = None
    ) -> None:
        """`saw[i, m]` is true where member m was trained on sentence i: there it does not count."""
        if not members:
            raise ValueError("an ensemble needs at least one tagger, got none")
        self.lengths = [len(words) for words in sentences]
        self.taggers = [word_tagger(member, sentences, class_names) for member in members]
        self.class_names, self._orders = align([tagger.class_names for tagger in self.taggers], class_names)
        self.saw = as_saw(saw, self.members, len(self.lengths))

    @property
    def members(self) -> int:
        return len(self.taggers)

    @property
    def fingerprints(self) -> list[str]:
        return with_mask(
            [f"{t.fingerprint} {o or ''}" for t, o in zip(self.taggers, self._orders, strict=True)], self.saw
        )

    def check(self, batch: Batch) -> None:
        """Refuses a sentence that was never given, or that has another number of words in the batch."""
        if int(batch.index.max()) >= len(self.lengths):
            raise MismatchError(
                f"there are {len(self.lengths)} sentences, none with the number {int(batch.index.max())}"
            )
        if batch.weight is not None:
            known = torch.tensor([self.lengths[i] for i in batch.index.tolist()])
            counted = (batch.weight.cpu() > 0).sum(-1)
            if (other := known != counted).any():
                place = int(other.nonzero()[0])
                raise MismatchError(
                    f"sentence {int(batch.index[place])} has {int(known[place])} words for the taggers and "
                    f"{int(counted[place])} in the batch: pass the same sentences, in the same order"
                )
        member_weights(self.saw, batch.index)

    def __call__(self, batch: Batch) -> Mixture:
        self.check(batch)
        rows, answers = batch.index.tolist(), []
        for tagger, order in zip(self.taggers, self._orders, strict=True):
            whole, _ = padded([said.float().cpu() for said in tagger.said(rows)], 0.0)
            answers.append(whole if order is None else in_order(whole, order))
        logits = self._as_wide(stack_members(answers), batch).to(tensors_in(batch.inputs)[0].device)
        weights = member_weights(self.saw, batch.index)
        if weights is not None:
            weights = weights[:, None].expand(*logits.shape[:2], -1).to(logits)
        return Mixture(Categorical(logits), weights)

    def _as_wide(self, logits: Tensor, batch: Batch) -> Tensor:
        """Padded as the batch is; even distributions there."""
        more = 0 if batch.weight is None else batch.weight.shape[1] - logits.shape[1]
        return torch.nn.functional.pad(logits, (0, 0, 0, 0, 0, more))
