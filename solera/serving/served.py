"""What is served: a graph in onnxruntime, and what is known of its inputs and answers."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from solera.serving.export import export
from solera.serving.graph import Arrays, Graph
from solera.serving.tagging import Reader
from solera.serving.trace import random_inputs
from solera.training.card import CONFIG, Input, Preprocessing
from solera.training.student import Student

MEASURES = ("total", "data", "knowledge")
ACCEPTED = "the folder of a student (Student.save or solera distill makes it), or the .onnx file of solera export"


@dataclass(frozen=True)
class Served:
    """An exported student, and what a client needs to know about it."""

    graph: Graph
    inputs: Sequence[Input]  # shapes are of one example
    features: Sequence[str]
    units: dict[str, str]
    class_names: Sequence[str]  # names of the classes or targets; numbered where nobody named them
    family: str
    method: str
    fingerprint: str
    thresholds: dict[str, float]
    axes: Sequence[int | str] = ()  # between rows and classes: a tagger answers for every token
    reader: Reader | None = None  # of text: of a tagger of words that is served from its folder
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the features that hold words
    missing: bool = False  # whether a number may be null

    @property
    def measures(self) -> tuple[str, ...]:
        """The uncertainties that this student tells apart."""
        return tuple(name for name in MEASURES if name in self.graph.outputs)

    @cached_property
    def codes(self) -> dict[str, dict[str, int]]:
        """The number of every word, by the names of the features that hold words."""
        return {name: {word: code for code, word in enumerate(words)} for name, words in self.categories.items()}

    @property
    def task(self) -> str:
        """The kind of its answers."""
        if self.reader is not None:
            return "tagging"
        return "regression" if self.family == "gaussian" else "classification"

    @property
    def facts(self) -> dict[str, Any]:
        """For people and pages: what goes in and comes out."""
        return {
            "method": self.method,
            "fingerprint": self.fingerprint,
            "task": self.task,
            "uncertainty": "variance" if self.family == "gaussian" else "nats",
            "inputs": [{"name": i.name, "shape": list(i.shape or ()), "dtype": i.dtype} for i in self.inputs],
            "features": list(self.features),
            "units": self.units,
            "categories": {name: list(words) for name, words in self.categories.items()},
            "missing": self.missing,
            "labels": list(self.class_names),
            "types": [] if self.reader is None else list(self.reader.tags.types),
            "measures": list(self.measures),
            "thresholds": self.thresholds,
        }

    def __call__(self, arrays: Arrays) -> Arrays:
        """What the student says; a ValueError if it cannot read the arrays."""
        return self.graph(arrays)


def versions() -> dict[str, str]:
    """Of the packages that answer a request."""
    return {name: version(name) for name in ("solera", "onnxruntime", "fastapi", "uvicorn")}


def _names(given: Any, count: int, path: str | Path) -> tuple[str, ...]:
    """A name for every output; numbered where nobody named them."""
    if not given:
        return tuple(str(number) for number in range(count))
    if not isinstance(given, list) or len(given) != count:
        there = f"{len(given)}" if isinstance(given, list) else f"a {type(given).__name__}"
        raise ValueError(
            f"{path}: its metadata 'labels' must be {count} class names, got {there}: set student.class_names, then "
            "solera export"
        )
    return tuple(str(label) for label in given)


def read_graph(path: str | Path, threads: int | None = None) -> Served:
    """A student that `solera export` wrote, ready to answer."""
    graph = Graph(path, threads)
    known = graph.metadata
    if missing := [key for key in ("labels", "preprocessing", "family", "fingerprint") if key not in known]:
        raise ValueError(f"{path} is no student, its metadata has no {', '.join(missing)}: make it with solera export")
    given = Preprocessing.read(json.loads(known["preprocessing"]))
    inputs = [Input(i.name, graph.inputs[i.name][1:], str(graph.dtypes[i.name])) for i in given.inputs]
    once = {i.name: np.zeros([1, *(n if isinstance(n, int) else 1 for n in i.shape or ())], i.dtype) for i in inputs}
    said = graph(once)  # the first run also makes onnxruntime allocate what it needs
    count = said["mean"].shape[-1]
    names = _names(json.loads(known["labels"]), count, path)
    return Served(
        graph=graph,
        inputs=inputs,
        features=given.features,
        units=dict(given.units),
        categories=given.categories,
        missing=given.missing is not None,
        class_names=names,
        family=known["family"],
        method=json.loads(known["method"])["name"],
        fingerprint=known["fingerprint"],
        thresholds=json.loads(known.get("thresholds", "{}")),
        axes=tuple(graph.session.get_outputs()[graph.outputs.index("mean")].shape[1:-1]),
    )


def read_student(source: Student | str | Path, threads: int | None = None) -> Served:
    """A student, its folder or its .onnx file, ready to answer; the first two are exported to ONNX first."""
    if not isinstance(source, Student):
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there: pass {ACCEPTED}")
        if path.is_file() and path.suffix != ".onnx":
            raise ValueError(f"{path} cannot be served: pass {ACCEPTED}")
        if path.is_file():
            return read_graph(path, threads)
        if not (path / CONFIG).is_file():
            raise ValueError(f"{path} is no student, there is no {CONFIG} in it: pass {ACCEPTED}")
        try:
            source = Student.load(path)
        except ValueError as error:
            if "model=" not in str(error):
                raise
            raise ValueError(f"{error}; then solera.serving.serve(student), or export it and serve the file") from error
    with tempfile.TemporaryDirectory() as folder:
        file = export(source, Path(folder) / "student.onnx", random_inputs(source)).path
        return replace(read_graph(file, threads), reader=Reader.of(source))
