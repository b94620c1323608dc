"""The log of a service: JSON, one object a line, and never so many lines that they fill a disk."""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("solera.serving")
REQUESTS = (2000, 200.0)  # lines about requests: at once, and a second
OTHERS = (20, 1.0)  # lines of every other logger, warnings and tracebacks among them
LONGEST = 4000  # characters of a message or a traceback


class Bucket:
    """Lets `burst` through at once and `rate` a second; counts the rest."""

    def __init__(self, burst: float, rate: float) -> None:
        self.burst, self.rate, self.tokens, self.dropped, self.last = burst, rate, float(burst), 0, time.monotonic()

    def takes(self) -> bool:
        """Whether one more goes through."""
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.last) * self.rate)
        self.last = now
        if self.tokens < 1:
            self.dropped += 1
            return False
        self.tokens -= 1
        return True

    def missing(self) -> int:
        """How many were dropped since this was asked last."""
        dropped, self.dropped = self.dropped, 0
        return dropped


class JSONLines(logging.Formatter):
    """One object on one line for everything that is logged."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        content = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()[:LONGEST]}
        content |= getattr(record, "fields", {})
        content |= {"error": self.formatException(record.exc_info)[-LONGEST:]} if record.exc_info else {}
        return json.dumps(content)


class Limited(logging.Filter):
    """Bounds the lines of every logger; the next line that passes says under `dropped` how many did not.

    Lines about requests are bounded before they are made, by `RequestLog`; start and stop always pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buckets: dict[str, Bucket] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == log.name and record.levelno <= logging.INFO:
            return True
        bucket = self.buckets.setdefault(record.name, Bucket(*OTHERS))
        if not bucket.takes():
            return False
        if missing := bucket.missing():
            record.fields = {**getattr(record, "fields", {}), "dropped": missing}
        return True


class RequestLog:
    """One line about every request, as long as there are not too many: what, how long, how many rows; never inputs."""

    def __init__(self) -> None:
        self.bucket = Bucket(*REQUESTS)

    def __call__(self, method: str, path: str, status: int, seconds: float, rows: int) -> None:
        if not self.bucket.takes():
            return
        fields: dict[str, Any] = {"method": method, "path": path, "status": status}
        fields |= {"milliseconds": round(1000 * seconds, 3), "rows": rows}
        if missing := self.bucket.missing():
            fields["dropped"] = missing
        log.info("request", extra={"fields": fields})


@contextmanager
def json_logs() -> Iterator[None]:
    """Our lines, and everybody's warnings, to stderr; all in JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    handler.addFilter(Limited())
    before = logging.root.handlers[:]
    levels = {log.name: logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.WARNING}
    logging.root.handlers[:] = [handler]
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        logging.root.handlers[:] = before
