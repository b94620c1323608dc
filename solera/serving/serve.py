"""`serve`: a student behind HTTP, until it is told to stop."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from solera.serving.logs import json_logs, log
from solera.serving.settings import Settings
from solera.serving.writers import writer_of
from solera.training.student import Student

FILES = 64  # open files beside those of connections
SWEEPS = 5  # ticks of 0.1 s between two looks at connections that wait
SWITCH = 0.0005  # seconds until a thread that reads or writes much lets the event loop go on; Python's own is 0.005


@contextmanager
def _stopped_kindly() -> Iterator[None]:
    """uvicorn raises a signal again after it has obeyed it; there is nothing left for it to do then."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quick_switches() -> Iterator[None]:
    """The event loop does not wait long for threads that read or write large requests."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _room_for(connections: int) -> int:
    """As many connections as the process may have open files for; it takes as many files as it is allowed to."""
    try:
        import resource
    except ImportError:  # not Unix, where files and connections are not counted together
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < connections + FILES:
        soft = connections + FILES if hard == resource.RLIM_INFINITY else min(connections + FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(connections, soft - FILES))


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
        from solera.serving.connections import protocol
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
    settings = replace(settings, max_connections=_room_for(settings.max_connections))
    config = uvicorn.Config(
        app,
        http=protocol(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=round(settings.idle),
        timeout_graceful_shutdown=round(settings.timeout) + 5,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            log.info("ready", extra={"fields": {"url": url, "fingerprint": fingerprint}})
            print(f"{method} student {fingerprint} at {url}, its API at {url}/docs; Ctrl-C ends it")
            sys.stdout.flush()

        async def on_tick(self, counter: int) -> bool:
            if counter % SWEEPS == 0:
                now = asyncio.get_running_loop().time()
                for connection in list(self.server_state.connections):
                    getattr(connection, "sweep")(now)  # noqa: B009  (uvicorn's type has none)
            return await super().on_tick(counter)

    with json_logs(), _stopped_kindly(), _quick_switches():
        Server(config).run(sockets=[listener])
        log.info("stopped", extra={"fields": {"url": url}})
