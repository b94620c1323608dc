"""ONNX files, run by onnxruntime."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.disk import read_bytes
from solera.core.errors import DamagedFileError
from solera.core.onnx_files import NOT_ON_OPENING, external_files
from solera.core.seal import has_seal, seal_holds
from solera.data import tensors_in
from solera.data.names import Names, as_names
from solera.teachers.adapters.base import Adapter
from solera.teachers.adapters.probabilities import log_of_probabilities

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")
MEANINGS = {"probabilities": True, "logits": False}  # skl2onnx and Hugging Face name their outputs so


def _opened(path: Path) -> tuple[Any, str]:
    """The model, ready to run, and its fingerprint: of the file, and of files beside it that hold weights.

    What runs is what was read for the fingerprint, whatever becomes of the files since.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"{path} needs onnxruntime: pip install 'solera[onnx]'") from error
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    content = read_bytes(path)
    if has_seal(content) and not seal_holds(content):
        raise DamagedFileError(f"{path} is damaged, its checksum does not match: restore it, or export it again")
    beside = external_files(path, content)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if beside:
        names, parts = list(beside), [bytes(part) for part in beside.values()]
        options.add_external_initializers_from_files_in_memory(names, parts, [len(part) for part in parts])
    available = onnxruntime.get_available_providers()
    providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
    checksums = [hashlib.sha256(part).hexdigest() for part in (content, *beside.values())]
    try:
        session = onnxruntime.InferenceSession(bytes(content), options, providers, disabled_optimizers=NOT_ON_OPENING)
    except Exception as error:  # onnxruntime has a dozen kinds, none with a common parent
        raise ValueError(f"onnxruntime cannot open {path}: {error}") from error
    return session, hashlib.sha256(" ".join(checksums).encode()).hexdigest()[:16]


class Onnx(Adapter):
    """A classifier in an ONNX file, with an output of floats `[B, K]`.

    `probabilities` says what that output is: probabilities, or logits. It may be left out where the output has the name
    "probabilities" or "logits". A tensor goes to the only input; a dict of tensors goes to inputs by their names.
    """

    def __init__(self, path: str | Path, probabilities: bool | None = None, class_names: Names | None = None) -> None:
        super().__init__()
        self.path = Path(path)
        self.session, self._fingerprint = _opened(self.path)
        self.class_names = None if class_names is None else as_names(class_names)
        self.inputs: dict[str, str] = {node.name: node.type for node in self.session.get_inputs()}
        for node in self.session.get_inputs():
            if node.type not in DTYPES:
                raise ValueError(f"{self.path} takes {node.type} as {node.name!r}: Solera can give it {list(DTYPES)}")
            if node.shape and isinstance(node.shape[0], int):
                raise ValueError(
                    f"{self.path} takes exactly {node.shape[0]} examples at a time (input {node.name!r} is "
                    f"{node.shape}): export it with a dynamic first axis"
                )
        self.output = self._choose_output()
        meaning = MEANINGS.get(self.output) if probabilities is None else probabilities
        if meaning is None:
            raise ValueError(
                f"{self.path} does not say whether its output {self.output!r} holds probabilities or logits: "
                "say it, Onnx(path, probabilities=True) or Onnx(path, probabilities=False)"
            )
        self.probabilities = meaning

    def _choose_output(self) -> str:
        """The only output of floats with a class axis, or of several the one that is named for it."""
        nodes = self.session.get_outputs()
        found = [node.name for node in nodes if node.type in FLOATS and len(node.shape) >= 2]
        found = [name for name in found if name in MEANINGS] or found
        if len(found) != 1:
            listed = ", ".join(f"{node.name!r} {node.type} {node.shape}" for node in nodes)
            raise ValueError(
                f"{self.path} must have one output of floats [B, K], it has {listed}: export it with that output alone "
                "(from skl2onnx: with options={'zipmap': False})"
            )
        return found[0]

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def _feed(self, inputs: Any) -> dict[str, np.ndarray]:
        if isinstance(inputs, Tensor) and len(self.inputs) == 1:
            inputs = dict.fromkeys(self.inputs, inputs)
        if not isinstance(inputs, dict) or not self.inputs.keys() <= inputs.keys():
            given = list(inputs) if isinstance(inputs, dict) else type(inputs).__name__
            raise ValueError(f"{self.path} needs the inputs {list(self.inputs)}, got {given}: pass a dict of them")
        return {
            name: inputs[name].detach().cpu().numpy().astype(DTYPES[kind], casting="same_kind", copy=False)
            for name, kind in self.inputs.items()
        }

    @torch.no_grad()
    def forward(self, inputs: Any) -> Float[Tensor, "*batch K"]:
        (answer,) = self.session.run([self.output], self._feed(inputs))
        result = torch.from_numpy(answer).to(tensors_in(inputs)[0].device)
        if not self.probabilities:
            return result.float()
        return log_of_probabilities(result.double(), f"the answers of {self.path}").float()
