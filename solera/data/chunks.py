"""Long texts in pieces that a network can take."""

from collections.abc import Iterator, Sequence

from solera.data.conll import Sentence


def _cut(tags: Sequence[str] | None, start: int, most: int, size: int) -> int:
    """Where a piece from `start` on ends: as late as can be, and within no entity if there is any such place."""
    end = min(start + most, size)
    if tags is None or end == size:
        return end
    for place in range(end, start, -1):
        if tags[place].partition("-")[0] in ("O", "B", "S", "U"):
            return place
    return end


def chunked(sentences: Sequence[Sentence], most: int) -> list[Sentence]:
    """The same tokens and tags in the same order, in sentences of at most `most` tokens; no entity is cut that fits."""
    if most < 1:
        raise ValueError(f"a piece has at least one token, got most={most}")
    found = []
    for tokens, tags in sentences:
        start = 0
        while start < len(tokens):
            stop = _cut(tags, start, most, len(tokens))
            found.append(Sentence(tokens[start:stop], None if tags is None else tags[start:stop]))
            start = stop
    return found


def windows(size: int, most: int, context: int) -> Iterator[tuple[slice, slice]]:
    """What to look at, at most so many tokens at a time, and which part of it to keep: together all, each token once.

    Every token that is kept is seen with `context` neighbours on each side, where the text has them.
    """
    if size <= most:
        yield slice(0, size), slice(0, size)
        return
    step = most - 2 * context
    if step < 1:
        raise ValueError(f"{most} tokens at a time leave none to keep beside {context} neighbours on each side")
    for start in range(0, size, step):
        stop = min(start + step, size)
        low, high = max(0, start - context), min(size, stop + context)
        yield slice(low, high), slice(start - low, stop - low)
