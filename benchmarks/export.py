"""A student in onnxruntime against the same student and an ensemble of ten in PyTorch, one image at a time."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure
from solera import Ensemble, Student
from solera.methods import EnD, Hydra, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.serving import Graph, export, quantize

MEMBERS, SHAPE, CLASSES = 10, (1, 28, 28), 10


def network() -> ConvNet:
    return ConvNet(SHAPE, CLASSES)


def compare(method: Method, batch: int, folder: Path) -> None:
    """ONNX and int8, each ÷ the eager student and ÷ the eager ensemble."""
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

    cases = {"ONNX": lambda: graph(array), "int8": lambda: small(array)}
    samples = measure({**cases, "student": eager(student), "ensemble": eager(ensemble)}, rounds=15)
    for peer, what in (("student", "the student in PyTorch"), ("ensemble", f"{MEMBERS} members in PyTorch")):
        for name in cases:
            compare_samples(f"{type(method).__name__}, {name} ÷ {what}, batch {batch}", samples, name, peer)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for method in (EnD(), ProxyDirichlet(), Hydra()):
            for batch in (1, 64):
                compare(method, batch, Path(folder))
