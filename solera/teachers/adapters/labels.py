"""Class names: which column is which."""

from collections.abc import Sequence

from solera.data.names import Names, class_names


def column_order(names: Sequence[str], wanted: Sequence[str], who: str, reference: str) -> list[int]:
    """For every wanted name, the column that has it; other names are an error that shows both."""
    if sorted(names) != sorted(wanted) or len(set(names)) < len(names):
        raise ValueError(
            f"the classes disagree: {who} has {list(names)}, {reference} has {list(wanted)}: "
            "every member must be trained on the same classes, under the same names"
        )
    return [list(names).index(name) for name in wanted]


def align(members: Sequence[list[str] | None], labels: Names | None) -> tuple[list[str] | None, list[list[int] | None]]:
    """The names everybody agrees on, and for every member its columns in that order (None: as they are).

    The order is that of `labels`, or of the first member that carries names; members without names have it already.
    """
    named = [number for number, names in enumerate(members) if names is not None]
    if labels is not None:
        agreed, reference = class_names(labels), "labels"
        if len(set(agreed)) < len(agreed):
            raise ValueError(f"labels name a class twice: {agreed}")
    elif named:
        agreed, reference = members[named[0]] or [], f"member {named[0]}"
    else:
        return None, [None] * len(members)
    orders: list[list[int] | None] = []
    for number, names in enumerate(members):
        order = None if names is None else column_order(names, agreed, f"member {number}", reference)
        orders.append(None if order == list(range(len(agreed))) else order)
    return agreed, orders
