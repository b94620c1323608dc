"""A student as one graph, ONNX or torch.export, with named outputs: mean, total and, for most methods, data, knowledge.

A graph is compared with PyTorch before it takes its name, on inputs that are passed for it, and refused if they differ.
"""

import copy
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solera.core.disk import write_bytes
from solera.core.seal import sealed
from solera.data import tensors_in
from solera.distributions.base import Prediction, measures_of
from solera.serving.graph import Graph, require_onnx
from solera.serving.graph_outputs import Answers
from solera.serving.to_onnx import to_onnx
from solera.serving.trace import axes_of, prepared, quietly, trace
from solera.training.card import Input, Preprocessing, input_names
from solera.training.student import Student

LEAST = 16  # rows of the largest batch that is compared: fewer examples are repeated
TOLERANCE = 1e-5  # relative to max(1, |value|), and to what a variance can be known to
FORMATS = (".onnx", ".pt2")
Run = Callable[[list[Tensor]], Sequence[Any]]


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from PyTorch: the largest |difference|/max(1, |value|) of each output."""

    path: Path
    inputs: dict[str, tuple[str | int, ...]]  # axes by the names of the inputs; a named one may have any size
    errors: dict[str, float]
    examples: int
    batch_sizes: tuple[int, ...]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} [{', '.join(map(str, axes))}]" for name, axes in self.inputs.items())
        lines = [f"{self.path}: {self.path.stat().st_size:,} bytes, takes {shapes}"]
        lines += [f"{name:>12}  largest error {error:.1e}" for name, error in self.errors.items()]
        sizes = ", ".join(map(str, self.batch_sizes))
        return "\n".join([*lines, f"compared with PyTorch on {self.examples} examples, in batches of {sizes}"])


def metadata(student: Student, inputs: Sequence[Input], outputs: Sequence[str]) -> dict[str, str]:
    """What travels inside the graph: words as they are, the rest as JSON."""
    family = getattr(student.method, "family", "categorical")
    content = {
        "solera": version("solera"),
        "method": {"name": type(student.method).__name__, "settings": asdict(student.method)},
        "labels": student.class_names,
        "preprocessing": replace(student.preprocessing, inputs=inputs).entry(student.class_names),
        "outputs": list(outputs),
        "family": family,
        "uncertainty": "variance" if family == "gaussian" else "nats",
        "fingerprint": student.fingerprint,
        "thresholds": dict(student.notes.thresholds),
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in content.items()}


def _away(got: Any, want: Tensor, mean: Tensor) -> float:
    """The largest |graph − PyTorch|/max(1, |value|, |mean|·√|value|); a NaN counts as infinite, even if both have it.

    The last is what a variance can be known to: members at 1,000 ± 1 that are right to 1e-6 spread by 1 ± 0.002. Of
    classes, whose means are at most 1, it never counts.
    """
    want, got = want.double(), torch.as_tensor(got).double()
    if want.shape != got.shape:
        return torch.inf
    size, middle = want.abs(), mean.double().abs().amax(-1)
    scale = size.clamp(min=1)
    if size.shape == middle.shape:
        scale = torch.maximum(scale, middle * size.sqrt())
    away = (got - want).abs() / scale
    return float(torch.where(got == want, 0.0, away).nan_to_num(torch.inf).max())


def _errors(run: Run, answers: Answers, parts: Sequence[list[Tensor]]) -> dict[str, float]:
    """How far each output is from PyTorch, over all these inputs."""
    worst = dict.fromkeys(answers.names, 0.0)
    for part in parts:
        wanted = answers(*part)
        for name, want, got in zip(answers.names, wanted, run(part), strict=True):
            worst[name] = max(worst[name], _away(got, want, wanted[0]))
    return worst


def _require_close(path: Path, errors: Mapping[str, float]) -> None:
    wrong = [f"{name} by {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE]
    if wrong:
        raise ValueError(
            f"{path} was not written: the graph differs from PyTorch in {', '.join(wrong)}, more than {TOLERANCE:.0e}: "
            "look for a layer that the exporter translates differently, or export to .pt2"
        )


def export(student: Student, path: str | Path, example_inputs: Any) -> Exported:
    """Writes the student as one graph to `path`, a `.onnx` or a `.pt2` file, for any number of examples.

    `example_inputs` are real inputs, as `student.predict` takes them: the graph is traced with two of them and compared
    with PyTorch on up to 1,024: one, two and many at a time. A difference above 1e-5 is a ValueError, and no file.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"{path} has no known format: name it .onnx (ONNX) or .pt2 (torch.export)")
    if path.suffix == ".onnx":
        require_onnx()
    if any(t.device.type != "cpu" for t in student.state_dict().values()):
        student = copy.deepcopy(student).cpu()
    example = prepared(student.encode(example_inputs))
    tensors, prediction = tensors_in(example), _asked(student, example)
    outputs, known = measures_of(prediction), [i.name for i in student.preprocessing.inputs]
    names = known if len(known) == len(tensors) and not isinstance(example, dict) else input_names(example)
    answers = Answers(student, example, outputs).eval()
    count = prediction.mean.shape[1] if prediction.mean.ndim > 2 else 0
    examples, times = len(tensors[0]), -(-LEAST // len(tensors[0]))
    enough = [torch.cat([t] * times) for t in tensors]
    with quietly():
        program = trace(answers, enough, all(t.ndim > 1 and t.shape[1] == count for t in tensors))
        axes = dict(zip(names, axes_of(program), strict=True))
        taken = Preprocessing.of(dict(zip(names, tensors, strict=True))).inputs
        taken = [replace(i, shape=list(axes[i.name][1:])) for i in taken]
        content, run = _written(program, path, names, outputs, metadata(student, taken, outputs))
        sizes = (1, 2, len(enough[0]))
        parts = [[t[:size] for t in enough] for size in sizes]
        if any("tokens" in sizes for sizes in axes.values()):
            parts.append([t[:, : max(1, count // 2)] for t in enough])
        errors = _errors(run, answers, parts)
    _require_close(path, errors)
    write_bytes(path, content)
    return Exported(path, axes, errors, examples, sizes)


def _asked(student: Student, example: Any) -> Prediction:
    try:
        return student.eval().predict(example)
    except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
        shapes = ", ".join(f"{t.dtype} {list(t.shape)}" for t in tensors_in(example)).replace("torch.", "")
        known = [f"{i.name} {i.dtype} {i.shape or 'of unknown shape'}" for i in student.preprocessing.inputs]
        raise ValueError(
            f"the student cannot read these example_inputs ({shapes}; {str(error).splitlines()[0]}): pass inputs such "
            f"as it was distilled on ({', '.join(known)})"
        ) from error


def _written(
    program: torch.export.ExportedProgram,
    path: Path,
    names: Sequence[str],
    outputs: Sequence[str],
    facts: dict[str, str],
) -> tuple[bytes, Run]:
    """The bytes of the file, and what runs them."""
    if path.suffix == ".pt2":
        file = io.BytesIO()
        torch.export.save(program, file, extra_files={"solera.json": json.dumps(facts)})
        file.seek(0)
        module = torch.export.load(file).module()
        return file.getvalue(), lambda tensors: module(*tensors)
    import onnx

    model = to_onnx(program, names, outputs)
    onnx.helper.set_model_props(model, facts)
    if model.ByteSize() >= 2**31:
        raise ValueError(f"{path} would have {model.ByteSize():,} bytes, ONNX files end at 2 GB: export to .pt2")
    content = sealed(model.SerializeToString(deterministic=True))
    graph = Graph(content)
    return content, lambda tensors: list(graph(tensors).values())
