"""How a service runs."""

import re
from dataclasses import dataclass

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def bytes_of(text: str) -> int:
    """16MB, 512kB, 1GiB or a plain number."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if not found or found[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no size: write bytes such as 16MB, 512kB or 1048576")
    return int(found[1]) * _UNITS[found[2].upper()]


@dataclass(frozen=True)
class Settings:
    """Where a service listens, and what it bears."""

    host: str = "127.0.0.1"
    port: int = 8000
    max_batch: int = 64  # rows that are computed together
    max_wait_ms: float = 2.0  # that the first of them waits for others
    max_queue: int = 4096  # rows that wait before requests are turned away
    max_bytes: int = 16 * 10**6
    timeout: float = 10.0  # seconds from a request to its answer
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_queue", "max_bytes", "timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be more than 0")
        if not self.max_wait_ms >= 0:
            raise ValueError(f"max_wait_ms is {self.max_wait_ms}: it must be 0 or more")
        if not 0 <= self.port < 65536:
            raise ValueError(f"port is {self.port}: choose one from 0 (any that is free) to 65535")
