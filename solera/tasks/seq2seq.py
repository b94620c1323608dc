"""Sequences to sequences: the next token, given all before it."""

from dataclasses import dataclass
from typing import ClassVar

from solera.tasks.classification import Classification


@dataclass(frozen=True)
class Seq2Seq(Classification):
    """One class per token of the target, teacher-forced: the network reads the target's own prefix, not its guesses.

    The target holds each token and its end of sequence; padding is unlabelled.
    """

    name: ClassVar[str] = "seq2seq"
