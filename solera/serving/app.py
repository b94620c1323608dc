"""The HTTP service: one student, asked by programs (`/predict`) and tried by people (`/`)."""

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from solera.serving.counters import Counters
from solera.serving.refused import RefusedError, short
from solera.serving.schema import REASONS, Facts, Health, Problem, answer, parameters, request_body
from solera.serving.schema_entities import entities_answer, texts_body
from solera.serving.served import Served, versions
from solera.serving.service import Service
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

    if served.reader is not None:

        @app.post(
            "/entities",
            response_class=Response,
            responses={200: entities_answer(served), **problems},
            openapi_extra={"requestBody": texts_body()},
        )
        async def entities(request: Request) -> Response:
            """Find entities in text, or in tokens: each with its type, place, confidence and uncertainties."""
            return await service.entities(request)

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
