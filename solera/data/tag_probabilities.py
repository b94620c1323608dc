"""CoNLL files with the probability of every tag: token, then TAG=p for each tag, then the likeliest tag.

    Angela	O=0.01	B-PER=0.97	I-PER=0.02	B-PER

The first and the last column are those of any CoNLL file, so `load_conll` reads the tokens and tags of such a file. A
file without such columns says a tag for sure.
"""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from solera.core.disk import write_bytes
from solera.data.conll import Line, conll_blocks, require_tokens
from solera.data.tag_scheme import split_tags

SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class TagProbabilities:
    """What a file says: its lines, sentence by sentence, and one number for every tag, 1 or 0 where it names one."""

    path: Path
    names: tuple[str, ...]
    lines: list[list[Line]]
    probabilities: list[Float[np.ndarray, "_ K"]]

    def require_tokens(self, sentences: Sequence[Sequence[str]]) -> None:
        """Refuses a file whose tokens are others than these, by its line."""
        for number, (block, words) in enumerate(zip(self.lines, sentences, strict=False)):
            for line, word in zip(block, words, strict=False):
                if line.columns[0] != word:
                    raise ValueError(
                        f"{self.path}, line {line.number}: the token is {line.columns[0]!r}, sentence {number} of the "
                        f"data has {word!r} there: members must speak of the same tokens, in the same order"
                    )
            if len(block) != len(words):
                raise ValueError(
                    f"{self.path}, line {block[-1].number}: sentence {number} ends after {len(block)} tokens, in the "
                    f"data it has {len(words)}: members must speak of the same tokens"
                )
        if len(self.lines) != len(sentences):
            raise ValueError(f"{self.path} holds {len(self.lines)} sentences, the data {len(sentences)}: pass the same")


def _cell(text: str) -> tuple[str, float] | None:
    """TAG=p, as a name and a number; None if it is something else."""
    name, equals, number = text.rpartition("=")
    try:
        return (name, float(number)) if equals and name else None
    except ValueError:
        return None


def _row(path: Path, line: Line, names: Sequence[str]) -> list[float]:
    """The numbers of one line, once they are some."""
    cells = [cell for text in line.columns[1:] if (cell := _cell(text)) is not None]
    if [name for name, _ in cells] != list(names):
        raise ValueError(
            f"{path}, line {line.number} gives probabilities of {', '.join(name for name, _ in cells) or 'no tag'}, "
            f"the first line of {', '.join(names)}: give all of them, in one order"
        )
    values = [value for _, value in cells]
    if not all(value >= 0 for value in values) or not abs(sum(values) - 1) <= SUM_TOLERANCE:
        raise ValueError(
            f"{path}, line {line.number}: the probabilities of {line.columns[0]!r} are {values} and sum to "
            f"{sum(values):.6g}: they must be at least 0 and sum to 1"
        )
    return values


def load_tag_probabilities(path: str | Path, names: Sequence[str] | None = None) -> TagProbabilities:
    """What a member said, in a CoNLL file, plain or `.gz`; `names` are all tags, for a file of tags alone."""
    path, same = Path(path), {}
    lines: list[list[Line]] = []  # of their columns the first is kept, one text for each different word
    rows: list[Any] = []  # of probabilities, or of tags
    own: list[str] | None = None
    for block in conll_blocks(path):
        if own is None:
            own = [cell[0] for text in block[0].columns[1:] if (cell := _cell(text)) is not None]
            split_tags(own)
        if len(block[0].columns) < 2:
            break
        lines.append([Line(line.number, [same.setdefault(line.columns[0], line.columns[0])]) for line in block])
        if own:
            rows.append(np.array([_row(path, line, own) for line in block]))
        else:
            rows.append([same.setdefault(line.columns[-1], line.columns[-1]) for line in block])
    if not lines:
        raise ValueError(f"{path} holds no predictions: a line is a token, and a tag or TAG=p for every tag")
    if own:
        return TagProbabilities(path, tuple(own), lines, rows)
    known = list(names or sorted({tag for row in rows for tag in row}))
    split_tags(known)
    places = {name: place for place, name in enumerate(known)}
    for block, row in zip(lines, rows, strict=True):
        for line, tag in zip(block, row, strict=True):
            if tag not in places:
                raise ValueError(
                    f"{path}, line {line.number}: the tag {tag!r} is none of {', '.join(known)}: members must use the "
                    "tags of the data"
                )
    identity = np.eye(len(known))
    return TagProbabilities(path, tuple(known), lines, [identity[[places[tag] for tag in row]] for row in rows])


def save_tag_probabilities(
    path: str | Path,
    sentences: Sequence[Sequence[str]],
    names: Sequence[str],
    probabilities: Sequence[Float[np.ndarray, "_ K"]],
    tags: Sequence[Sequence[str]] | None = None,
) -> Path:
    """Writes them, to six digits; `tags` are the last column, without them each token's likeliest one."""
    path, lines = Path(path), []
    for number, (words, rows) in enumerate(zip(sentences, probabilities, strict=True)):
        require_tokens(words, number)
        said: Sequence[str] = [names[int(place)] for place in rows.argmax(-1)] if tags is None else tags[number]
        for word, row, tag in zip(words, rows, said, strict=True):
            cells = [f"{name}={value:.6g}" for name, value in zip(names, row, strict=True)]
            lines.append("\t".join([word, *cells, tag]))
        lines.append("")
    content = ("\n".join(lines) + "\n").encode()
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path
