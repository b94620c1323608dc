"""A student as one graph, ONNX or torch.export, with named outputs: mean, total and, for most methods, data, knowledge.

A graph is compared with PyTorch before it takes its name, on inputs that are passed for it, and refused if they differ.
"""

import copy
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.disk import write_bytes
from solera.data import tensors_in
from solera.distributions.base import Prediction
from solera.serving.trace import Answers, axes_of, prepared, quietly, trace
from solera.training.card import Input, Preprocessing, input_names
from solera.training.student import Student, outputs_of

LEAST = 16  # rows of the largest batch that is compared: fewer examples are repeated
TOLERANCE = 1e-5  # relative to max(1, |value|), and to what a variance can be known to
_INT64, _FLOAT64, _FLOATS = 7, 11, (1, 10, 11, 16)  # ONNX's numbers of types: float32, float16, float64, bfloat16
FORMATS = (".onnx", ".pt2")
Arrays = dict[str, np.ndarray]
Run = Callable[[list[Tensor]], Sequence[Any]]


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX graphs need onnx, onnxscript and onnxruntime ({error}): pip install 'solera[onnx]'"
        ) from error


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


@dataclass(frozen=True)
class Quantized:
    """What int8 weights cost and save: mean |change| of each output, on the inputs that were passed."""

    path: Path
    agreement: float | None  # how often the likeliest class is the same; None: real targets
    changes: dict[str, float]
    bytes: tuple[int, int]  # before, after
    milliseconds: tuple[float, float]  # of one example, before, after

    def __str__(self) -> str:
        (size, smaller), (slow, fast) = self.bytes, self.milliseconds
        lines = [f"{self.path}: {smaller:,} bytes, was {size:,} ({smaller / size:.0%})"]
        lines += [] if self.agreement is None else [f"   agreement  {self.agreement:.2%} of the likeliest classes"]
        lines += [f"{name:>12}  changed by {change:.2g} on average" for name, change in self.changes.items()]
        return "\n".join([*lines, f"     latency  {fast:.3f} ms for one example, was {slow:.3f} ms"])


class Graph:
    """An exported student, run by onnxruntime: arrays or tensors in, named arrays out."""

    def __init__(self, source: str | Path | bytes, threads: int | None = None) -> None:
        _require_onnx()
        import onnxruntime

        if not isinstance(source, bytes) and not Path(source).is_file():
            raise FileNotFoundError(f"{source} is not there: solera export makes it")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        content, what = (source, "this") if isinstance(source, bytes) else (str(source), str(source))
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
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
    def labels(self) -> list[str] | None:
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


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """ONNX has no log1p, expm1 or logaddexp; as ln(1 + x), eˣ − 1 and ln(eˣ + eʸ) they lose what is small, or overflow.

    With u = fl(1 + x), ln(1 + x) = ln u + (x − (u − 1))/u to the last digit; eˣ − 1 is taken in float64. So are sums:
    onnxruntime adds float32 numbers one after the other, and is off by 4e-6 after a thousand classes.
    """
    from onnxscript import opset18

    op: Any = opset18

    def log1p(x: Any) -> Any:
        one = op.CastLike(1.0, x)
        more = op.Add(x, one)
        exact = op.Add(op.Log(more), op.Div(op.Sub(x, op.Sub(more, one)), more))
        return op.Where(op.Less(op.Abs(x), op.CastLike(0.5, x)), exact, op.Log(more))

    def expm1(x: Any) -> Any:
        return op.CastLike(op.Sub(op.Exp(op.Cast(x, to=_FLOAT64)), op.Cast(1.0, to=_FLOAT64)), x)

    def logaddexp(x: Any, y: Any) -> Any:
        smaller = log1p(op.Exp(op.Neg(op.Abs(op.Sub(x, y)))))
        apart = op.Add(op.Max(x, y), smaller)
        return op.Where(op.Equal(x, y), op.Add(x, op.CastLike(float(np.log(2)), x)), apart)

    def added(x: Any, dim: Any = None, keepdim: bool = False, dtype: int = -1) -> Any:
        kind = x.dtype if dtype in (-1, None) else dtype
        kind = kind if kind in _FLOATS else _INT64  # torch adds truth values and small integers as large ones
        wide = op.Cast(x, to=_FLOAT64 if kind in _FLOATS else _INT64)
        axes = [op.Constant(value_ints=dim)] if dim else []
        return op.Cast(op.ReduceSum(wide, *axes, keepdims=keepdim), to=kind)

    aten = torch.ops.aten
    return {
        aten.log1p.default: log1p,
        aten.expm1.default: expm1,
        aten.logaddexp.default: logaddexp,
        aten.sum.dim_IntList: added,
    }


def _to_onnx(program: torch.export.ExportedProgram, names: Sequence[str], outputs: Sequence[str]) -> Any:
    """The model, its inputs, outputs and free axes named; without the paths of source files that torch writes down."""
    made = torch.onnx.export(
        program, input_names=list(names), dynamo=True, verbose=False, custom_translation_table=_translations()
    )
    assert made is not None
    graph = made.model.graph
    assert len({id(value) for value in graph.outputs}) == len(outputs)
    for node in graph.all_nodes():  # values inside that have the name of an output by chance
        for value in node.outputs:
            if value.name in (*names, *outputs):
                value.name = f"{value.name}_inside"
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name
    model = made.model_proto
    free = {}
    for value, axes in zip(model.graph.input, axes_of(program), strict=True):
        pairs = zip(value.type.tensor_type.shape.dim, axes, strict=True)
        free |= {dim.dim_param: axis for dim, axis in pairs if isinstance(axis, str)}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in free:
                dim.dim_param = free[dim.dim_param]
        value.ClearField("metadata_props")
    for node in model.graph.node:
        node.ClearField("metadata_props")
    for part in ("value_info", "metadata_props"):
        model.graph.ClearField(part)
    return model


def metadata(student: Student, inputs: Sequence[Input], outputs: Sequence[str]) -> dict[str, str]:
    """What travels inside the graph: words as they are, the rest as JSON."""
    family = getattr(student.method, "family", "categorical")
    content = {
        "solera": version("solera"),
        "method": {"name": type(student.method).__name__, "settings": asdict(student.method)},
        "labels": student.labels,
        "preprocessing": replace(student.preprocessing, inputs=inputs).entry(student.labels),
        "outputs": list(outputs),
        "family": family,
        "uncertainty": "variance" if family == "gaussian" else "nats",
        "fingerprint": student.fingerprint,
        "thresholds": dict(student.notes.thresholds),
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in content.items()}


def _away(got: Any, want: Tensor, mean: Tensor) -> float:
    """The largest |graph − PyTorch|/max(1, |value|, |mean|·√|value|); a NaN is an infinite one, on both sides, too.

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
        _require_onnx()
    if any(t.device.type != "cpu" for t in student.state_dict().values()):
        student = copy.deepcopy(student).cpu()
    example = prepared(example_inputs)
    tensors, prediction = tensors_in(example), _asked(student, example)
    outputs, known = outputs_of(prediction), [i.name for i in student.preprocessing.inputs]
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

    model = _to_onnx(program, names, outputs)
    onnx.helper.set_model_props(model, facts)
    if model.ByteSize() >= 2**31:
        raise ValueError(f"{path} would have {model.ByteSize():,} bytes, ONNX files end at 2 GB: export to .pt2")
    content = model.SerializeToString()
    graph = Graph(content)
    return content, lambda tensors: list(graph(tensors).values())


def _milliseconds(graphs: Sequence[Graph], one: Any, rounds: int = 30) -> list[float]:
    """Of one example, in turns; medians."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(rounds):
        for graph, samples in zip(graphs, times, strict=True):
            start = time.perf_counter()
            graph(one)
            samples.append(1000 * (time.perf_counter() - start))
    return [median(samples) for samples in times]


def quantize(source: str | Path, path: str | Path, example_inputs: Any) -> Quantized:
    """Writes the ONNX student `source` with int8 weights to `path`, and says what that costs on `example_inputs`.

    Weights are rounded once, what flows through the network while it runs (dynamic quantisation); the uncertainties are
    computed in floating point as before, from outputs that have changed. No bound is promised: it is measured.
    """
    _require_onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, path = Path(source), Path(path)
    before = Graph(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    # unsigned: onnxruntime has no convolution with signed weights, and its products of them may saturate
    with quietly():
        quantize_dynamic(source, path, weight_type=QuantType.QUInt8)
    after, tensors = Graph(path), tensors_in(prepared(example_inputs))
    said, says = before(tensors), after(tensors)
    agreement = None
    if before.metadata["family"] == "categorical":
        agreement = float((said["mean"].argmax(-1) == says["mean"].argmax(-1)).mean())
    changes = {name: float(np.abs(says[name] - said[name]).mean()) for name in said}
    slow, fast = _milliseconds([before, after], [t[:1] for t in tensors])
    sizes = (source.stat().st_size, path.stat().st_size)
    return Quantized(path, agreement, changes, sizes, (slow, fast))
