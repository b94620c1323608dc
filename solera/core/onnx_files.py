"""Untrusted ONNX files: what a model reads besides itself lies beside it, and is a regular file.

They are opened without onnxruntime's constant folding (`NOT_ON_OPENING`): 221 bytes can ask for 400 MB of ones.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from solera.core.disk import inside, read_bytes
from solera.core.errors import DamagedFileError

NOT_ON_OPENING = ["ConstantFolding"]  # optimisers of onnxruntime that would compute parts of a stranger's graph


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor of a model, in graphs, attributes, functions and whatever holds them."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if not hasattr(value, "ListFields") else [value]:
                yield from _tensors(part)


def external_names(path: Path, content: bytes | bytearray) -> list[str]:
    """The files in which a model keeps some of its weights, as it names them."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(bytes(content))
        tensors = [tensor for tensor in _tensors(model) if tensor.external_data or tensor.data_location]
    except (DecodeError, RecursionError, ValueError, TypeError) as error:
        raise DamagedFileError(f"{path} is no ONNX model, or a damaged one: export it again") from error
    return sorted({entry.value for t in tensors for entry in t.external_data if entry.key == "location"} or [])


def external_files(path: Path, content: bytes | bytearray) -> dict[str, bytearray]:
    """What the files beside a model hold, by name: pipes, devices and files of other folders are refused."""
    return {name: _beside(path, name) for name in external_names(path, content)}


def _beside(path: Path, name: str) -> bytearray:
    try:
        return read_bytes(inside(path.parent, name))
    except (DamagedFileError, OSError) as error:
        raise DamagedFileError(
            f"{path} keeps weights in {name!r}, which is no regular file in its folder: put the file beside it"
        ) from error
