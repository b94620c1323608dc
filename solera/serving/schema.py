"""What the service's own description (OpenAPI) says of its requests and answers, for the student at hand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from solera.data.names import as_names
from solera.serving.decode import JSON, NPY, NPZ
from solera.serving.encode import DEFAULT
from solera.serving.served import Served
from solera.training.card import MEANINGS, Input

Schema = dict[str, Any]
BINARY = {"type": "string", "format": "binary"}
REASONS = {
    400: "The body is not what its Content-Type says",
    406: "The answer cannot have a format that the Accept header names",
    408: "The body did not arrive in time",
    413: "The body has too many bytes, unpacked ones included, or too many rows or tokens",
    415: "The Content-Type is not one that is read",
    421: "The Host header has a name that this service does not answer to",
    422: "The body can be read, but not by this student: shape, dtype, numbers that are not finite, names",
    503: "Too much large work waits: try again after Retry-After seconds",
    504: "The answer was not ready in time",
}


class Problem(BaseModel):
    """Why there is no answer."""

    model_config = ConfigDict(extra="forbid")
    status: int = Field(description="The HTTP status again.")
    field: str = Field(description="What is at fault: a part of the body, a header, a parameter.")
    reason: str = Field(description="One sentence with the value and the remedy.")


class Health(BaseModel):
    """Is the service ready, and which student does it serve?"""

    model_config = ConfigDict(extra="forbid")
    ready: bool
    fingerprint: str
    versions: dict[str, str]


class InputFacts(BaseModel):
    """A tensor that goes in: the shape is of one example; "tokens" may be any number."""

    name: str
    shape: list[int | str]
    dtype: str


class Facts(BaseModel):
    """What goes in and comes out."""

    method: str
    fingerprint: str
    task: str
    uncertainty: str = Field(description="The unit of total, data and knowledge: nats or variance.")
    inputs: list[InputFacts]
    features: list[str]
    units: dict[str, str]
    categories: dict[str, list[str]] = Field(description="The words of the features that hold words.")
    missing: bool = Field(description="May a number be null?")
    labels: list[str]
    types: list[str] = Field(description="Of entities, where the student finds them in text (/entities).")
    measures: list[str]
    thresholds: dict[str, float]


def _largest(kind: np.dtype) -> float:
    """The largest number that is rounded to a finite one of this kind: half a step beyond the largest there is."""
    limits = np.finfo(kind)
    half_step = float(limits.eps) * 2.0 ** (limits.maxexp - 2)
    return math.nextafter(float(limits.max) + half_step, 0.0)


def _number(dtype: str) -> Schema:
    kind = np.dtype(dtype)
    if kind.kind != "f":
        return {"type": "integer"}
    return {"type": "number", "minimum": -_largest(kind), "maximum": _largest(kind)}


def _nested(inner: Schema, shape: Sequence[int | str]) -> Schema:
    for size in reversed(shape):
        length = {"minItems": size, "maxItems": size} if isinstance(size, int) else {"minItems": 1}
        inner = {"type": "array", "items": inner, **length}
    return inner


def _many(one: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": one}


def _value(word: str) -> bool | float | None:
    """The truth value or number that a word is the text of: it may be sent as that, too."""
    if word in ("True", "False"):
        return word == "True"
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and as_names([number]) == [word] else None


def _cell(served: Served, name: str | None) -> Schema:
    """A number, where some may be missing also null, or a word; unknown words are taken for missing ones."""
    if name is not None and name in served.categories:
        words = served.categories[name]
        text: Schema = {"type": "string", "examples": list(words[:8])}
        values = [value for word in words if (value := _value(word)) is not None]
        return {"anyOf": [text, {"type": "null"}, *([{"enum": values}] if values else [])]}
    number = _number(served.inputs[0].dtype)
    return {"anyOf": [number, {"type": "null"}]} if served.missing else number


def _only_input(served: Served) -> Schema:
    """One example or many; of rows with names, each may be an object."""
    features, shape = served.features, list(served.inputs[0].shape or ())
    cells = {name: _cell(served, name) for name in features}
    one = _nested(_cell(served, None), shape)
    if served.categories:
        one = {"type": "array", "prefixItems": list(cells.values()), "minItems": len(cells), "maxItems": len(cells)}
    named = {"type": "object", "properties": cells, "required": list(features), "additionalProperties": False}
    return {"anyOf": [_many(one), one, *([named, _many(named)] if features else [])]}


def _inputs(served: Served) -> Schema:
    if len(served.inputs) == 1:
        return _only_input(served)
    names = [i.name for i in served.inputs]
    each = {i.name: _nested(_number(i.dtype), list(i.shape or ())) for i in served.inputs}
    properties = {name: {"anyOf": [_many(one), one]} for name, one in each.items()}
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def example(served: Served) -> Any:
    """Zeros, of the right shape and with the right names; the first word of every column of words."""

    def zeros(given: Input) -> list[Any]:
        sizes = [size if isinstance(size, int) else 3 for size in given.shape or ()]
        return np.zeros([1, *sizes], given.dtype).tolist()

    if len(served.inputs) > 1:
        return {i.name: zeros(i) for i in served.inputs}
    row = {name: next(iter(served.categories.get(name, [0.0])), None) for name in served.features}
    return [row] if row else zeros(served.inputs[0])


def parameters(served: Served) -> list[Schema]:
    """In the query of POST /predict; useful with NumPy bytes, whose body has no place for them."""
    about = {
        "threshold": ({"type": "number"}, "accept what is at most so uncertain"),
        "measure": ({"enum": list(served.measures)}, f"by this measure, else by {DEFAULT}"),
    }
    return [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        for name, (schema, text) in about.items()
    ]


def request_body(served: Served) -> Schema:
    """For POST /predict."""
    body = {
        "type": "object",
        "properties": {
            "inputs": _inputs(served),
            "threshold": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "measure": {"anyOf": [{"enum": list(served.measures)}, {"type": "null"}]},
        },
        "required": ["inputs"],
        "additionalProperties": False,
    }
    content = {JSON: {"schema": body, "example": {"inputs": example(served)}}}
    arrays = [NPZ, NPY] if len(served.inputs) == 1 else [NPZ]
    return {"required": True, "content": {**content, **{kind: {"schema": BINARY} for kind in arrays}}}


def answer(served: Served) -> Schema:
    """Of POST /predict, status 200."""
    real = served.family == "gaussian"
    each: Schema = {"mean": _nested({"type": "number"}, [*served.axes, len(served.class_names)])}
    each |= {name: _nested({"type": "number"}, served.axes) for name in served.measures}
    properties = {name: {**kind, "description": MEANINGS[name][real]} for name, kind in each.items()}
    if not real:
        properties["label"] = {**_nested({"type": "string"}, served.axes), "description": "the likeliest class"}
    required = list(properties)
    properties["accepted"] = {
        **_nested({"type": "boolean"}, served.axes),
        "description": "is the measure at most the threshold? Only if there is one",
    }
    row = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    body = {
        "type": "object",
        "properties": {
            "fingerprint": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}, "description": "names of what mean holds"},
            "threshold": {"type": "number"},
            "measure": {"enum": list(served.measures), "description": f"{DEFAULT} unless the request names one"},
            "predictions": _many(row),
        },
        "required": ["fingerprint", "labels", "predictions"],
        "additionalProperties": False,
    }
    files = {kind: {"schema": BINARY} for kind in (NPZ, NPY)}
    return {"description": "What the student says of every row", "content": {JSON: {"schema": body}, **files}}
