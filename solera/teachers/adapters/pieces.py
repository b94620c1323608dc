"""Words as a sub-word tokenizer cuts them, so that every word is found again."""

from collections.abc import Sequence
from typing import Any

from solera.teachers.adapters.huggingface import WORD_STARTS

UNLIMITED = 10**9  # a tokenizer that knows no limit says more than this


def _encoded(tokenizer: Any, words: Sequence[str], number: int) -> Any:
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not say which piece belongs to which word: pass a fast tokenizer "
            "(AutoTokenizer gives one, with tokenizers installed)"
        )
    try:
        return tokenizer(list(words), is_split_into_words=True, truncation=False)
    except AssertionError as error:  # of a byte-level tokenizer
        raise ValueError(f"the tokenizer refuses words, sentence {number} was the first: {error}") from error


def _starts(tokenizer: Any, encoded: Any, words: Sequence[str], number: int) -> list[int]:
    first: dict[int, int] = {}
    for place, word in enumerate(encoded.word_ids()):
        if word is not None:
            first.setdefault(word, place)
    if lost := [place for place in range(len(words)) if place not in first]:
        raise ValueError(
            f"{type(tokenizer).__name__} loses word {lost[0]} of sentence {number}, {words[lost[0]]!r}: it makes no "
            "piece of it, so nobody can speak for it; replace it by a word that the tokenizer knows, such as its "
            f"unknown token {tokenizer.unk_token!r}"
        )
    return [first[place] for place in range(len(words))]


def word_pieces(
    sentences: Sequence[Sequence[str]], tokenizer: Any, most: int | None = None
) -> dict[str, list[list[int]]]:
    """What the tokenizer makes of each sentence of words, and `word_starts`: where each word's first piece stands.

    For `Sequences(word_pieces(...), tags, padding={"input_ids": tokenizer.pad_token_id})` and `TokenClassifier`. A word
    without a piece, and a sentence of more than `most` pieces (or than the tokenizer's model takes), is an error.
    """
    limit = most or (tokenizer.model_max_length if tokenizer.model_max_length < UNLIMITED else None)
    columns: dict[str, list[list[int]]] = {}
    for number, words in enumerate(sentences):
        if not words:
            raise ValueError(f"sentence {number} is empty: leave it out")
        encoded = _encoded(tokenizer, words, number)
        starts = _starts(tokenizer, encoded, words, number)
        if limit is not None and len(encoded["input_ids"]) > limit:
            raise ValueError(
                f"sentence {number} ({len(words)} words) makes {len(encoded['input_ids'])} pieces, the model takes "
                f"{limit}: cut it into shorter ones"
            )
        for key, values in {**encoded, WORD_STARTS: starts}.items():
            columns.setdefault(key, []).append(list(values))
    if not columns:
        raise ValueError("there are no sentences: pass at least one")
    return columns
