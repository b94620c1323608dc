"""Opening a file takes at most four times its size and 200 MB, whatever kind it is of."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from solera import Batches, Ensemble, ProxyDirichlet, Student, capture, evaluate
from solera.nn import MLP
from solera.serving import export
from tests.helpers import PEAK

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def student(folder: Path) -> None:
    Student(MLP(1000, 10, (6000, 3000)), ProxyDirichlet()).save(folder)


def graph(folder: Path) -> None:
    folder.mkdir()
    export(Student(MLP(1000, 10, (6000, 3000)), ProxyDirichlet()), folder / "student.onnx", torch.zeros(2, 1000))


def transfer_set(folder: Path) -> None:
    teacher = Ensemble([MLP(4, 500, (8,)) for _ in range(5)])
    capture(teacher, Batches(torch.randn(20_000, 4), batch_size=1000), folder, "dense")


def evaluation(folder: Path) -> None:
    x, y = torch.randn(150_000, 4), torch.randint(3, (150_000,))
    evaluate({"ensemble": Ensemble([MLP(4, 3, (8,)) for _ in range(2)])}, x, y).save(folder)


def parquet(folder: Path) -> None:
    import pandas

    folder.mkdir()
    numbers = np.random.default_rng(0).random((400_000, 20))
    pandas.DataFrame(numbers, columns=[f"c{i}" for i in range(20)]).to_parquet(folder / "member.parquet")


def npz(folder: Path) -> None:
    folder.mkdir()
    np.savez_compressed(folder / "members.npz", np.random.default_rng(0).random((400_000, 20)).round(2))


def conll(folder: Path) -> None:
    folder.mkdir()
    line = "\n".join(f"word{i}\t{'B-PER' if i % 5 == 0 else 'O'}" for i in range(20))
    (folder / "text.conll").write_text((line + "\n\n") * 60_000)


def tag_probabilities(folder: Path) -> None:
    folder.mkdir()
    cells = "\t".join(f"{tag}={p}" for tag, p in {"O": 0.912345, "B-PER": 0.0625, "I-PER": 0.025155}.items())
    sentence = "\n".join(f"word{i}\t{cells}\tO" for i in range(20))
    (folder / "said.conll").write_text((sentence + "\n\n") * 30_000)


OPENED = {
    student: "from solera import Student; kept = Student.load(folder)",
    graph: "from solera.serving import Graph; kept = Graph(folder / 'student.onnx')",
    transfer_set: "from solera import TransferSet; kept = TransferSet(folder)",
    evaluation: "from solera.evaluation import Evaluation; kept = Evaluation.load(folder)",
    parquet: "from solera.teachers.adapters.files import read; kept = read(folder / 'member.parquet')",
    npz: "from solera.teachers.adapters.files import read; kept = read(folder / 'members.npz')",
    tag_probabilities: "from solera.data.tag_probabilities import *; load_tag_probabilities(folder / 'said.conll')",
    conll: "from solera.data import load_conll; kept = load_conll(folder / 'text.conll')",
}
WARM = """
import sys, pathlib, torch, solera, solera.serving, solera.evaluation, solera.teachers.adapters.files, solera.data
import onnxruntime, pyarrow.parquet
folder = pathlib.Path(sys.argv[1])
before = peak()
"""


@pytest.mark.parametrize("make", OPENED, ids=lambda make: make.__name__)
def test_opening_a_file_takes_little_more_than_its_size(tmp_path, make):
    make(tmp_path / "made")
    size = max(sum(file.stat().st_size for file in (tmp_path / "made").rglob("*")), 1) / 2**20
    code = PEAK + WARM + OPENED[make] + "\nprint(peak() - before)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "made")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken = float(done.stdout.split()[-1])
    print(f"{make.__name__}: {size:.0f} MB, {taken:.0f} MB taken")
    assert taken <= 4 * size + 200
