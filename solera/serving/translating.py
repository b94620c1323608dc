"""The HTTP service of a translator: text in, its translation out, with the uncertainty of every word."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response

from solera.serving.app import add_handlers, add_pages
from solera.serving.budget import Lease
from solera.serving.counters import Counters
from solera.serving.decode import JSON, threshold_of
from solera.serving.front import Front
from solera.serving.graph import Arrays
from solera.serving.limits import Limits
from solera.serving.nested import json_of
from solera.serving.refused import RefusedError, short
from solera.serving.schema import Problem
from solera.serving.service import Line
from solera.serving.settings import Settings
from solera.training.student import Student
from solera.training.translated import Translated

SEND = 'send {"text": "Ein Hund läuft."}, or a list of sentences; with them "beams", "threshold" and "measure"'
MOST_BEAMS = 16
TOGETHER = 8  # sentences that are translated together, before others have their turn
MEASURES = ("total", "data", "knowledge", "rmi")


@dataclass(frozen=True)
class Asked:
    """What a request wants: translations, and a decision about each where there is a threshold."""

    text: list[str]
    beams: int = 5
    threshold: float | None = None
    measure: str = "total"


def read_request(body: bytes, limits: Limits, measures: tuple[str, ...]) -> Asked:
    """Of a body in JSON; what cannot be right is refused by its field."""
    content = json_of(body, SEND)
    known = Asked.__dataclass_fields__
    if not isinstance(content, dict) or "text" not in content or not content.keys() <= known.keys():
        raise RefusedError(422, "body", f"the body is {short(content)}: {SEND}")
    text = [content["text"]] if isinstance(content["text"], str) else content["text"]
    if not isinstance(text, list) or not text or not all(isinstance(line, str) for line in text):
        raise RefusedError(422, "text", f"text is {short(content['text'])}: {SEND}")
    limits.check_rows(len(text), "text", "sentences")
    limits.check_characters(sum(map(len, text)), "text")
    limits.check_tokens(sum(len(line.split()) for line in text), "text")
    beams, threshold = content.get("beams", 5), content.get("threshold")
    if not isinstance(beams, int) or isinstance(beams, bool) or not 1 <= beams <= MOST_BEAMS:
        raise RefusedError(422, "beams", f"beams is {short(beams)}: send a whole number from 1 to {MOST_BEAMS}")
    threshold = threshold_of(threshold)
    measure = content.get("measure", measures[0])
    if not isinstance(measure, str) or measure not in measures:
        raise RefusedError(422, "measure", f"measure is {short(measure)}: send one of {', '.join(measures)}")
    return Asked(text, beams, threshold, measure)


def entry(said: Translated, asked: Asked) -> dict[str, Any]:
    """One translation as JSON; `accepted` where there is a threshold."""
    found = {name: value for name, value in asdict(said).items() if name not in ("measures", "tokens")}
    if asked.threshold is not None:
        found["accepted"] = (getattr(said, asked.measure) or 0.0) <= asked.threshold  # of an empty sentence: nothing
    return found


class Translating:
    """POST /translate: requests take turns, a few sentences at a time."""

    def __init__(self, student: Student, settings: Settings) -> None:
        self.student = student
        (probe,) = student.translate(["a"], beams=1)  # the first one also allocates what it needs
        self.measures = tuple(name for name in MEASURES if getattr(probe, name) is not None)
        settings = replace(settings, max_batch=min(settings.max_batch, TOGETHER))
        self.counters = Counters(self.measures, False, settings.max_batch)
        self.line = Line(settings, self.counters, self.run, inline=0.0)

    def run(self, arrays: Arrays) -> Arrays:
        """Translations of sentences that were asked for with the same number of beams."""
        said = np.empty(len(arrays["text"]), object)
        said[:] = self.student.translate(arrays["text"].tolist(), int(arrays["beams"][0]))
        return {"said": said}

    async def __call__(self, request: Request) -> Response:
        """From the bytes of a request to those of its answer, within the time limit."""
        return await self.line.in_time(request, self._answer)

    async def _answer(self, request: Request, body: bytes, _: Lease) -> Response:
        asked = await self.line.work(len(body), read_request, body, self.line.limits, self.measures)
        request.state.rows = len(asked.text)
        arrays = {"text": np.array(asked.text, object), "beams": np.full(len(asked.text), asked.beams)}
        try:
            said = (await self.line.ask(arrays, asked.beams))["said"]
        except ValueError as error:
            raise RefusedError(422, "text", str(error)) from error
        return Response(await self.line.in_thread(self.written, said.tolist(), asked), media_type=JSON)

    def written(self, said: list[Translated], asked: Asked) -> bytes:
        """The answer; each translation by itself, or json would keep all other threads waiting for the whole."""
        answers = ", ".join(json.dumps(entry(one, asked)) for one in said)
        return f'{{"fingerprint": {json.dumps(self.student.fingerprint)}, "answers": [{answers}]}}'.encode()


def make_translating_app(student: Student, settings: Settings) -> Front:
    """The service as an ASGI application."""
    translating = Translating(student, settings)
    app = FastAPI(title="Solera", docs_url=None, redoc_url=None, lifespan=translating.line.lifespan)
    add_handlers(app)
    add_pages(app, {"/": "translate.html", "/docs": "docs.html"})
    method, measures = type(student.method).__name__, translating.measures

    @app.post("/translate", response_class=Response, responses={422: {"model": Problem}})
    async def translate(request: Request) -> Response:
        """Translate a sentence or several: each with its uncertainty, and with that of its words."""
        return await translating(request)

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

    return Front(app, settings, translating.counters, {"/translate": translating})
