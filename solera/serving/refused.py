"""A request that gets no answer, and why."""

import reprlib
from collections.abc import Mapping

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 4000
_REPR.maxlist = _REPR.maxdict = _REPR.maxtuple = 100
_REPR.maxlevel = 4


class RefusedError(Exception):
    """A request that gets no answer: the status, the field at fault, and one sentence with the value and the remedy."""

    def __init__(self, status: int, field: str, reason: str, headers: Mapping[str, str] | None = None) -> None:
        # half of a character, which JSON may name, cannot be written
        field, reason = (text.encode("utf-8", "backslashreplace").decode() for text in (field, reason))
        super().__init__(reason)
        self.status, self.field, self.reason, self.headers = status, field, reason, dict(headers or {})


def short(value: object, most: int = 60) -> str:
    """A value as a reason shows it; of a large one only the beginning is looked at."""
    text = _REPR.repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
