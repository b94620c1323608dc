"""A small PNG writer, so that a report can show images without an image library."""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import UInt8

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(pixels: UInt8[np.ndarray, "height width *colours"]) -> bytes:
    """A file of 8 bits a colour: grey [H, W], or red, green and blue [H, W, 3]."""
    height, width = pixels.shape[:2]
    kind = 2 if pixels.ndim == 3 else 0
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    lines = np.ascontiguousarray(pixels).reshape(height, -1)
    unfiltered = np.pad(lines, ((0, 0), (1, 0))).tobytes()  # each line begins with its filter: 0, none
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(unfiltered, 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def data_uri(pixels: UInt8[np.ndarray, "height width *colours"]) -> str:
    """The same as text that a page can hold."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
