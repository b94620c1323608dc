"""An exported student whose file changed is refused, whichever bit it was."""

import random

import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from solera import EnD, Student
from solera.core.errors import DamagedFileError
from solera.core.seal import LENGTH, sealed
from solera.nn import MLP
from solera.serving import export
from solera.serving.graph import Graph
from solera.teachers.adapters import Onnx


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("exported")
    return export(Student(MLP(4, 3, (8,)), EnD()), folder / "student.onnx", torch.randn(8, 4)).path


def test_the_checksum_is_in_the_metadata_and_covers_the_rest(file):
    content = file.read_bytes()
    assert content == sealed(content[:-LENGTH])
    assert Graph(file).metadata["sha256"] == content[-64:].decode()


def test_the_same_student_is_the_same_file(file, tmp_path):
    torch.manual_seed(0)
    again = export(Student(MLP(4, 3, (8,)), EnD()), tmp_path / "student.onnx", torch.randn(8, 4)).path
    assert again.read_bytes() == file.read_bytes()


def test_flipped_bits_are_found(file, tmp_path):
    content, draw = file.read_bytes(), random.Random(0)
    places = [draw.randrange(8 * len(content)) for _ in range(60)]
    places += [8 * (len(content) - LENGTH) + bit for bit in range(0, 8 * LENGTH, 7)]
    damaged = tmp_path / "damaged.onnx"
    for place in places:
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        damaged.write_bytes(changed)
        with pytest.raises(DamagedFileError, match=r"damaged\.onnx is no graph of a student \(it"):
            Graph(damaged)


def test_a_student_that_teaches_is_checked_too(file, tmp_path):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"damaged\.onnx is damaged, its checksum does not match"):
        Onnx(tmp_path / "damaged.onnx", probabilities=True)
