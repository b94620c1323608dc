"""How much one request may ask: counted before its numbers are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solera.serving.refused import RefusedError


@dataclass(frozen=True)
class Limits:
    """Of one request: bytes when it is unpacked, rows, and tokens where the student takes any number of them."""

    bytes: int = 16 * 10**6
    rows: int = 4096
    tokens: int = 16_384

    def check_rows(self, rows: int, name: str, what: str = "rows") -> None:
        """Refuses more rows than one request may have."""
        if rows > self.rows:
            reason = f"{name} has {rows} {what}: send at most {self.rows} at a time, or start with a larger --max-rows"
            raise RefusedError(413, name, reason)

    def check_tokens(self, tokens: int, name: str) -> None:
        """Refuses more tokens than one request may have."""
        if tokens > self.tokens:
            reason = f"{name} has {tokens} tokens: send at most {self.tokens} at a time, or start with a larger"
            raise RefusedError(413, name, f"{reason} --max-tokens")

    def check_characters(self, characters: int, name: str) -> None:
        """Refuses texts that cannot have few enough tokens: nobody's words have 64 letters each."""
        if characters > 64 * self.tokens:
            reason = f"{name} has {characters} characters: send at most {64 * self.tokens} at a time, or start with"
            raise RefusedError(413, name, f"{reason} a larger --max-tokens")

    def check_shape(self, shape: Sequence[int], wanted: Sequence[Any], name: str) -> None:
        """Of an array for an input of the shape `wanted`; a shape that does not fit is for others to refuse."""
        if len(shape) != len(wanted) + 1:
            return
        self.check_rows(shape[0], name)
        free = [size for size, want in zip(shape[1:], wanted, strict=True) if isinstance(want, str)]
        if free:
            self.check_tokens(shape[0] * max(free), name)
