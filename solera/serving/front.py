"""Where every request comes in: it is checked, counted and logged here, and the frequent ones are answered at once."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from solera.serving.counters import Counters
from solera.serving.logs import RequestLog
from solera.serving.refused import RefusedError, short
from solera.serving.settings import Settings

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SAFE = {"X-Content-Type-Options": "nosniff"}
HOSTS = 64  # Host headers that are remembered
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Endpoint = Callable[[Request], Awaitable[Response]]
log = logging.getLogger("solera.serving")


def problem(refused: RefusedError) -> Response:
    """A refusal as an answer."""
    content = {"status": refused.status, "field": refused.field, "reason": refused.reason}
    return JSONResponse(content, refused.status, {**SAFE, **refused.headers})


async def answered(endpoint: Endpoint, request: Request) -> Response:
    """Its answer; every refusal is a Problem."""
    try:
        return await endpoint(request)
    except RefusedError as error:
        return problem(error)
    except ClientDisconnect:
        return problem(RefusedError(400, "body", "the body ended early: send all of it"))
    except Exception:
        log.exception("fault")
        return problem(RefusedError(500, "service", "this is a fault of the service, not of the request: see its log"))


class Front:
    """The ASGI application: `direct` paths are POSTed to without FastAPI's routing, which takes longer than they do."""

    def __init__(self, app: FastAPI, settings: Settings, counters: Counters, direct: Mapping[str, Endpoint]) -> None:
        self.app, self.settings, self.counters, self.direct = app, settings, counters, direct
        self.paths = frozenset(str(getattr(route, "path", "")) for route in app.routes)
        self.log = RequestLog()
        self._hosts: dict[bytes, bool] = {}

    def _allowed(self, scope: Any) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if given not in self._hosts:
            if len(self._hosts) >= HOSTS:
                self._hosts.clear()
            self._hosts[given] = self.settings.allows(given.decode("latin-1"))
        return self._hosts[given]

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        if not self._allowed(scope):
            host = Request(scope).headers.get("host", "")
            reason = (
                f"this service is not known as {short(host)}: call it by its address, or start it with --allow-host"
            )
            return await problem(RefusedError(421, "Host", reason))(scope, receive, send)
        endpoint = self.direct.get(scope["path"]) if scope["method"] == "POST" else None
        if endpoint is None:
            return await self.app(scope, receive, send)
        response = await answered(endpoint, Request(scope, receive, send))
        return await response(scope, receive, send)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Counts and logs every request: one line each, never what was in it."""
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
            await self._answer(scope, receive, sent)
        finally:
            seconds = time.perf_counter() - start
            self.counters.open -= 1
            # strangers must not be able to make up new names: each is a time series for ever
            path = scope["path"] if scope["path"] in self.paths else "other"
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.counters.finished(path, method, status, seconds)
            self.log(method, path, status, seconds, state.get("rows", 0))
