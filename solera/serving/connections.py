"""HTTP connections with limits: how many, how long they may wait or be read slowly, how small their pieces may be."""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from solera.serving.settings import Settings

HEAD = 32_768  # bytes of a request's line and headers
READ = 32_768  # bytes that are taken from one connection before others have their turn
PIECES, LEAST = 1000, 64  # a body in more pieces than this must have 64 bytes in each: every piece costs the same time


class Limited(h11.Connection):
    """Refuses bodies in a great many tiny pieces: 16 MB of them would keep the event loop busy for minutes."""

    pieces = size = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self.pieces += 1
            self.size += len(event.data)
            if self.pieces > PIECES and self.size < LEAST * self.pieces:
                raise h11.RemoteProtocolError(f"more than {PIECES} pieces of less than {LEAST} bytes")
        elif isinstance(event, h11.Request):
            self.pieces = self.size = 0
        return event


def protocol(settings: Settings) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 with the limits of these settings."""

    class Connection(H11Protocol):
        """One of a client; `since` is when it began to wait for what it does now."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.conn = Limited(h11.SERVER, HEAD)
            self.since, self.served, self.unread = self.loop.time(), 0, 0

        @property
        def waits(self) -> bool:
            """Whether no request is being answered: it is idle, or sends its headers, or reads its last answer."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            transport.max_size = READ  # type: ignore[attr-defined]  # asyncio's own is 256 kB
            if len(self.connections) > settings.max_connections:
                others: list[Connection] = [c for c in self.connections if isinstance(c, Connection) and c.waits]
                # who never finished a request goes first, then who waits longest; if nobody waits, the newcomer goes
                min(others, key=lambda c: (c.served > 0, c is self, c.since)).transport.abort()

        def handle_events(self) -> None:
            cycle = self.cycle
            super().handle_events()
            if self.cycle is not cycle:
                self.since = self.loop.time()

        def on_response_complete(self) -> None:
            self.since, self.served = self.loop.time(), self.served + 1
            super().on_response_complete()

        def sweep(self, now: float) -> None:
            """Ends it if it has waited too long; uvicorn's own limit is for idle clients that have read everything."""
            unread = self.transport.get_write_buffer_size()
            if unread < self.unread:
                self.since = now  # it reads its answer, however slowly
            self.unread = unread
            limit = 2 * settings.timeout + 5  # of a request; it has limits of its own
            if self.waits or unread:
                limit = settings.idle if self.served else min(settings.idle, settings.timeout)
            if now - self.since > limit:
                self.transport.abort()

        def send_400_response(self, msg: str) -> None:
            if self.conn.our_state is not h11.IDLE and self.conn.our_state is not h11.SEND_RESPONSE:
                self.transport.abort()  # an answer is on its way already
                return
            reason = "this is not HTTP/1.1, or its headers are too long, or its body comes in too many tiny pieces"
            content = json.dumps({"status": 400, "field": "request", "reason": f"{reason}: send it otherwise"}).encode()
            headers = [("content-type", "application/json"), ("content-length", str(len(content)))]
            answer = h11.Response(status_code=400, headers=[*headers, ("connection", "close")], reason=b"Bad Request")
            for event in (answer, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.close()

    return Connection
