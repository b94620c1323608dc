"""The HTTP service of a translator: text in, its translation out, with the uncertainty of every word."""

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from solera.serving.app import Watch, add_handlers, add_pages
from solera.serving.counters import Counters
from solera.serving.reading import JSON
from solera.serving.refused import RefusedError, short
from solera.serving.schema import Problem
from solera.serving.service import body_of
from solera.serving.settings import Settings
from solera.training.student import Student
from solera.training.translated import Translated

SEND = 'send {"text": "Ein Hund läuft."}, or a list of sentences; with them "beams", "threshold" and "measure"'
MOST_BEAMS = 16
MEASURES = ("total", "data", "knowledge", "rmi")


@dataclass(frozen=True)
class Asked:
    """What a request wants: translations, and a decision about each where there is a threshold."""

    text: list[str]
    beams: int = 5
    threshold: float | None = None
    measure: str = "total"


def read_request(body: bytes, most: int, measures: tuple[str, ...]) -> Asked:
    """Of a body in JSON; what cannot be right is refused by its field."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "body", f"the body is not JSON ({short(str(error))}): {SEND}") from None
    known = Asked.__dataclass_fields__
    if not isinstance(content, dict) or "text" not in content or not content.keys() <= known.keys():
        raise RefusedError(422, "body", f"the body is {short(content)}: {SEND}")
    text = [content["text"]] if isinstance(content["text"], str) else content["text"]
    if not isinstance(text, list) or not text or not all(isinstance(line, str) for line in text):
        raise RefusedError(422, "text", f"text is {short(content['text'])}: {SEND}")
    if len(text) > most:
        raise RefusedError(413, "text", f"there are {len(text)} sentences: send at most {most} at a time")
    beams, threshold = content.get("beams", 5), content.get("threshold")
    if not isinstance(beams, int) or isinstance(beams, bool) or not 1 <= beams <= MOST_BEAMS:
        raise RefusedError(422, "beams", f"beams is {short(beams)}: send a whole number from 1 to {MOST_BEAMS}")
    if threshold is not None and (not isinstance(threshold, int | float) or isinstance(threshold, bool)):
        raise RefusedError(422, "threshold", f"threshold is {short(threshold)}: send a number")
    measure = content.get("measure", measures[0])
    if measure not in measures:
        raise RefusedError(422, "measure", f"measure is {short(measure)}: send one of {', '.join(measures)}")
    return Asked(text, beams, threshold, measure)


def entry(said: Translated, asked: Asked) -> dict[str, Any]:
    """One translation as JSON; `accepted` where there is a threshold."""
    found = {name: value for name, value in asdict(said).items() if name not in ("measures", "tokens")}
    if asked.threshold is not None:
        found["accepted"] = (getattr(said, asked.measure) or 0.0) <= asked.threshold  # of an empty sentence: nothing
    return found


def make_translating_app(student: Student, settings: Settings) -> FastAPI:
    """The service as an ASGI application: one request is translated at a time."""
    app = FastAPI(title="Solera", docs_url=None, redoc_url=None)
    add_handlers(app)
    add_pages(app, {"/": "translate.html", "/docs": "docs.html"})
    method, turn = type(student.method).__name__, asyncio.Lock()
    (probe,) = student.translate(["a"], beams=1)  # the first one also allocates what it needs
    measures = tuple(name for name in MEASURES if getattr(probe, name) is not None)
    counters = Counters(measures, False, settings.max_batch)

    async def translated(asked: Asked) -> list[Translated]:
        async with turn:
            try:
                return await asyncio.to_thread(student.translate, asked.text, asked.beams)
            except ValueError as error:
                raise RefusedError(422, "text", str(error)) from error

    @app.post("/translate", response_class=Response, responses={422: {"model": Problem}})
    async def translate(request: Request) -> Response:
        """Translate a sentence or several: each with its uncertainty, and with that of its words."""
        asked = read_request(await body_of(request, settings.max_bytes), settings.max_queue, measures)
        request.state.rows = len(asked.text)
        try:
            async with asyncio.timeout(settings.timeout):
                said = await translated(asked)
        except TimeoutError:
            reason = f"the answer was not ready within {settings.timeout:g} s: send fewer sentences, or try again later"
            raise RefusedError(504, "service", reason, {"Retry-After": "1"}) from None
        answers = [entry(one, asked) for one in said]
        return Response(json.dumps({"fingerprint": student.fingerprint, "answers": answers}), media_type=JSON)

    @app.get("/model")
    async def model() -> dict[str, Any]:
        """What the student says."""
        thresholds = dict(student.notes.thresholds)
        facts = {"task": "translation", "method": method, "fingerprint": student.fingerprint}
        return {**facts, "measures": list(measures), "thresholds": thresholds}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Is it ready, and what is it?"""
        return {"ready": True, "fingerprint": student.fingerprint}

    paths = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(Watch, counters=counters, paths=paths)  # type: ignore[arg-type]
    return app
