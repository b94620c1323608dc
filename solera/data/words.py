"""A text as words, each with its place, where no tokenizer is given."""

import re
import unicodedata
from typing import NamedTuple

JOINED = "\0"  # stands for a character that belongs to the one before it
JOINER = "\u200d"  # of emoji: it binds what follows, too
# initials (U.S.), words and numbers with what joins them inside (full-fledged, 1,000), 's, #this, any sign by itself
WORD = re.compile(r"(?:[^\W\d_]\.){2,}|\w[\w\0]*(?:(?:-|(?<=\d)[.,](?=\d))\w[\w\0]*)*|['’#@]\w[\w\0]*|[^\s\0]\0*")


class Word(NamedTuple):
    """A word and where it stands in its text."""

    text: str
    start: int
    end: int


def _outline(text: str) -> str:
    """The text, where combining marks and what a joiner binds are marked as parts of the character before."""
    found: list[str] = []
    for place, character in enumerate(text):
        bound = unicodedata.category(character).startswith("M") or character == JOINER
        bound = bound or (place > 0 and text[place - 1] == JOINER and not character.isspace())
        own = "\1" if character == JOINED else character
        found.append(JOINED if bound and found and not found[-1].isspace() else own)
    return "".join(found)


def words_of(text: str) -> list[Word]:
    """The words of a text in their order; nothing but blanks is left out."""
    return [Word(text[m.start() : m.end()], m.start(), m.end()) for m in WORD.finditer(_outline(text))]
