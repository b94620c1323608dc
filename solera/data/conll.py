"""CoNLL files: a token and its tag on each line, a blank line between sentences."""

import gzip
import io
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from solera.core.array_files import most_unpacked, require_unpacked
from solera.core.disk import write_bytes
from solera.data.tag_scheme import invalid_tag, split_tag

DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """Tokens and, where they are known, their tags."""

    tokens: list[str]
    tags: list[str] | None = None


class Line(NamedTuple):
    """A line of a file, by its number from 1."""

    number: int
    columns: list[str]


def _content(path: Path) -> bytes:
    """The text's bytes, unpacked."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(most_unpacked(path) + 1)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): copy it again") from error
    require_unpacked(path, len(content), "unpack it first")
    return content


def _lines(path: Path) -> Iterator[str]:
    """One after the other: as a list of texts they would take ten times the file."""
    content = _content(path).rstrip(b"\r\n\t ")
    try:
        yield from io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="\n")
    except UnicodeDecodeError:
        try:
            content.decode("utf-8-sig")  # says where in the whole file
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise ValueError(
                f"{path}, line {line} is not UTF-8 (byte {error.start}): save the file as UTF-8"
            ) from error


def _columns(line: str) -> list[str]:
    """Between tabs; where there are none, between spaces. A token may hold any other character."""
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def conll_blocks(path: Path) -> Iterator[list[Line]]:
    """The lines of each sentence. A document's mark belongs to none."""
    block: list[Line] = []
    width, between = None, True  # at the start, and after a document's mark, blank lines are no empty sentence
    for number, raw in enumerate(_lines(path), 1):
        line = raw.rstrip("\r\n")
        if not line.strip():
            if not block and not between:
                raise ValueError(f"{path}, line {number} is an empty sentence: leave one blank line between sentences")
            if block:
                yield block
            block, between = [], between and not block
        elif line.startswith(DOCUMENT):
            between = True
        else:
            columns = _columns(line)
            width = width or len(columns)
            if len(columns) != width or not columns[0].strip() or not columns[-1].strip():
                raise ValueError(
                    f"{path}, line {number} has {len(columns)} columns ({line!r}), the lines before it have {width}: "
                    "write a token, then its tag"
                )
            block.append(Line(number, columns))
            between = False
    if block:
        yield block


def _renamed(tag: str, types: Mapping[str, str | None] | None) -> str:
    prefix, _, kind = tag.partition("-")
    if types is None or kind not in types:
        return tag
    return "O" if types[kind] is None else f"{prefix}-{types[kind]}"


def _tags(path: Path, block: list[Line], types: Mapping[str, str | None] | None) -> list[str]:
    for line in block:
        try:
            split_tag(line.columns[-1])
        except ValueError as error:
            raise ValueError(f"{path}, line {line.number}: {error}") from error
    return [_renamed(line.columns[-1], types) for line in block]


def _cannot_stand(path: Path, lines: Sequence[int], tags: list[str], place: int) -> ValueError:
    if place == len(tags):
        return ValueError(
            f"{path}, line {lines[-1]}: the sentence ends within an entity, at {tags[-1]}: close it with E- or "
            "L-, or write an entity of one token as S- or U-"
        )
    before = f"after {tags[place - 1]}" if place else "at the start of a sentence"
    return ValueError(
        f"{path}, line {lines[place]}: {tags[place]} cannot stand {before}: begin an entity with B- "
        "(load_conll(path, repair=True) does so), and end it as this file ends its others"
    )


def load_conll(
    path: str | Path, *, types: Mapping[str, str | None] | None = None, repair: bool = False
) -> list[Sentence]:
    """The sentences of a CoNLL file, plain or `.gz`: the first column holds tokens, the last one tags.

    Tags are BIO, BIOES or BILOU; one that cannot follow the tag before it (I-X after O) is refused by its line, or with
    `repair` becomes the B-X that it stands for. `types` renames types of entities, None drops one: {"person": "PER",
    "product": None}. A file of one column holds tokens alone.
    """
    path, same = Path(path), {}
    tokens: list[list[str]] = []
    tags: list[list[str]] = []
    lines: list[Sequence[int]] = []
    for block in conll_blocks(path):
        tokens.append([same.setdefault(line.columns[0], line.columns[0]) for line in block])  # one text for each word
        if len(block[0].columns) > 1:
            tags.append([same.setdefault(tag, tag) for tag in _tags(path, block, types)])
        lines.append(array("q", [line.number for line in block]))
    if not tokens:
        raise ValueError(f"{path} holds no sentence: a line is a token, a tab and its tag")
    if not tags:
        return [Sentence(words) for words in tokens]
    names = {tag for row in tags for tag in row}
    names = sorted(names | {"B-" + tag[2:] for tag in names if tag != "O"})  # what a repair may write
    for numbers, row in zip(lines, tags, strict=True):
        while (place := invalid_tag(names, row)) is not None:
            if not repair or place == len(row) or not row[place].startswith("I-"):
                raise _cannot_stand(path, numbers, row, place)
            row[place] = "B-" + row[place][2:]
    return [Sentence(*pair) for pair in zip(tokens, tags, strict=True)]


def require_tokens(words: Sequence[str], sentence: int) -> None:
    """Refuses what would break a line."""
    for wrong in (word for word in words if re.search(r"[\t\n\r]", word) or not word.strip()):
        raise ValueError(f"sentence {sentence} has a token {wrong!r}: a CoNLL file holds no tab, line end or blank")


def save_conll(path: str | Path, sentences: Sequence[Sentence]) -> Path:
    """Writes a token, a tab and its tag a line, a blank line after each sentence; `.gz` in the name packs it."""
    path, lines = Path(path), []
    for number, (tokens, tags) in enumerate(sentences):
        if not tokens or (tags is not None and len(tags) != len(tokens)):
            raise ValueError(
                f"sentence {number} has {len(tokens)} tokens and {len(tags or [])} tags: a sentence has at least one "
                "token, and a tag for each"
            )
        require_tokens([*tokens, *(tags or [])], number)
        lines += [f"{a}\t{b}" for a, b in zip(tokens, tags, strict=True)] if tags is not None else tokens
        lines.append("")
    content = ("\n".join(lines) + "\n").encode()
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path
