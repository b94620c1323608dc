"""A text read by a student: its words and tags, its entities, and how uncertain it is as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from solera.data import Span, Tags
from solera.data.chunks import windows
from solera.data.sequences import padded
from solera.data.words import Word, words_of
from solera.distributions.base import Prediction
from solera.nn import Tagger, WordFeatures
from solera.nn.call import call
from solera.tasks.base import uncertainties
from solera.tasks.mentions import Entity, mentions, placed

if TYPE_CHECKING:
    from solera.training.student import Student

MOST = 2048  # tokens that a network looks at together
TOGETHER = 32  # entities of which a CRF is asked at once
CONTEXT = 64  # neighbours on each side of a token, where a network does not say how many it looks at


@dataclass(frozen=True)
class Reading:
    """A text's words with their tags, its entities, and the mean uncertainty of its tokens in nats."""

    words: list[Word]
    tags: list[str]
    entities: list[Entity]
    total: float
    data: float | None = None
    knowledge: float | None = None


def _parts(student: "Student") -> tuple[WordFeatures, Tags]:
    words = next((part for part in student.model.modules() if isinstance(part, WordFeatures)), None)
    if words is None or student.class_names is None:
        raise ValueError(
            f"this student's {type(student.model).__name__} takes no words: entities are found by students whose "
            "network is a solera.nn.Tagger; others predict from inputs, student.predict(inputs)"
        )
    return words, Tags.read(student.class_names)


def _predicted(student: "Student", inputs: Tensor) -> Prediction:
    """Of one text `[T, columns]`, however long: in windows that overlap, each token kept once."""
    context = max((c for part in student.model.modules() if (c := getattr(part, "context", 0))), default=CONTEXT)
    if any(isinstance(part, Tagger) and part.crf is not None for part in student.model.modules()):
        context = max(context, CONTEXT)  # a tag hangs on all the others, and ever less on those further off
    device = next((p.device for p in student.model.parameters()), torch.device("cpu"))
    outputs = [
        call(student.model, inputs[None, seen].to(device))[:, kept]
        for seen, kept in windows(len(inputs), MOST, context)
    ]
    return student.method.predict(torch.cat(outputs, 1))


def _places(found: list[Entity], words: list[Word]) -> list[tuple[int, int]]:
    """The first word of each entity, and the one after its last."""
    starts = {word.start: place for place, word in enumerate(words)}
    stops = {word.end: place + 1 for place, word in enumerate(words)}
    return [(starts[entity.start], stops[entity.end]) for entity in found]


def _exact(network: Tagger, inputs: Tensor, found: list[Entity], words: list[Word]) -> list[Entity]:
    """The confidence of a CRF: the sum over all sequences with exactly this entity ÷ Z, near enough to it to matter."""
    assert network.crf is not None
    exact, places = [], _places(found, words)
    for first in range(0, len(found), TOGETHER):
        some, own = found[first : first + TOGETHER], places[first : first + TOGETHER]
        lows = [max(0, start - CONTEXT) for start, _ in own]
        near = [inputs[low : stop + CONTEXT] for low, (_, stop) in zip(lows, own, strict=True)]
        rows = padded(near, 0)[0].to(network.output.weight.device)
        spans = [
            Span(row, start - low, stop - low, entity.type)
            for row, (entity, low, (start, stop)) in enumerate(zip(some, lows, own, strict=True))
        ]
        sure = network.crf.span_log_prob(network.emissions(rows), spans, network.there(rows)).exp().tolist()
        exact += [replace(entity, confidence=p) for entity, p in zip(some, sure, strict=True)]
    return exact


@torch.no_grad()
def read(student: "Student", given: str | Sequence[str]) -> Reading:
    """What a student says of a text, or of the tokens of one; a text is split into words by `solera.data.words`."""
    text, words = (given, words_of(given)) if isinstance(given, str) else placed(given)
    features, tags = _parts(student)
    if not words:
        return Reading([], [], [], 0.0)
    student.eval()
    inputs = features([[word.text for word in words]])[0]
    prediction = _predicted(student, inputs)
    known = {name: values[0] for name, values in uncertainties(prediction).items()}
    found = mentions(text, words, prediction.mean[0], known, tags)
    if isinstance(student.model, Tagger) and student.model.crf is not None:
        found = _exact(student.model, inputs, found, words)
    own = ["O"] * len(words)
    for entity, (start, stop) in zip(found, _places(found, words), strict=True):
        own[start:stop] = tags.spelled(entity.type, stop - start)
    means = {name: float(values.double().mean()) for name, values in known.items()}
    return Reading(words, own, found, **means)
