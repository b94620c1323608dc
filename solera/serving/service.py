"""What the endpoints share: the student, its line of requests and its counters."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response

from solera.serving.answers import answer_type, as_json, as_npy, as_npz, decided, require_finite
from solera.serving.batching import Batcher, FullError
from solera.serving.counters import Counters
from solera.serving.graph import Arrays
from solera.serving.reading import JSON, NPZ, Asked, measure_of, read, threshold_in_query
from solera.serving.refused import RefusedError, short
from solera.serving.served import Served
from solera.serving.settings import Settings
from solera.serving.tagging import Texts, read_texts
from solera.serving.tagging import as_json as entities_as_json

Read = TypeVar("Read")
Given = TypeVar("Given")


async def body_of(request: Request, most: int) -> bytes:
    """All of it, unless it is larger than allowed: then reading stops as soon as that is known."""
    reason = f"send at most {most} bytes at a time, or start the service with a larger --max-bytes"
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        reason = f"the Content-Encoding is {short(coding)}: send the body as it is"
        raise RefusedError(415, "Content-Encoding", reason)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise RefusedError(413, "body", f"the body has {length[:20]} bytes: {reason}")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise RefusedError(413, "body", f"the body has more than {most} bytes: {reason}")
        parts.append(part)
    return b"".join(parts)


def _once(name: str, query: Any, body: Any) -> Any:
    """From the query or from the body, but not two different ones."""
    if query is not None and body is not None and query != body:
        reason = f"{name} is {short(query)} in the query and {short(body)} in the body: send it once"
        raise RefusedError(422, name, reason)
    return body if query is None else query


class Service:
    """What the endpoints share: the student, its line of requests and its counters."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self.served, self.settings = served, settings
        self.counters = Counters(served.measures, served.family == "gaussian", settings.max_batch)
        self.batcher: Batcher | None = None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """The line is open while the service is."""
        s = self.settings
        async with Batcher(
            self.served, s.max_batch, s.max_wait_ms / 1000, s.max_queue, self.counters.batches.add
        ) as self.batcher:
            yield

    async def asked(self, request: Request) -> Asked:
        """The request, read and checked."""
        query = {name: request.query_params.get(name) for name in ("threshold", "measure")}
        threshold, measure = threshold_in_query(query["threshold"]), measure_of(query["measure"], self.served)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await body_of(request, self.settings.max_bytes)
        given = read(body, kind, self.served, self.settings.max_bytes)
        threshold, measure = _once("threshold", threshold, given.threshold), _once("measure", measure, given.measure)
        request.state.rows = given.rows
        return Asked(given.arrays, threshold, measure)

    async def said(self, asked: Asked) -> Arrays:
        """The answer, in its turn."""
        assert self.batcher is not None
        try:
            said = await self.batcher.ask(asked.arrays)
        except FullError:
            reason = f"{self.batcher.waiting} rows wait already: try again in a second"
            raise RefusedError(503, "service", reason, {"Retry-After": "1"}) from None
        except ValueError as error:
            raise RefusedError(422, "inputs", f"the student cannot read these inputs: {error}") from error
        require_finite(said)
        return said

    async def in_time(
        self, reading: Awaitable[Read], answering: Callable[[Read], Awaitable[Given]]
    ) -> tuple[Read, Given]:
        """What was asked and what is answered, both within the time limit."""
        seconds, asked = self.settings.timeout, None
        try:
            async with asyncio.timeout(seconds):
                asked = await reading
                return asked, await answering(asked)
        except TimeoutError:
            if asked is None:
                reason = f"the body did not arrive within {seconds:g} s: send it faster, or fewer rows at a time"
                raise RefusedError(408, "body", reason, {"Connection": "close"}) from None
            reason = f"the answer was not ready within {seconds:g} s: send fewer rows at a time, or try again later"
            raise RefusedError(504, "service", reason, {"Retry-After": "1"}) from None

    async def texts(self, request: Request) -> Texts:
        """The texts of a request, read and checked."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise RefusedError(415, "Content-Type", f"the Content-Type is {short(kind)}: send {JSON}")
        texts = read_texts(await body_of(request, self.settings.max_bytes))
        request.state.rows = len(texts)
        return texts

    async def entities(self, request: Request) -> Response:
        """Text or tokens in, entities out, within the time limit."""
        reader, (only,) = self.served.reader, self.served.inputs
        assert reader is not None

        async def ask(numbers: Any) -> Arrays:
            return await self.said(Asked({only.name: numbers}))

        texts, found = await self.in_time(self.texts(request), lambda texts: reader.entities(texts, ask))
        content = entities_as_json(texts, found, self.served.fingerprint, reader.tags.types)
        return Response(content, media_type=JSON)

    async def predict(self, request: Request) -> Response:
        """From the bytes of a request to those of its answer, within the time limit."""
        kind = answer_type(request.headers.get("accept", ""))
        asked, said = await self.in_time(self.asked(request), self.said)
        accepted = decided(said, asked.threshold, asked.measure)
        self.counters.answered(said, accepted)
        if kind == JSON:
            content = as_json(said, accepted, self.served, asked.threshold, asked.measure)
        else:
            content = as_npz(said, accepted) if kind == NPZ else as_npy(said, accepted)
        return Response(content, media_type=kind)
