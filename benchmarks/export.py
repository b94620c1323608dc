"""A student in onnxruntime against the same student and an ensemble of ten in PyTorch, one image at a time."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.timing import measure, ratio, table
from solera import Ensemble, Student
from solera.methods import EnD, Hydra, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.serving import Graph, export, quantize

MEMBERS, SHAPE, CLASSES = 10, (1, 28, 28), 10


def network() -> ConvNet:
    return ConvNet(SHAPE, CLASSES)


def compare(method: Method, batch: int, folder: Path) -> list[float]:
    """Seconds of ONNX and of int8, each ÷ the eager student and ÷ the eager ensemble."""
    torch.manual_seed(0)
    student = Student(method.student(network(), MEMBERS), method).eval()
    ensemble = Ensemble([network() for _ in range(MEMBERS)])
    images = torch.randn(batch, *SHAPE)
    graph = Graph(export(student, folder / "student.onnx", images).path)
    small = Graph(quantize(folder / "student.onnx", folder / "small.onnx", images).path)
    array = images.numpy()

    def eager(model: Student | Ensemble) -> Callable[[], object]:
        def run() -> object:
            said = model.predict(images)
            return [getattr(said, name) for name in graph.outputs]

        return run

    cases = {"onnx": lambda: graph(array), "int8": lambda: small(array)}
    samples = measure({**cases, "student": eager(student), "ensemble": eager(ensemble)}, rounds=15)
    return [ratio(samples, name, baseline) for baseline in ("student", "ensemble") for name in cases]


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for method in (EnD(), ProxyDirichlet(), Hydra()):
            for batch in (1, 64):
                ratios = compare(method, batch, Path(folder))
                rows.append([type(method).__name__, batch, *(f"{r:.3f}" for r in ratios)])
    header = ["convnet, 28×28", "batch", "ONNX ÷ student", "int8 ÷ student", "ONNX ÷ 10 members", "int8 ÷ 10 members"]
    print(table(header, rows) + "\n", flush=True)
