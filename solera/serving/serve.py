"""`serve`: a student behind HTTP, until it is told to stop."""

import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solera.serving.settings import Settings
from solera.serving.writers import writer_of
from solera.training.student import Student

log = logging.getLogger("solera.serving")


class JSONLines(logging.Formatter):
    """One object on one line for everything that is logged."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        content = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        content |= getattr(record, "fields", {})
        content |= {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(content)


@contextmanager
def _logging() -> Iterator[None]:
    """Our lines and uvicorn's warnings, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines())
    levels = {"solera.serving": logging.INFO, "uvicorn": logging.WARNING}
    for name, level in levels.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).propagate = False
    try:
        yield
    finally:
        for name in levels:
            logging.getLogger(name).removeHandler(handler)


@contextmanager
def _stopped_kindly() -> Iterator[None]:
    """uvicorn raises a signal again after it has obeyed it; there is nothing left for it to do then."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listening(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[
            0
        ]
        listener = socket.socket(family, kind, protocol)  # named, or asyncio leaves Nagle on: 40 ms
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise OSError(f"cannot listen at {where} ({error.strerror}): choose another --host or --port") from error
    return listener


def serve(student: Student | str | Path, settings: Settings = Settings()) -> None:  # noqa: B008  (frozen)
    """Answers requests about a student (or its folder, or its .onnx file) until SIGINT or SIGTERM.

    Then it takes no more, finishes what it has accepted, and returns.
    """
    try:
        import uvicorn

        from solera.serving.app import make_app
        from solera.serving.translating import make_translating_app
    except ImportError as error:
        raise ImportError(f"the service needs fastapi and uvicorn ({error}): pip install 'solera[serve]'") from error
    from solera.serving.served import read_student

    listener = _listening(settings)
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    writer = writer_of(student)
    if writer is not None:
        app, method, fingerprint = (
            make_translating_app(writer, settings),
            type(writer.method).__name__,
            writer.fingerprint,
        )
    else:
        served = read_student(student, settings.threads)
        app, method, fingerprint = make_app(served, settings), served.method, served.fingerprint
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=round(settings.timeout) + 5,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            log.info("ready", extra={"fields": {"url": url, "fingerprint": fingerprint}})
            print(f"{method} student {fingerprint} at {url}, its API at {url}/docs; Ctrl-C ends it")
            sys.stdout.flush()

    with _logging(), _stopped_kindly():
        Server(config).run(sockets=[listener])
        log.info("stopped", extra={"fields": {"url": url}})
