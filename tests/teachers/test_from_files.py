"""What the command line reads: who saw which row, and labels by name."""

import numpy as np
import pytest
import torch

from solera.data import Batch
from solera.teachers.adapters import Predictions
from solera.teachers.from_files import as_labels, load_saw, teacher_from


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folds_and_saw_say_the_same(folder):
    folds = np.arange(12) % 3
    np.save("folds.npy", folds)
    np.save("saw.npy", folds[:, None] != np.arange(3))
    assert torch.equal(load_saw("folds.npy", ""), load_saw("", "saw.npy"))
    assert load_saw("", "") is None
    with pytest.raises(ValueError, match="both say who saw which row"):
        load_saw("folds.npy", "saw.npy")
    np.save("wrong.npy", np.array([0.5, 1.0]))
    with pytest.raises(ValueError, match="must hold one fold id per row"):
        load_saw("wrong.npy", "")


def test_noise_is_estimated_out_of_fold(folder):
    """Members that know their own rows by heart leave no residual there: only the others may predict a row."""
    random = np.random.default_rng(0)
    y = random.normal(size=300)
    folds = np.arange(300) % 2
    said = np.stack([np.where(folds != m, y, random.normal(size=300)) for m in range(2)], 1)
    np.save("said.npy", said)
    np.save("folds.npy", folds)
    x = torch.zeros(300, 1)
    saw = load_saw("folds.npy", "")
    told, _ = teacher_from(["said.npy"], "", x, y, saw)
    blind, _ = teacher_from(["said.npy"], "", x, y)
    assert told.noise.item() == pytest.approx(2.0, rel=0.3)  # of two independent normals
    assert blind.noise.item() < 0.5 * told.noise.item()


def test_classes_out_of_fold_come_from_who_did_not_see_them(folder):
    probabilities = np.zeros((6, 2, 3))
    probabilities[:, 0, 0] = probabilities[:, 1, 1] = 1
    np.save("said.npy", probabilities)
    np.save("folds.npy", np.arange(6) % 2)
    teacher, _ = teacher_from(["said.npy"], "", torch.zeros(6, 1), None, load_saw("folds.npy", ""))
    mean = teacher(Batch(torch.zeros(6, 1), torch.arange(6))).mean
    assert mean.argmax(-1).tolist() == [0, 1, 0, 1, 0, 1]  # member m was trained without fold m


def test_labels_by_the_names_of_the_members():
    teacher = Predictions(np.full((3, 2, 2), 0.5), class_names=["no", "yes"])
    assert as_labels(np.array(["yes", "no", "yes"]), teacher, "").tolist() == [1, 0, 1]
    assert as_labels(np.array([1.0, 0.0, 1.0]), teacher, "").tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"classes are whole numbers, the labels hold 0\.5"):
        as_labels(np.array([0.5, 0.0, 1.0]), teacher, "")
    assert as_labels(np.array([0.5, 0.0, 1.0]), teacher, "regression").dtype == torch.float32
