"""What the names of tags allow: BIO (B-X, I-X, O), BIOES and BILOU (E or L ends an entity, S or U is one by itself)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

_ALIASES = {"L": "E", "U": "S"}


class Forbidden(NamedTuple):
    """True where a tag may not stand."""

    start: Bool[Tensor, "K"]
    transitions: Bool[Tensor, "K K"]  # [previous, next]
    end: Bool[Tensor, "K"]


class Span(NamedTuple):
    """An entity: tokens start to stop − 1 of a row of the batch."""

    row: int
    start: int
    stop: int
    kind: str


def split_tag(name: str) -> tuple[str, str]:
    """B-PER is ("B", "PER"), O is ("O", ""), U-PER is ("S", "PER")."""
    prefix, _, kind = name.partition("-")
    if not (name == "O" or (prefix in "BIESLU" and len(prefix) == 1 and kind)):
        raise ValueError(f"tag {name!r} is neither O nor B, I, E, S, L or U with a type, as in B-PER: rename it")
    return _ALIASES.get(prefix, prefix), kind


def split_tags(names: Sequence[str]) -> list[tuple[str, str]]:
    """Prefixes and types of a list of tags that all differ."""
    parts = [split_tag(name) for name in names]
    if len(set(parts)) < len(parts):
        raise ValueError(f"tags must differ, got {', '.join(names)}: list each once")
    return parts


def _closes(parts: Sequence[tuple[str, str]]) -> bool:
    """Whether entities are closed by a tag of their own, as in BIOES."""
    return any(prefix in "ES" for prefix, _ in parts)


def forbidden_tags(names: Sequence[str]) -> Forbidden:
    """I-X and E-X must continue an X, so no sentence starts with them; where E-X exists, an open X must go on to it."""
    parts = split_tags(names)
    closes = _closes(parts)
    inside = torch.tensor([prefix in "IE" for prefix, _ in parts])
    opened = torch.tensor([prefix in "BI" for prefix, _ in parts])
    alike = torch.tensor([[kind == other for _, other in parts] for _, kind in parts])
    continues = opened.unsqueeze(-1) & inside & alike
    breaks = inside & ~continues
    if closes:
        breaks = breaks | (opened.unsqueeze(-1) & ~continues)
    return Forbidden(inside, breaks, opened if closes else torch.zeros_like(opened))


def exact_span(names: Sequence[str], counted: Bool[Tensor, "T"], span: Span) -> Bool[Tensor, "T K"]:
    """Which tags each token may bear if exactly this entity stands there: B-X, I-X, …, and after it no I-X.

    Tokens that do not count are passed over; every tag is allowed elsewhere.
    """
    parts = split_tags(names)
    closes = _closes(parts)
    positions = counted.nonzero().squeeze(-1).tolist()
    within = [t for t in positions if span.start <= t < span.stop]
    if not within or span.start < 0 or span.stop > len(counted):
        raise ValueError(f"{span} holds no token that counts: give start and stop within the {len(positions)} that do")
    wanted = ["B", *"I" * (len(within) - 1)]
    if closes:
        wanted = [*wanted[:-1], "E"] if len(within) > 1 else ["S"]
    allowed = torch.ones(len(counted), len(parts), dtype=torch.bool)
    for t, prefix in zip(within, wanted, strict=True):
        if (prefix, span.kind) not in parts:
            raise ValueError(f"there is no tag {prefix}-{span.kind}: choose a type of {', '.join(names)}")
        allowed[t] = torch.tensor([part == (prefix, span.kind) for part in parts])
    following = [t for t in positions if t >= span.stop]
    if following:
        allowed[following[0]] = torch.tensor([part not in (("I", span.kind), ("E", span.kind)) for part in parts])
    return allowed


@lru_cache(maxsize=16)
def _rules(names: tuple[str, ...]) -> tuple[dict[str, int], list[bool], list[list[bool]], list[bool]]:
    start, transitions, end = forbidden_tags(names)
    return {name: number for number, name in enumerate(names)}, start.tolist(), transitions.tolist(), end.tolist()


def invalid_tag(names: Sequence[str], tags: Sequence[str]) -> int | None:
    """The place of the first tag that cannot stand where it does; their number if the end comes too early."""
    numbers, start, transitions, end = _rules(tuple(names))
    before = None
    for place, tag in enumerate(tags):
        number = numbers[tag]
        if start[number] if before is None else transitions[before][number]:
            return place
        before = number
    return len(tags) if before is not None and end[before] else None
