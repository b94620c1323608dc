"""The HTTP service: one student, asked by programs (`/predict`) and tried by people (`/`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from solera.serving.entities import Entities
from solera.serving.front import SAFE, Front, problem
from solera.serving.refused import RefusedError, short
from solera.serving.schema import REASONS, Facts, Health, Problem, answer, parameters, request_body
from solera.serving.schema_entities import entities_answer, texts_body
from solera.serving.served import Served, versions
from solera.serving.service import Service
from solera.serving.settings import Settings

ASSETS = Path(__file__).with_name("assets")
PAGES = {"/": "page.html", "/docs": "docs.html"}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PAGE = {
    **SAFE,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def add_handlers(app: FastAPI) -> None:
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


def add_pages(app: FastAPI, pages: Mapping[str, str] = PAGES) -> None:
    """The pages, from files read once; nothing in them comes from elsewhere."""
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in ASSETS.iterdir() if path.suffix in TYPES}

    def page(url: str, name: str) -> None:
        content, kind = files[name]

        @app.get(url, include_in_schema=False)
        async def given() -> Response:
            return Response(content, media_type=kind, headers=PAGE)

    for url, name in pages.items():
        page(url, name)
    for name in files:
        if name not in pages.values():
            page(f"/assets/{name}", name)


def make_app(served: Served, settings: Settings) -> Front:
    """The service as an ASGI application."""
    service = Service(served, settings)
    entities_of = None if served.reader is None else Entities(service)
    app = FastAPI(
        title="Solera",
        description=f"A {served.method} student: one model that says how sure it is, and why.",
        version=versions()["solera"],
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        lifespan=service.line.lifespan,
    )
    add_handlers(app)
    add_pages(app)
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

    if entities_of is not None:

        @app.post(
            "/entities",
            response_class=Response,
            responses={200: entities_answer(served), **problems},
            openapi_extra={"requestBody": texts_body()},
        )
        async def entities(request: Request) -> Response:
            """Find entities in text, or in tokens: each with its type, place, confidence and uncertainties."""
            return await entities_of(request)

    @app.get("/health", response_description="It is ready")
    async def health() -> Health:
        """Is it ready, and what is it?"""
        return Health(ready=service.line.batcher is not None, fingerprint=served.fingerprint, versions=versions())

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
        waiting = service.line.batcher.waiting if service.line.batcher else 0
        text = service.counters.text(waiting, {"fingerprint": served.fingerprint, "method": served.method})
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    direct = {"/predict": service.predict}
    if entities_of is not None:
        direct["/entities"] = entities_of
    return Front(app, settings, service.counters, direct)
