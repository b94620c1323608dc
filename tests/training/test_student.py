"""The folder a user takes home: whole, explained, and read back anywhere."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from solera import Student
from solera.core.disk import read_manifest, write_manifest
from solera.core.errors import DamagedFileError, DivergedError
from solera.distributions import Categorical, Mixture
from solera.methods import BatchEnsemble, EnD, EnD2, Hydra, LatentBE, NormalWishart, ProxyDirichlet
from solera.nn import MLP, VGG, ConvNet, ResNet, WideResNet, branch, grow
from solera.serving import export
from solera.training.card import Input, Notes, Preprocessing
from solera.training.student import KIND, VERSION


class Mine(nn.Sequential):
    """A network of a user's own class."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


STUDENTS = {
    "MLP": (lambda: Student(MLP(4, 3, (8,), standardize=True), ProxyDirichlet()), (4,)),
    "regressor": (lambda: Student(MLP(4, 4, (8,), targets=1), NormalWishart()), (4,)),
    "ConvNet": (lambda: Student(ConvNet((1, 8, 8), 3, (4,), 8), EnD2()), (1, 8, 8)),
    "ResNet": (lambda: Student(ResNet(8, (1, 8, 8), 3, channels=4), EnD()), (1, 8, 8)),
    "VGG": (lambda: Student(VGG((1, 32, 32), 3, channels=2), EnD()), (1, 32, 32)),
    "WideResNet": (lambda: Student(WideResNet(10, 1, (1, 8, 8), 3), EnD()), (1, 8, 8)),
    "Heads of an MLP": (lambda: Student(grow(MLP(4, 3, (8,)), 3, 2), Hydra(head=2)), (4,)),
    "Heads of a ConvNet": (lambda: Student(grow(ConvNet((1, 8, 8), 3, (4,), 8), 3), Hydra()), (1, 8, 8)),
    "Subnetworks": (lambda: Student(branch(MLP(4, 3, (8,)), 3, "normal"), BatchEnsemble()), (4,)),
    "merged": (lambda: Student(LatentBE().finalize(branch(MLP(4, 3, (8,)), 3)), LatentBE()), (4,)),
}

FRESH = """
import sys, torch
from solera import Student
for name in sys.argv[2:]:
    student = Student.load(f"{sys.argv[1]}/{name}")
    inputs, wanted = torch.load(f"{sys.argv[1]}/{name}.pt")
    said = student.predict(inputs)
    assert torch.equal(said.mean, wanted["mean"]) and torch.equal(said.total, wanted["total"]), name
    assert student.preprocessing.inputs[0].shape == list(inputs.shape[1:]), student.preprocessing
"""


def test_a_fresh_process_reads_every_network_of_ours(tmp_path):
    for name, (make, shape) in STUDENTS.items():
        student, inputs = make(), torch.randn(5, *shape)
        student.save(tmp_path / name)
        said = student.predict(inputs)
        torch.save((inputs, {"mean": said.mean, "total": said.total}), tmp_path / f"{name}.pt")
    command = [sys.executable, "-c", FRESH, str(tmp_path), *STUDENTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("make", "method", "remedy"),
    [
        (Mine, EnD(), r"model=Mine\(\.\.\.\)"),
        (lambda: grow(Mine(), 3), Hydra(), r"model=solera\.nn\.grow\(Mine\(\.\.\.\), 3\)"),
        (lambda: grow(Mine(), 3, 2), Hydra(head=2), r"model=solera\.nn\.grow\(Mine\(\.\.\.\), 3, head=2\)"),
        (lambda: branch(Mine(), 3), BatchEnsemble(), r"model=solera\.nn\.branch\(Mine\(\.\.\.\), 3\)"),
    ],
)
def test_a_network_of_the_users_own_is_asked_for_as_it_was_made(make, method, remedy, tmp_path):
    student = Student(make(), method)
    student.save(tmp_path)
    with pytest.raises(ValueError, match=rf"weights of a Mine, .*Student\.load\(path, {remedy}\)"):
        Student.load(tmp_path)
    inputs = torch.randn(3, 4)
    assert torch.equal(Student.load(tmp_path, model=make()).predict(inputs).mean, student.predict(inputs).mean)
    with pytest.raises(ValueError, match=rf"are not those of this MLP \(.*\): .*{remedy}"):
        Student.load(tmp_path, model=MLP(4, 3, (7,)))
    assert remedy.replace("\\", "") in (tmp_path / "README.md").read_text()


class MLPOfMine(nn.Linear):
    """Has the name of a network of ours, below, and settings, but is none."""

    settings = ()


def test_a_name_alone_does_not_make_it_ours(tmp_path):
    MLPOfMine.__name__ = "MLP"
    Student(MLPOfMine(4, 3), EnD()).save(tmp_path)
    with pytest.raises(ValueError, match="not one of Solera's networks"):
        Student.load(tmp_path)


def known():
    given = Preprocessing([Input("inputs", [2])], ["age", "height"], {"age": "years", "height": "cm"})
    notes = Notes("12 hospitals, 2019", ["f00d", "beef"], {"accuracy": 0.91}, {"knowledge, rejects 5 %": 0.31})
    return Student(MLP(2, 3, (8,)), ProxyDirichlet(), ["ant", "bee", "cat"], given, notes)


def test_what_is_known_comes_back(tmp_path):
    student = known()
    again = Student.load(student.save(tmp_path))
    assert again.preprocessing == student.preprocessing
    assert again.notes == student.notes
    assert again.class_names == student.class_names
    assert again.fingerprint == student.fingerprint
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["preprocessing"] == {
        "inputs": [{"name": "inputs", "shape": [2], "dtype": "float32"}],
        "features": ["age", "height"],
        "units": {"age": "years", "height": "cm"},
        "labels": ["ant", "bee", "cat"],
    }
    with pytest.raises(ValueError, match="1 names of features for rows of 2"):
        Preprocessing([Input("inputs", [2])], ["age"])


def test_class_names_of_another_number_of_classes_are_refused():
    student = Student(MLP(2, 3), EnD(), ["a", "b"])
    with pytest.raises(ValueError, match="answers 3 classes and has 2 class names"):
        student.predict(torch.zeros(1, 2))


def test_the_card_says_what_it_is_and_what_it_cannot(tmp_path):
    known().save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    for said in (
        *(
            "ProxyDirichlet(match='rmi', as_released=False, as_published=False, ",
            "ant, bee, cat",
            "age in years",
            "12 hospitals, 2019",
        ),
        *("f00d, beef", "| accuracy | 0.91 |", "| knowledge, rejects 5 % | 0.31 |", "an ensemble of 2 models"),
        *("knows nothing of inputs unlike those it was distilled on", f"torch {torch.__version__}"),
        known().class_names[0],
    ):
        assert said in card
    Student(MLP(4, 2, (8,)), EnD(family="gaussian")).save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "not its split into data and knowledge" in card
    assert "variance" in card


def test_huggingface_hub_reads_the_folder(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    known().save(tmp_path)
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "solera"
    assert card.data.pipeline_tag == "tabular-classification"
    assert {"solera", "proxydirichlet"} <= set(card.data.tags)
    assert {hub.constants.CONFIG_NAME, hub.constants.SAFETENSORS_SINGLE_FILE, "README.md"} == {
        file.name for file in tmp_path.iterdir()
    }


def test_old_folders_are_still_read(tmp_path):
    """Those of version 0.1 had weights, method, network and labels alone."""
    student = Student(MLP(4, 3, (8,)), EnD(), ["ant", "bee", "cat"])
    student.save(tmp_path)
    config = read_manifest(tmp_path / "config.json", KIND, VERSION)
    old = {key: config[key] for key in ("solera", "method", "network", "labels", "weights")}
    write_manifest(tmp_path / "config.json", KIND, VERSION, old)
    (tmp_path / "README.md").unlink()
    again = Student.load(tmp_path)
    inputs = torch.randn(3, 4)
    assert torch.equal(again.predict(inputs).mean, student.predict(inputs).mean)
    assert again.preprocessing == Preprocessing([Input(shape=[4])])
    assert again.notes == Notes()


def test_a_card_may_be_edited_but_weights_may_not(tmp_path):
    known().save(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    Student.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"model\.safetensors is damaged"):
        Student.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DamagedFileError, match=r"model\.safetensors is missing"):
        Student.load(tmp_path)


def test_a_batch_says_what_goes_in():
    given = Preprocessing.of({"row": torch.zeros(3, 4), "kind": torch.zeros(3, dtype=torch.long)})
    assert given.inputs == [Input("row", [4], "float32"), Input("kind", [], "int64")]
    assert [i.name for i in Preprocessing.of((torch.zeros(3, 4), torch.zeros(3))).inputs] == ["inputs_0", "inputs_1"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", "# My project\n"),
        ("config.json", '{"model_type": "bert"}'),
        ("config.json", "[1, 2]"),
        ("config.json", "not JSON"),
        ("model.safetensors", "weights"),
    ],
)
def test_files_of_others_are_not_overwritten(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is not from a student of Solera's .*: choose another folder"):
        Student(MLP(4, 3, (8,)), EnD()).save(tmp_path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, content)]


def test_an_earlier_student_is_replaced_and_so_is_the_half_of_one(tmp_path):
    first, second = (Student(MLP(4, 3, (8,)), EnD()) for _ in range(2))
    first.save(tmp_path)
    (tmp_path / "README.md").write_text("# Edited by its owner\n")
    second.save(tmp_path)
    assert Student.load(tmp_path).fingerprint == second.fingerprint
    for lost in ("config.json", "model.safetensors"):  # in the order opposite to that of writing
        (tmp_path / lost).unlink()
        first.save(tmp_path)
        assert Student.load(tmp_path).fingerprint == first.fingerprint


def test_a_student_of_nan_is_neither_saved_nor_exported(tmp_path):
    student = Student(MLP(4, 3, (8,)), EnD())
    with torch.no_grad():
        next(student.model.parameters())[0, 0] = float("nan")
    with pytest.raises(DivergedError, match=r"the student is not saved to .*: .* is not finite: train it again"):
        student.save(tmp_path / "student")
    assert not (tmp_path / "student").exists()
    with pytest.raises(DivergedError, match="answer about example 0 is not finite"):
        export(student, tmp_path / "student.onnx", torch.randn(4, 4))


def test_nothing_to_predict_is_said_so():
    known = Preprocessing(inputs=(Input("x", (4,), "float32"),))
    student = Student(MLP(4, 3), ProxyDirichlet(), preprocessing=known)
    with pytest.raises(ValueError, match="nothing to predict: inputs are empty"):
        student.predict(torch.zeros(0, 4))
    with pytest.raises(ValueError, match=r"takes .* of shape \('examples', 4\), got \(0, 5\)"):
        student.predict(torch.zeros(0, 5))


def test_a_single_prediction_says_who_keeps_the_split():
    prediction = Student(MLP(4, 3), EnD()).predict(torch.zeros(2, 4))
    with pytest.raises(
        AttributeError, match="a Categorical has a total uncertainty but no knowledge of its own: distil"
    ):
        _ = prediction.knowledge
    assert not hasattr(prediction, "data")
    with pytest.raises(AttributeError, match="'Categorical' object has no attribute 'nowledge'"):
        _ = prediction.nowledge


def test_a_measure_that_fails_says_why_and_not_that_there_is_none():
    class Broken(Mixture):
        @property
        def knowledge(self):
            return self.nothing_of_the_kind

    broken = Broken(Categorical(torch.zeros(3, 2, 4)))
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        _ = broken.knowledge
