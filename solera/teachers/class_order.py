"""Class names: which column is which, and which member lacks one."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.progress import tell
from solera.data.names import Names, as_names

ABSENT = -1  # the column of a class that a member does not know


def column_order(names: Sequence[str], wanted: Sequence[str], who: str, reference: str) -> list[int]:
    """For every wanted name, the column that has it, or ABSENT; other names are an error that shows both."""
    if len(set(names)) < len(names) or not set(names) <= set(wanted):
        raise ValueError(
            f"the classes disagree: {who} has {list(names)}, {reference} has {list(wanted)}: "
            "every member must be trained on the same classes, under the same names"
        )
    return [list(names).index(name) if name in names else ABSENT for name in wanted]


def _agreed(members: Sequence[list[str] | None], given: Names | None) -> tuple[list[str] | None, str]:
    """The names everybody goes by, and whose they are: `given`, or those of the first member that has most of them."""
    if given is not None:
        agreed = as_names(given)
        if len(set(agreed)) < len(agreed):
            raise ValueError(f"class_names name a class twice: {agreed}")
        return agreed, "class_names"
    named = [(number, names) for number, names in enumerate(members) if names is not None]
    if not named:
        return None, ""
    most = max(len(names) for _, names in named)
    number, names = next((number, names) for number, names in named if len(names) == most)
    return names, f"member {number}"


def align(members: Sequence[list[str] | None], given: Names | None) -> tuple[list[str] | None, list[list[int] | None]]:
    """The names everybody agrees on, and for every member its columns in that order (None: as they are).

    The order is that of `given`, or of the first member with the most names; members without names have it already.
    A class that a member was never shown has no column there (ABSENT): it gives that class no probability.
    """
    agreed, reference = _agreed(members, given)
    if agreed is None:
        return None, [None] * len(members)
    orders: list[list[int] | None] = []
    for number, names in enumerate(members):
        order = None if names is None else column_order(names, agreed, f"member {number}", reference)
        if order is not None and ABSENT in order:
            missing = [name for name, place in zip(agreed, order, strict=True) if place == ABSENT]
            tell(f"member {number} does not know the class {', '.join(missing)}: it gives it no probability")
        orders.append(None if order == list(range(len(agreed))) else order)
    return agreed, orders


def in_order(logits: Float[Tensor, "*batch own"], order: Sequence[int]) -> Float[Tensor, "*batch K"]:
    """A member's columns in the agreed order; −∞ for a class that it does not know."""
    places = torch.tensor(order, device=logits.device)
    return logits[..., places.clamp(min=0)].masked_fill(places == ABSENT, -torch.inf)
