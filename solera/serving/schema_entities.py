"""What the service's own description says of /entities."""

from typing import Any

from solera.serving.decode import JSON
from solera.serving.served import Served

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
WORD: Schema = {"type": "string", "pattern": r"\S"}
UNCERTAIN = {
    "total": "all the uncertainty of its tokens, their mean, in nats",
    "data": "of it, what would remain had everything been seen",
    "knowledge": "of it, what more data would remove: its like has not been seen",
}


def _list(one: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": one}


def _object(properties: dict[str, Schema], description: str = "") -> Schema:
    told = {"description": description} if description else {}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **told,
    }


def texts_body() -> Schema:
    """For POST /entities."""
    tokens = _list(WORD)
    text = _object({"text": {"anyOf": [TEXT, _list(TEXT)]}}, "split into words by the service")
    split = _object({"tokens": {"anyOf": [tokens, _list(tokens)]}}, "words as your tokenizer has them")
    example = {"text": "Angela Merkel visited Paris."}
    return {"required": True, "content": {JSON: {"schema": {"anyOf": [text, split]}, "example": example}}}


def entities_answer(served: Served) -> Schema:
    """Of POST /entities, status 200."""
    assert served.reader is not None
    place = {"type": "integer", "minimum": 0}
    entity: dict[str, Schema] = {
        "text": TEXT,
        "type": {"enum": list(served.reader.tags.types)},
        "start": {**place, "description": "of its first character; of tokens, in the text that blanks make of them"},
        "end": {**place, "description": "of the character after its last"},
        "confidence": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "the probability of exactly these words and this type",
        },
    }
    entity |= {name: {"type": "number", "description": UNCERTAIN[name]} for name in served.measures}
    found = _object({"text": TEXT, "entities": {"type": "array", "items": _object(entity)}})
    body = _object({"fingerprint": TEXT, "types": {"type": "array", "items": TEXT}, "answers": _list(found)})
    return {"description": "The entities of every text, in their order", "content": {JSON: {"schema": body}}}
