"""A student's folder under attack: kills, readers and writers at once, files of others, hostile configs."""

import copy
import json
import os
import threading

import pytest
import torch

import solera.nn
from solera import Student
from solera.core import disk
from solera.core.disk import write_manifest
from solera.core.errors import DamagedFileError, DivergedError
from solera.core.tensor_files import write_tensors
from solera.methods import EnD, Hydra, ProxyDirichlet
from solera.nn import MLP, grow
from solera.nn.build import NAMES
from solera.training.card import CARD, CONFIG, KIND, VERSION, WEIGHTS, record
from tests.core.test_disk import in_a_child, names

FILES = [CARD, CONFIG, WEIGHTS]


def student(seed: int, labels: str = "abc") -> Student:
    torch.manual_seed(seed)
    return Student(MLP(4, 3, (8,)), EnD(), list(labels))


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_save_killed_at_any_moment_leaves_the_old_student_or_the_new_one(tmp_path, monkeypatch, call):
    old, new = student(0), student(1, "xyz")
    known = {s.fingerprint: s.class_names for s in (old, new)}
    seen = set()
    for moment in range(100):
        old.save(tmp_path)

        def killed(moment=moment):
            real, left = getattr(os, call), iter(range(moment, -1, -1))
            monkeypatch.setattr(disk.os, call, lambda *a, **k: real(*a, **k) if next(left) else os._exit(9))
            new.save(tmp_path)

        ended = in_a_child(killed)
        found = Student.load(tmp_path)
        assert known[found.fingerprint] == found.class_names
        assert names(tmp_path) == FILES
        seen.add(found.fingerprint)
        if ended == 0:
            break
    assert ended == 0
    assert moment > 3
    assert len(seen) == 2


def test_the_first_save_killed_leaves_nothing_that_is_taken_for_a_student(tmp_path, monkeypatch):
    def killed():
        monkeypatch.setattr(disk.os, "replace", lambda *_: os._exit(9))
        student(0).save(tmp_path / "new")

    assert in_a_child(killed) == 9
    with pytest.raises(FileNotFoundError, match="holds no student"):
        Student.load(tmp_path / "new")
    student(0).save(tmp_path / "new")
    assert names(tmp_path / "new") == FILES


def test_threads_that_save_and_load_at_once_never_mix_two_students(tmp_path):
    both, wrong, loads = [student(0), student(1, "xyz")], [], 0
    known = {s.fingerprint: s.class_names for s in both}
    both[0].save(tmp_path)

    def save(one):
        for _ in range(6):
            try:
                one.save(tmp_path)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=save, args=(one,)) for one in (*both, both[0])]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found = Student.load(tmp_path)
        assert known[found.fingerprint] == found.class_names
        loads += 1
    assert wrong == []
    assert loads
    assert names(tmp_path) == FILES


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, CARD])
def test_files_of_others_are_not_touched(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=rf"{name} is not from a student of Solera's and would be lost"):
        student(0).save(tmp_path)
    assert (tmp_path / name).read_text() == "{}"
    assert names(tmp_path) == [name]


def test_a_record_killed_between_its_files_leaves_a_whole_student(tmp_path, monkeypatch):
    student(0).save(tmp_path)

    def killed():
        monkeypatch.setattr(disk.os, "replace", lambda *_: os._exit(9))
        record(tmp_path, {"accuracy": 0.9}, {})

    assert in_a_child(killed) == 9
    assert Student.load(tmp_path).notes.metrics == {}
    record(tmp_path, {"accuracy": 0.9}, {})
    assert Student.load(tmp_path).notes.metrics == {"accuracy": 0.9}
    assert "accuracy" in (tmp_path / CARD).read_text()
    assert names(tmp_path) == FILES


def changed(folder, change) -> None:
    """The config of a stranger who can compute a checksum, too."""
    config = json.loads((folder / CONFIG).read_bytes())
    body = {key: value for key, value in config.items() if key not in ("kind", "version", "sha256")}
    change(body)
    write_manifest(folder / CONFIG, KIND, VERSION, body)


def test_only_networks_are_built_at_every_depth(tmp_path):
    before = copy.copy(vars(solera.nn))
    for name in ("__init__", "__class__", "grow", "network_for", "WordFeatures", "torch", "heads"):
        torch.manual_seed(0)
        Student(grow(MLP(4, 3, (8,)), 2), Hydra()).save(tmp_path)
        changed(tmp_path, lambda body, name=name: body["network"]["settings"]["network"].update(name=name))
        with pytest.raises(DamagedFileError, match=f"network cannot be used .*no network '{name}'"):
            Student.load(tmp_path)
        changed(tmp_path, lambda body, name=name: body["network"].update(name=name))
        with pytest.raises(ValueError, match=f"uses the network {name}"):
            Student.load(tmp_path)
    assert vars(solera.nn) == before


def test_every_network_that_keeps_its_settings_can_be_built():
    kinds = {name: getattr(solera.nn, name) for name in solera.nn.__all__}
    networks = {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, torch.nn.Module)}
    # no student is one of these alone
    parts = {"LogMel", "PiecewiseLinear", "Standardize", "Table", "Units", "WordFeatures"}
    assert set(NAMES) == networks - parts


@pytest.mark.parametrize(
    "settings",
    [
        {"inputs": 10**9, "outputs": 3, "hidden": [8]},
        {"inputs": 4, "outputs": 3, "hidden": [10**8]},
        {"inputs": 4, "outputs": 3, "hidden": [10**6, 10**6]},
        {"inputs": 4, "outputs": 3, "hidden": [1] * 20_000},
        {"inputs": 4, "outputs": 3, "hidden": [8], "pieces": [10**10, 0, 0, 0]},
    ],
)
def test_a_huge_network_beside_small_weights_takes_no_memory(tmp_path, settings):
    student(0).save(tmp_path)
    changed(tmp_path, lambda body: body["network"].update(settings=settings))
    with pytest.raises(DamagedFileError, match=r"config.json: network (describes|cannot be used)"):
        Student.load(tmp_path)


HOSTILE = {
    "no method": lambda body: body.pop("method"),
    "a method of a number": lambda body: body.update(method=3),
    "a method without settings": lambda body: body["method"].pop("settings"),
    "settings of a method that has none such": lambda body: body["method"]["settings"].update(no=1),
    "no network": lambda body: body.pop("network"),
    "a network of null": lambda body: body.update(network=None),
    "a network's settings as a list": lambda body: body["network"].update(settings=[]),
    "unknown settings": lambda body: body["network"]["settings"].update(no=1),
    "settings of the wrong kind": lambda body: body["network"]["settings"].update(hidden="wide"),
    "a network in a network without a name": lambda body: body["network"]["settings"].update(network={}),
    "labels of a number": lambda body: body.update(labels=3),
    "labels of null": lambda body: body.update(labels=[None]),
    "no labels": lambda body: body.pop("labels"),
    "weights of text": lambda body: body.update(weights="model"),
    "weights without a checksum": lambda body: body["weights"].pop("sha256"),
    "files of a list": lambda body: body.update(files=[]),
    "files of numbers": lambda body: body["files"].update({WEIGHTS: 3}),
    "a file elsewhere": lambda body: body["files"].update({"../secret": "0" * 64}),
    "an absolute file": lambda body: body["files"].update({"/etc/passwd": "0" * 64}),
    "a file that is not there": lambda body: body["files"].update({"more": "0" * 64}),
    "preprocessing of a text": lambda body: body.update(preprocessing="none"),
    "inputs of numbers": lambda body: body["preprocessing"].update(inputs=[1]),
    "an input without a name": lambda body: body["preprocessing"]["inputs"][0].pop("name"),
    "features of null": lambda body: body["preprocessing"].update(features=None),
    "categories of numbers": lambda body: body["preprocessing"].update(categories={"a": [1]}),
    "categories of no feature": lambda body: body["preprocessing"].update(categories={"a": ["x"]}),
    "another number for a missing one": lambda body: body["preprocessing"].update(missing=-999),
    "notes of a list": lambda body: body.update(notes=[]),
    "notes with more": lambda body: body["notes"].update(no=1),
    "metrics of texts": lambda body: body["notes"].update(metrics={"accuracy": "high"}),
    "thresholds of lists": lambda body: body["notes"].update(thresholds={"total": [1]}),
    "a tokenizer of a text": lambda body: body.update(tokenizer="words"),
    "a tokenizer that is not there": lambda body: body.update(
        tokenizer={"file": "tokenizer.json", "start": 1, "fingerprint": "x"}
    ),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_config_is_one_line_that_names_the_file(tmp_path, change):
    student(0).save(tmp_path)
    changed(tmp_path, change)
    with pytest.raises(DamagedFileError) as caught:
        Student.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "delete" not in str(caught.value)


@pytest.mark.parametrize("name", ["mean_temperature", "precision_slope", "precision_shift"])
def test_a_setting_too_large_for_a_tensor_is_told_by_its_name(tmp_path, name):
    Student(MLP(4, 3, (8,)), ProxyDirichlet()).save(tmp_path)
    changed(tmp_path, lambda body: body["method"]["settings"].update({name: 1 << 70}))
    with pytest.raises(DamagedFileError, match=f"config.json: method cannot be used .*{name}"):
        Student.load(tmp_path)


@pytest.mark.parametrize("alias", ["./more", "././more", "linked"])
def test_one_file_under_many_names_is_refused_before_it_is_read(tmp_path, alias):
    student(0).save(tmp_path)
    (tmp_path / "more").write_bytes(b"more")
    (tmp_path / "linked").symlink_to("more")
    checksum = disk.sha256(tmp_path / "more")
    changed(tmp_path, lambda body: body["files"].update({"more": checksum, alias: checksum}))
    with pytest.raises(DamagedFileError, match=r"config.json names the file"):
        Student.load(tmp_path)


def test_weights_of_other_shapes_are_told_by_their_name(tmp_path):
    student(0).save(tmp_path)
    other = dict(MLP(4, 3, (9,)).state_dict())
    checksum = write_tensors(tmp_path / WEIGHTS, other)
    changed(tmp_path, lambda body: (body["files"].update({WEIGHTS: checksum}), body["weights"].update(sha256=checksum)))
    with pytest.raises(DamagedFileError, match=r"describes .* as \(.*\), the weights have \("):
        Student.load(tmp_path)


def test_saving_removes_no_file_that_a_forged_config_names(tmp_path):
    student = Student(MLP(4, 3, (8,)), EnD())
    student.save(tmp_path)
    (tmp_path / "thesis.txt").write_text("mine")
    config = json.loads((tmp_path / CONFIG).read_text())
    config["files"]["thesis.txt"] = "0" * 64
    (tmp_path / CONFIG).write_text(json.dumps(config))
    student.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_weights_that_are_not_finite_are_not_loaded(tmp_path, monkeypatch):
    student = Student(MLP(4, 3, (8,)), EnD())
    with torch.no_grad():
        next(student.model.parameters())[0] = torch.nan
    monkeypatch.setattr("solera.training.student.require_finite_weights", lambda *_: None)
    student.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(DivergedError, match="is not finite"):
        Student.load(tmp_path)
