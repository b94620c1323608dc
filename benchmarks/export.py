"""A student in onnxruntime against the same student and an ensemble of ten in PyTorch, one image at a time."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure
from solera import Ensemble, Student
from solera.methods import EnD, Hydra, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.serving import Graph, export, halve, quantize

MEMBERS, SHAPE, CLASSES = 10, (1, 28, 28), 10


def network() -> ConvNet:
    return ConvNet(SHAPE, CLASSES)


def compare(method: Method, batch: int, folder: Path) -> None:
    """ONNX, its int8 and its float16 form, each ÷ the eager student and ÷ the eager ensemble, and their sizes."""
    torch.manual_seed(0)
    student = Student(method.student(network(), MEMBERS), method).eval()
    ensemble = Ensemble([network() for _ in range(MEMBERS)])
    images = torch.randn(batch, *SHAPE)
    graph = Graph(export(student, folder / "student.onnx", images).path)
    smaller = {
        "int8": quantize(folder / "student.onnx", folder / "int8.onnx", images),
        "float16": halve(folder / "student.onnx", folder / "float16.onnx", images),
    }
    graphs = {"ONNX": graph} | {name: Graph(one.path) for name, one in smaller.items()}
    array = images.numpy()

    def eager(model: Student | Ensemble) -> Callable[[], object]:
        def run() -> object:
            said = model.predict(images)
            return [getattr(said, name) for name in graph.outputs]

        return run

    cases = {name: (lambda one=one: one(array)) for name, one in graphs.items()}
    samples = measure({**cases, "student": eager(student), "ensemble": eager(ensemble)}, rounds=15)
    for peer, what in (("student", "the student in PyTorch"), ("ensemble", f"{MEMBERS} members in PyTorch")):
        for name in cases:
            compare_samples(f"{type(method).__name__}, {name} ÷ {what}, batch {batch}", samples, name, peer)
    if batch > 1:
        for name, one in smaller.items():
            size, less = one.bytes
            declare(f"{type(method).__name__}, {name}: bytes of the file ÷ the float32 graph's", less / size)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for method in (EnD(), ProxyDirichlet(), Hydra()):
            for batch in (1, 64):
                compare(method, batch, Path(folder))
