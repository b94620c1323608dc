"""One bit flipped in any file that Solera writes is found when the file is used, or changes nothing at all.

`SOLERA_FLIPS` is the number of flips of each file's kind, 300 by default.
"""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from solera import Student, TransferSet
from solera.core.progress import quiet
from solera.evaluation import Evaluation
from solera.nn import MLP
from solera.serving import export
from solera.serving.graph import Graph
from solera.training import checkpoint
from tests.attacks.work import captured, distilled, evaluated, flipped

pytestmark = pytest.mark.timeout(7200)  # `make attacks` on a busy machine
FLIPS = int(os.environ.get("SOLERA_FLIPS", "300"))
X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def exported(folder: Path) -> None:
    torch.manual_seed(5)
    from solera import EnD

    export(Student(MLP(4, 3, (8,)), EnD()), folder / "student.onnx", X)


def of_student(folder: Path):
    found = Student.load(folder)
    return found.predict(X).mean.numpy().tobytes(), found.class_names, found.fingerprint, repr(found.notes)


def of_transfer_set(folder: Path):
    found = TransferSet(folder)
    return found.manifest, [{name: column.tobytes() for name, column in shard.items()} for shard in found.shards]


def of_evaluation(folder: Path):
    found = Evaluation.load(folder)
    return repr(found.rows), repr(found.draws), repr(found.examples), found.made


def of_checkpoint(folder: Path):
    state, tensors, run = checkpoint.read(folder / "checkpoint.safetensors")
    return repr(state), run, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def of_graph(folder: Path):
    graph = Graph(folder / "student.onnx")
    return {name: np.asarray(a).tobytes() for name, a in graph(X.numpy()).items()}, graph.metadata


ARTEFACTS = {
    "student": (distilled, "", of_student, ("config.json", "model.safetensors")),
    "transfer set": (captured, "", of_transfer_set, ("manifest.json", "shard-*.safetensors")),
    "evaluation": (evaluated, "", of_evaluation, ("metrics.json", "columns.csv", "resamples.csv")),
    "checkpoint": (distilled, "training", of_checkpoint, ("checkpoint.safetensors",)),
    "graph": (exported, "", of_graph, ("student.onnx",)),
}


@pytest.mark.parametrize("kind", ARTEFACTS)
@pytest.mark.parametrize("flips", [6, pytest.param(FLIPS, marks=pytest.mark.long)])
def test_no_flipped_bit_is_silent(tmp_path, kind, flips):
    make, part, use, patterns = ARTEFACTS[kind]
    draw, harmless, lines = random.Random(0), 0, {1}
    with quiet():
        make(tmp_path / "whole")
        folder = tmp_path / "whole" / part
        wanted = use(folder)
        targets = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
        assert targets
        for number in range(flips * len(patterns)):
            file = targets[number % len(targets)]
            content = file.read_bytes()
            try:
                file.write_bytes(flipped(content, draw))
                try:
                    found = use(folder)
                except (ValueError, FileNotFoundError) as error:
                    lines |= {len(str(error).splitlines())}
                else:  # in the spaces between the words of JSON
                    assert found == wanted, file
                    harmless += 1
            finally:
                file.write_bytes(content)
        assert use(folder) == wanted
        shutil.rmtree(folder)
    assert lines == {1}
    assert kind in ("student", "transfer set", "evaluation") or harmless == 0
