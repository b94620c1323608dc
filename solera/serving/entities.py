"""The endpoint of a tagger: text or tokens in, entities out."""

from fastapi import Request
from fastapi.responses import Response

from solera.serving.budget import Lease
from solera.serving.decode import JSON
from solera.serving.encode import require_finite
from solera.serving.refused import RefusedError, short
from solera.serving.service import Service, kind_of
from solera.serving.tagging import as_json, read_texts
from solera.tasks.mentions import Entity


class Entities:
    """POST /entities of a service whose student reads words."""

    def __init__(self, service: Service) -> None:
        assert service.served.reader is not None
        (self.only,) = service.served.inputs
        self.service, self.line, self.reader = service, service.line, service.served.reader

    async def __call__(self, request: Request) -> Response:
        """Text or tokens in, entities out, within the time limit."""
        if (kind := kind_of(request)) != JSON:
            raise RefusedError(415, "Content-Type", f"the Content-Type is {short(kind)}: send {JSON}")
        return await self.line.in_time(request, self._answer)

    async def _answer(self, request: Request, body: bytes, lease: Lease) -> Response:
        texts = await self.line.work(len(body), read_texts, body, self.line.limits)
        columns = len(self.service.served.class_names) + len(self.service.served.measures)
        lease.hold(len(body) + 8 * columns * sum(len(words) for _, words in texts))
        request.state.rows = len(texts)
        found = [await self._of_text(text, words) for text, words in texts]
        facts = self.service.served.fingerprint, self.reader.tags.types
        return Response(await self.line.in_thread(as_json, texts, found, *facts), media_type=JSON)

    async def _of_text(self, text: str, words: list) -> list[Entity]:
        """Of one text. Features and Viterbi take their time over a long one, and others wait for the event loop."""
        if not words:
            return []
        numbers = await self.line.in_thread(self.reader.numbers, words)
        parts = []
        for seen, kept in self.reader.windows(len(words)):
            said = await self.service.said({self.only.name: numbers[None, seen]})
            require_finite(said)
            parts.append({name: array[0, kept] for name, array in said.items()})
        return await self.line.in_thread(self.reader.entities, text, words, parts)
