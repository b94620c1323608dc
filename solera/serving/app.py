"""The HTTP service: one student, asked by programs (`/predict`) and tried by people (`/`)."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from solera.serving.answers import answer_type, as_json, as_npy, as_npz, decided, require_finite
from solera.serving.batching import Batcher, FullError
from solera.serving.counters import Counters
from solera.serving.graph import Arrays
from solera.serving.reading import JSON, NPZ, Asked, RefusedError, measure_of, read, short, threshold_in_query
from solera.serving.schema import REASONS, Facts, Health, Problem, answer, parameters, request_body
from solera.serving.served import Served, versions
from solera.serving.settings import Settings

ASSETS = Path(__file__).with_name("assets")
PAGES = {"/": "page.html", "/docs": "docs.html"}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
log = logging.getLogger("solera.serving")


class Watch:
    """Counts and logs every request: one line each, never what was in it."""

    def __init__(self, app: Any, counters: Counters, paths: frozenset[str]) -> None:
        self.app, self.counters, self.paths = app, counters, paths

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def sent(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        state = scope.setdefault("state", {})
        self.counters.open += 1
        try:
            await self.app(scope, receive, sent)
        finally:
            seconds = time.perf_counter() - start
            self.counters.open -= 1
            # strangers must not be able to make up new names: each is a time series for ever
            path = scope["path"] if scope["path"] in self.paths else "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.counters.finished(path, method, status, seconds)
            fields = {"method": method, "path": path, "status": status, "milliseconds": round(1000 * seconds, 3)}
            log.info("request", extra={"fields": {**fields, "rows": state.get("rows", 0)}})


def problem(refused: RefusedError) -> Response:
    """A refusal as an answer."""
    content = Problem(status=refused.status, field=refused.field, reason=refused.reason).model_dump()
    return JSONResponse(content, refused.status, refused.headers)


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

    async def predict(self, request: Request) -> Response:
        """From the bytes of a request to those of its answer, within the time limit."""
        kind = answer_type(request.headers.get("accept", ""))
        seconds, asked = self.settings.timeout, None
        try:
            async with asyncio.timeout(seconds):
                asked = await self.asked(request)
                request.state.rows = asked.rows
                said = await self.said(asked)
        except TimeoutError:
            if asked is None:
                reason = f"the body did not arrive within {seconds:g} s: send it faster, or fewer rows at a time"
                raise RefusedError(408, "body", reason, {"Connection": "close"}) from None
            reason = f"the answer was not ready within {seconds:g} s: send fewer rows at a time, or try again later"
            raise RefusedError(504, "service", reason, {"Retry-After": "1"}) from None
        accepted = decided(said, asked.threshold, asked.measure)
        self.counters.answered(said, accepted)
        if kind == JSON:
            content = as_json(said, accepted, self.served, asked.threshold, asked.measure)
        else:
            content = as_npz(said, accepted) if kind == NPZ else as_npy(said, accepted)
        return Response(content, media_type=kind)


def _handlers(app: FastAPI) -> None:
    """Every refusal is a Problem."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return problem(error)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        reason = f"{request.method} {short(request.url.path)}: {error.detail}, see /docs for what there is"
        return problem(RefusedError(error.status_code, "path", reason, error.headers))

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, error: ClientDisconnect) -> Response:
        return problem(RefusedError(400, "body", "the body ended early: send all of it"))

    @app.exception_handler(Exception)
    async def ours(_: Request, error: Exception) -> Response:
        return problem(RefusedError(500, "service", "this is a fault of the service, not of the request: see its log"))


def _assets(app: FastAPI) -> None:
    """The pages, from files read once; nothing in them comes from elsewhere."""
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in ASSETS.iterdir() if path.suffix in TYPES}

    def page(url: str, name: str) -> None:
        content, kind = files[name]

        @app.get(url, include_in_schema=False)
        async def given() -> Response:
            return Response(content, media_type=kind, headers=SAFE)

    for url, name in PAGES.items():
        page(url, name)
    for name in files:
        if name not in PAGES.values():
            page(f"/assets/{name}", name)


def make_app(served: Served, settings: Settings) -> FastAPI:
    """The service as an ASGI application."""
    service = Service(served, settings)
    app = FastAPI(
        title="Solera",
        description=f"A {served.method} student: one model that says how sure it is, and why.",
        version=versions()["solera"],
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        lifespan=service.lifespan,
    )
    _handlers(app)
    _assets(app)
    problems: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem, "description": text} for status, text in REASONS.items()
    }
    problems[503]["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}}

    @app.post(
        "/predict",
        response_class=Response,
        responses={200: answer(served), **problems},
        openapi_extra={"requestBody": request_body(served), "parameters": parameters(served)},
    )
    async def predict(request: Request) -> Response:
        """Ask the student about one example or many: JSON or NumPy bytes in, JSON or NumPy bytes out."""
        return await service.predict(request)

    @app.get("/health", response_description="It is ready")
    async def health() -> Health:
        """Is it ready, and what is it?"""
        return Health(ready=service.batcher is not None, fingerprint=served.fingerprint, versions=versions())

    @app.get("/model", response_description="Shapes, names, units, thresholds")
    async def model() -> Facts:
        """What the student takes and says."""
        return Facts(**served.facts)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> PlainTextResponse:
        """Counters, in Prometheus' text format."""
        waiting = service.batcher.waiting if service.batcher else 0
        text = service.counters.text(waiting, {"fingerprint": served.fingerprint, "method": served.method})
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    paths = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(Watch, counters=service.counters, paths=paths)  # type: ignore[arg-type]
    return app
