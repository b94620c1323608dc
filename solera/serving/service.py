"""What the endpoints share: the student, its line of requests, its limits and its counters."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from solera.serving.batching import Batcher, FullError
from solera.serving.budget import Budget, Lease
from solera.serving.counters import Counters
from solera.serving.decode import Asked, measure_of, read, threshold_in_query
from solera.serving.encode import answer_type, bytes_of_answer, encoded
from solera.serving.graph import Arrays
from solera.serving.limits import Limits
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served
from solera.serving.settings import Settings

Given = TypeVar("Given")
QUICK = 16_384  # bytes that are read or written on the event loop, in less than a millisecond
INLINE = 0.001  # seconds: shorter runs of the graph do not go to a thread


def kind_of(request: Request) -> str:
    """The content type, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def body_of(request: Request, most: int, lease: Lease) -> bytes:
    """All of it, unless it is larger than allowed: then reading stops as soon as that is known."""
    reason = f"send at most {most} bytes at a time, or start the service with a larger --max-bytes"
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        reason = f"the Content-Encoding is {short(coding)}: send the body as it is"
        raise RefusedError(415, "Content-Encoding", reason)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise RefusedError(413, "body", f"the body has {length[:20]} bytes: {reason}")
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise RefusedError(413, "body", f"the body has more than {most} bytes: {reason}")
        lease.hold(len(body))  # what has arrived, not what was announced: who sends nothing takes nothing
    return bytes(body)


def _once(name: str, query: Any, body: Any) -> Any:
    """From the query or from the body, but not two different ones."""
    if query is not None and body is not None and query != body:
        reason = f"{name} is {short(query)} in the query and {short(body)} in the body: send it once"
        raise RefusedError(422, name, reason)
    return body if query is None else query


class Line:
    """Where requests wait for what answers them: read and written off the event loop, within the time limit.

    Small bodies are read, and small answers written, on the event loop itself: a thread takes longer to wake up.
    """

    def __init__(self, settings: Settings, counters: Counters, run: Callable[[Arrays], Arrays], inline: float) -> None:
        self.settings, self.counters, self.run, self.inline = settings, counters, run, inline
        self.limits = Limits(settings.max_bytes, settings.max_rows, settings.max_tokens)
        self.budget = Budget(settings.max_in_flight)
        self.batcher: Batcher | None = None
        self._thread: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """The line is open while the service is."""
        s, seen = self.settings, self.counters.batches.add
        with ThreadPoolExecutor(1, "reading") as self._thread:
            async with Batcher(
                self.run, s.max_batch, s.max_wait_ms / 1000, s.max_queue, seen, self.inline
            ) as self.batcher:
                yield

    async def in_thread(self, function: Callable[..., Given], *arguments: Any) -> Given:
        """The function's result, made off the event loop, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def work(self, size: int, function: Callable[..., Given], *arguments: Any) -> Given:
        """The function's result, for `size` bytes: if they are many, in a thread."""
        return function(*arguments) if size <= QUICK else await self.in_thread(function, *arguments)

    async def in_time(
        self, request: Request, answering: Callable[[Request, bytes, Lease], Awaitable[Response]]
    ) -> Response:
        """The answer to a request, received, read, answered and written within the time limit."""
        seconds, body = self.settings.timeout, None
        with self.budget.lease() as lease:
            try:
                async with asyncio.timeout(seconds):
                    body = await body_of(request, self.settings.max_bytes, lease)
                    return await answering(request, body, lease)
            except TimeoutError:
                if body is None:
                    reason = f"the body did not arrive within {seconds:g} s: send it faster, or fewer rows at a time"
                    raise RefusedError(408, "body", reason, {"Connection": "close"}) from None
                reason = f"the answer was not ready within {seconds:g} s: send fewer rows at a time, or try again later"
                raise RefusedError(504, "service", reason, {"Retry-After": "1"}) from None

    async def ask(self, arrays: Arrays, kind: Any = None) -> Arrays:
        """The answer, in its turn."""
        assert self.batcher is not None
        try:
            return await self.batcher.ask(arrays, kind)
        except FullError:
            reason = f"{self.batcher.waiting} rows wait already: try again in a second"
            raise RefusedError(503, "service", reason, {"Retry-After": "1"}) from None


class Service:
    """What /predict needs: the student, its line of requests and its counters."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self.served, self.settings = served, settings
        self.counters = Counters(served.measures, served.family == "gaussian", settings.max_batch)
        # how long a text takes is not known from others: only runs of fixed shapes may stay on the event loop
        fixed = all(isinstance(size, int) for given in served.inputs for size in given.shape or ())
        self.line = Line(settings, self.counters, served, INLINE if fixed else 0.0)

    def read(self, body: bytes, kind: str, query: Any) -> Asked:
        """The request, read and checked."""
        given = read(body, kind, self.served, self.line.limits)
        if not query:
            return given
        threshold, measure = threshold_in_query(query.get("threshold")), measure_of(query.get("measure"), self.served)
        threshold, measure = _once("threshold", threshold, given.threshold), _once("measure", measure, given.measure)
        return Asked(given.arrays, threshold, measure)

    async def said(self, arrays: Arrays) -> Arrays:
        """What the student says, in its turn."""
        try:
            return await self.line.ask(arrays)
        except ValueError as error:
            raise RefusedError(422, "inputs", f"the student cannot read these inputs: {error}") from error

    async def predict(self, request: Request) -> Response:
        """From the bytes of a request to those of its answer, within the time limit."""
        answer_type(request.headers.get("accept", ""))  # refuses before the body is received
        return await self.line.in_time(request, self._answer)

    async def _answer(self, request: Request, body: bytes, lease: Lease) -> Response:
        kind = answer_type(request.headers.get("accept", ""))
        query = request.query_params if request.scope["query_string"] else {}
        asked = await self.line.work(len(body), self.read, body, kind_of(request), query)
        size = bytes_of_answer(self.served, asked, kind)
        lease.hold(len(body) + sum(array.nbytes for array in asked.arrays.values()) + size)
        request.state.rows = asked.rows
        said = await self.said(asked.arrays)
        content, accepted = await self.line.work(size, encoded, said, asked, self.served, kind)
        self.counters.answered(said, accepted)
        return Response(content, media_type=kind)
