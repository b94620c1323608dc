"""An exported student, run by onnxruntime."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from solera.core.disk import read_bytes
from solera.core.errors import DamagedFileError
from solera.core.onnx_files import NOT_ON_OPENING, external_names
from solera.core.seal import has_seal, seal_holds

Arrays = dict[str, np.ndarray]


def require_onnx() -> None:
    """What ONNX graphs need is there, or an error names it."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX graphs need onnx, onnxscript and onnxruntime ({error}): pip install 'solera[onnx]'"
        ) from error


def _require_whole(content: bytes, what: str) -> None:
    """Every byte is as `solera export` wrote it, and the graph reads no other file."""
    if not seal_holds(content):
        why = "it is damaged, its checksum does not match" if has_seal(content) else "it carries no checksum"
        raise DamagedFileError(f"{what} is no graph of a student ({why}): solera export makes one")
    if external_names(Path(what), content):
        raise DamagedFileError(f"{what} is no graph of a student (it keeps weights elsewhere): solera export makes one")


class Graph:
    """An exported student, run by onnxruntime: arrays or tensors in, named arrays out."""

    def __init__(self, source: str | Path | bytes, threads: int | None = None) -> None:
        require_onnx()
        import onnxruntime

        if not isinstance(source, bytes) and not Path(source).is_file():
            raise FileNotFoundError(f"{source} is not there: solera export makes it")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        content, what = (
            (source, "this") if isinstance(source, bytes) else (bytes(read_bytes(Path(source))), str(source))
        )
        _require_whole(content, what)
        try:
            providers = ["CPUExecutionProvider"]
            self.session = onnxruntime.InferenceSession(content, options, providers, disabled_optimizers=NOT_ON_OPENING)
            self.inputs = {node.name: tuple(node.shape) for node in self.session.get_inputs()}
            kinds = {n.name: n.type.removeprefix("tensor(").removesuffix(")") for n in self.session.get_inputs()}
            self.dtypes = {name: np.dtype({"float": "float32"}.get(kind, kind)) for name, kind in kinds.items()}
        except (
            Exception
        ) as error:  # onnxruntime has a dozen kinds, none with a common parent; TypeError: takes no numbers
            reason = str(error).splitlines()[0]
            raise ValueError(f"{what} is no graph of a student ({reason}): solera export makes one") from error
        self.outputs = tuple(node.name for node in self.session.get_outputs())
        self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes or targets, if they are known."""
        return json.loads(self.metadata["labels"])

    def __call__(self, inputs: Any) -> Arrays:
        """What the student says about these inputs, by the names of its outputs."""
        given = dict(inputs) if isinstance(inputs, Mapping) else {}
        if not given:
            given = dict(zip(self.inputs, inputs if isinstance(inputs, (tuple, list)) else [inputs], strict=False))
        if given.keys() != self.inputs.keys():
            raise ValueError(f"the graph takes {list(self.inputs)}, got {list(given)}: pass those, by their names")
        arrays = {name: np.asarray(value) for name, value in given.items()}
        try:
            cast = {name: a.astype(self.dtypes[name], casting="same_kind", copy=False) for name, a in arrays.items()}
            answers: list[Any] = list(self.session.run(None, cast))
        except Exception as error:  # onnxruntime has a dozen kinds, none with a common parent
            got = {name: f"{a.dtype} {list(a.shape)}" for name, a in arrays.items()}
            wanted = {name: f"{self.dtypes[name]} {list(axes)}" for name, axes in self.inputs.items()}
            raise ValueError(f"the graph takes {wanted}, got {got}: {str(error).splitlines()[0]}") from error
        return dict(zip(self.outputs, answers, strict=True))
