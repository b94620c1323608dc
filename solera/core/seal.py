"""An ONNX file that carries its own checksum.

The checksum is the last of the model's metadata, under `sha256`, and covers every byte before it. Messages of protobuf
are joined by writing one after the other, so the seal is simply appended.
"""

import hashlib

from solera.core.disk import Content


def _seal(digest: str) -> bytes:
    """An entry of ModelProto.metadata_props, field 14: key, field 1, and value, field 2."""
    entry = b"\x0a\x06sha256\x12\x40" + digest.encode()
    return b"\x72" + bytes([len(entry)]) + entry


LENGTH = len(_seal("0" * 64))


def sealed(content: bytes) -> bytes:
    """A model with its checksum."""
    return content + _seal(hashlib.sha256(content).hexdigest())


def has_seal(content: Content) -> bool:
    """Whether it carries one, right or wrong."""
    return len(content) >= LENGTH and bytes(content[-LENGTH:-64]) == _seal("0" * 64)[:-64]


def seal_holds(content: Content) -> bool:
    """Whether every byte is as it was sealed."""
    view = memoryview(content)
    return len(view) >= LENGTH and bytes(view[-LENGTH:]) == _seal(hashlib.sha256(view[:-LENGTH]).hexdigest())
