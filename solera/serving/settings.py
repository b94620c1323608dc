"""How a service runs."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_POSITIVE = (
    "max_batch",
    "max_queue",
    "max_bytes",
    "max_rows",
    "max_tokens",
    "max_in_flight",
    "max_connections",
    "timeout",
    "idle",
)


def bytes_of(text: str) -> int:
    """16MB, 512kB, 1GiB or a plain number."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", text)
    if not found or found[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no size: write bytes such as 16MB, 512kB or 1048576")
    return int(found[1]) * _UNITS[found[2].upper()]


def host_name(header: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address; empty if there is none."""
    found = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?", header.strip())
    return (found[1] or found[2] or "").lower().rstrip(".") if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Settings:
    """Where a service listens, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8000
    max_batch: int = 64  # rows that are computed together
    max_wait_ms: float = 2.0  # that the first of them waits for others
    max_queue: int = 4096  # rows that wait before requests are turned away
    max_bytes: int = 16 * 10**6  # of a body, as it arrives and unpacked
    timeout: float = 10.0  # seconds from a request to its answer, and from a connection to its first request
    threads: int | None = None
    max_rows: int = 4096  # rows, texts or sentences of one request
    max_tokens: int = 16_384  # tokens of one request
    max_in_flight: int = 64 * 10**6  # bytes of all requests above 64 kB that are being received, read or answered
    max_connections: int = 1024
    idle: float = 30.0  # seconds that a connection may stay open without a request
    hosts: Sequence[str] = ()  # names by which the service may be called, beside localhost and addresses; "*": any

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be more than 0")
        if not self.max_wait_ms >= 0:
            raise ValueError(f"max_wait_ms is {self.max_wait_ms}: it must be 0 or more")
        if not 0 <= self.port < 65536:
            raise ValueError(f"port is {self.port}: choose one from 0 (any that is free) to 65535")
        if isinstance(self.hosts, str):
            raise ValueError(f"hosts is {self.hosts!r}: pass a list of names")

    def allows(self, header: str) -> bool:
        """Whether a request with this Host header is answered.

        A page of a stranger can let its own name point to this machine and read the answers in the visitor's browser
        (DNS rebinding). Such a request carries the stranger's name; an address or a listed name it cannot carry.
        """
        name = host_name(header)
        known = {"localhost", self.host.lower(), *(host.lower() for host in self.hosts)}
        return "*" in self.hosts or name in known or _is_address(name)
