"""An exported student with int8 or float16 weights, and what they cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from solera.core.disk import write_bytes
from solera.core.seal import sealed
from solera.data import tensors_in
from solera.serving.graph import Graph, require_onnx
from solera.serving.trace import prepared, quietly

LEAST = 64  # numbers: smaller tensors, the constants of equations among them, keep float32


@dataclass(frozen=True)
class Quantized:
    """What smaller weights cost and save: mean |change| of each output, on the inputs that were passed."""

    path: Path
    agreement: float | None  # how often the likeliest class is the same; None: continuous targets
    changes: dict[str, float]
    bytes: tuple[int, int]  # before, after
    milliseconds: tuple[float, float]  # of one example, before, after

    def __str__(self) -> str:
        (size, smaller), (slow, fast) = self.bytes, self.milliseconds
        lines = [f"{self.path}: {smaller:,} bytes, was {size:,} ({smaller / size:.0%})"]
        lines += [] if self.agreement is None else [f"   agreement  {self.agreement:.2%} of the likeliest classes"]
        lines += [f"{name:>12}  changed by {change:.2g} on average" for name, change in self.changes.items()]
        return "\n".join([*lines, f"     latency  {fast:.3f} ms for one example, was {slow:.3f} ms"])


def _milliseconds(graphs: Sequence[Graph], one: Any, rounds: int = 30) -> list[float]:
    """Of one example, in turns; medians."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(rounds):
        for graph, samples in zip(graphs, times, strict=True):
            start = time.perf_counter()
            graph(one)
            samples.append(1000 * (time.perf_counter() - start))
    return [median(samples) for samples in times]


def _measured(model: Any, source: Path, path: Path, example_inputs: Any) -> Quantized:
    """Writes the model, sealed, and compares it with its source."""
    import onnx

    others = {entry.key: entry.value for entry in model.metadata_props if entry.key != "sha256"}
    onnx.helper.set_model_props(model, others)
    write_bytes(path, sealed(model.SerializeToString(deterministic=True)))
    before, after, tensors = Graph(source), Graph(path), tensors_in(prepared(example_inputs))
    said, says = before(tensors), after(tensors)
    agreement = None
    if before.metadata["family"] == "categorical":
        agreement = float((said["mean"].argmax(-1) == says["mean"].argmax(-1)).mean())
    changes = {name: float(np.abs(says[name] - said[name]).mean()) for name in said}
    slow, fast = _milliseconds([before, after], [t[:1] for t in tensors])
    sizes = (source.stat().st_size, path.stat().st_size)
    return Quantized(path, agreement, changes, sizes, (slow, fast))


def quantize(source: str | Path, path: str | Path, example_inputs: Any) -> Quantized:
    """Writes the ONNX student `source` with int8 weights to `path`, and says what that costs on `example_inputs`.

    Weights are rounded once, what flows through the network while it runs (dynamic quantisation); the uncertainties are
    computed in floating point as before, from outputs that have changed. No bound is promised: it is measured.
    """
    require_onnx()
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, path = Path(source), Path(path)
    Graph(source)  # whole, and a student's
    # unsigned: onnxruntime has no convolution with signed weights, and its products of them may saturate
    with quietly(), TemporaryDirectory() as folder:
        made = Path(folder) / "int8.onnx"
        quantize_dynamic(source, made, weight_type=QuantType.QUInt8)
        return _measured(onnx.load(made), source, path, example_inputs)


def halve(source: str | Path, path: str | Path, example_inputs: Any) -> Quantized:
    """Writes the ONNX student `source` with float16 weights to `path`, and says what that costs on `example_inputs`.

    The file is about half as large. onnxruntime turns the weights into float32: one example takes as long as before,
    many may take longer, and the uncertainties are computed as before. Weights beyond 65,504 stay as they are.
    """
    require_onnx()
    import onnx

    source, path = Path(source), Path(path)
    Graph(source)  # whole, and a student's
    model = onnx.load(source)
    casts = []
    for weight in model.graph.initializer:
        if weight.data_type != onnx.TensorProto.FLOAT:
            continue
        with np.errstate(over="ignore"):
            half = onnx.numpy_helper.to_array(weight).astype(np.float16)
        if half.size < LEAST or not np.isfinite(half).all():
            continue
        name = weight.name
        weight.CopyFrom(onnx.numpy_helper.from_array(half, f"{name}_half"))
        casts.append(onnx.helper.make_node("Cast", [weight.name], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    return _measured(model, source, path, example_inputs)
