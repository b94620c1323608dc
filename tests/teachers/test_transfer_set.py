"""Remembered predictions: the same as the live ones, and never anybody else's."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from solera import Batch, Batches, EnD, Ensemble, Training, TransferSet, capture, distill
from solera.core.errors import DamagedFileError, InUseError, MismatchError
from solera.distributions import Categorical, Mixture, members, mixture
from solera.distributions.matching import matched_precision
from solera.nn import MLP
from solera.teachers import DenseCodec
from solera.teachers.adapters import Predictions
from solera.testing import check_teacher
from tests.helpers import small_batches, small_ensemble


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 2e-3)])
def test_remembers_what_the_ensemble_said(tmp_path, dtype, tolerance):
    ensemble, batches = small_ensemble(), small_batches()
    remembered = capture(ensemble, batches, tmp_path, DenseCodec(dtype))
    assert (len(remembered), remembered.members, remembered.classes) == (50, 3, 3)
    for batch in batches.shuffled(7):
        check_teacher(remembered, batch)
        live, kept = ensemble(batch), remembered(batch)
        torch.testing.assert_close(kept.members.mean, live.members.mean, rtol=0, atol=tolerance)
        torch.testing.assert_close(kept.knowledge, live.knowledge, rtol=0, atol=tolerance)


@pytest.mark.parametrize("remembered", [capture, lambda ensemble, batches, path: said_by(ensemble, batches)])
def test_members_are_measured_once_where_they_are_few(tmp_path, monkeypatch, remembered):
    """Every epoch asks the same of the same rows; each row has the same digits in every batch."""
    ensemble, batches = small_ensemble(), small_batches()
    teacher, measured = remembered(ensemble, batches, tmp_path), []
    monkeypatch.setattr(mixture, "measure", lambda *given: measured.append(given) or members.measure(*given))
    for epoch in range(3):
        for batch in batches.shuffled(7, epoch):
            live, kept = ensemble(batch), teacher(batch)
            for name in ("mean", "total", "data", "knowledge", "rmi", "epkl"):
                torch.testing.assert_close(getattr(kept, name), getattr(live, name), rtol=1e-5, atol=3e-3)
                assert torch.equal(getattr(kept, name), getattr(teacher(batches.all), name)[batch.index])
    assert len([given for given in measured if len(given[0].logits) == 50]) == 1
    for match in ("rmi", "epkl", "mi"):
        whole, part = (matched_precision(teacher(some), match, 3) for some in (batches.all, batch))
        torch.testing.assert_close(part, matched_precision(ensemble(batch), match, 3), rtol=0.02, atol=0.0)
        assert torch.equal(part, whole[batch.index])
    monkeypatch.setattr(mixture, "FEW", 50)
    before = len(measured)
    torch.testing.assert_close(teacher(batch).knowledge, kept.knowledge)
    assert len(measured) == before + 1


@pytest.mark.parametrize("codec", ["dense", "mean", "top_k"])
def test_weights_of_examples_are_no_tokens(tmp_path, codec):
    batches = Batches(torch.randn(6, 4), weight=torch.ones(6), batch_size=3)
    remembered = capture(small_ensemble(), batches, tmp_path, codec)
    assert [remembered(batch).mean.shape for batch in batches] == [(3, 3), (3, 3)]


def said_by(ensemble, batches):
    return Predictions(ensemble.predict(batches.all.inputs).members.mean)


def test_many_shards_answer_as_one(tmp_path):
    ensemble, batches = small_ensemble(), small_batches()
    remembered = capture(ensemble, batches, tmp_path, shard_bytes=500)
    assert len(list(tmp_path.glob("shard-*"))) > 2
    whole = batches.all
    torch.testing.assert_close(remembered(whole).mean, ensemble(whole).mean, rtol=0, atol=2e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_answers_are_where_the_inputs_are(tmp_path, weighted):
    """On the device without memory, which every machine has."""
    batches = small_batches()
    remembered = capture(small_ensemble(), batches, tmp_path)
    batch = batches.all
    weight = torch.ones(len(batch)) if weighted else None
    there = Batch(batch.inputs, batch.index, weight=weight).to(torch.device("meta"))
    assert remembered(there).mean.device.type == "meta"


class Tagger(nn.Module):
    """A teacher over sequences: one distribution per token."""

    live, members, fingerprints = True, 2, ["a", "b"]

    def check(self, batch):
        pass

    def forward(self, batch):
        x = batch.inputs.float()
        return Mixture(Categorical(torch.stack([x[..., None] * torch.arange(4.0) * s for s in (0.1, 0.2)], -2)))


def test_ragged_sequences_keep_only_real_tokens(tmp_path):
    tokens = torch.tensor([[3, 1, 2, 0, 0], [5, 0, 0, 0, 0], [1, 2, 3, 4, 5]])
    weight = torch.tensor([[1.0, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    batch = Batch(tokens, torch.tensor([10, 20, 30]), weight=weight)
    teacher = Tagger()
    remembered = capture(teacher, [batch], tmp_path, DenseCodec("float32"))
    assert remembered.shards[0]["members"].shape == (9, 2, 4)
    # another order, padded to another width
    other = Batch(tokens[[2, 0]], torch.tensor([30, 10]), weight=weight[[2, 0]])
    narrow = Batch(tokens[[1, 0], :3], torch.tensor([20, 10]), weight=weight[[1, 0], :3])
    for wanted in (other, narrow):
        remembered.check(wanted)
        live, kept = teacher(wanted).mean, remembered(wanted).mean
        assert kept.shape == live.shape
        valid = wanted.weight > 0
        torch.testing.assert_close(kept[valid], live[valid])


def test_another_ensemble_is_refused(tmp_path):
    capture(small_ensemble(), small_batches(), tmp_path)
    with pytest.raises(MismatchError, match="captured from another ensemble: member 0 was"):
        TransferSet(tmp_path, teacher=small_ensemble(seed=1))
    with pytest.raises(MismatchError, match="remembers 3 members, this ensemble has 2"):
        TransferSet(tmp_path, teacher=small_ensemble(members=2))
    with pytest.raises(MismatchError, match="captured from another ensemble"):
        capture(small_ensemble(seed=1), small_batches(), tmp_path)


def named(names):
    return Ensemble(list(small_ensemble().models), class_names=names)


def test_class_names_reach_the_student_live_or_remembered(tmp_path):
    ensemble, batches, names = named(["cat", "dog", "eel"]), small_batches(), ["cat", "dog", "eel"]
    remembered = capture(ensemble, batches, tmp_path)
    assert TransferSet(tmp_path).class_names == remembered.class_names == names
    for teacher in (ensemble, remembered):
        assert distill(teacher, MLP(4, 3, (8,)), batches, EnD(), Training(epochs=1)).class_names == names
    assert capture(small_ensemble(), batches, tmp_path / "nameless").class_names is None


def test_other_class_names_are_for_the_same_columns(tmp_path):
    ensemble, batches = named(["cat", "dog", "eel"]), small_batches()
    german = ["Katze", "Hund", "Aal"]
    assert capture(ensemble, batches, tmp_path / "renamed", class_names=german).class_names == german
    assert capture(small_ensemble(), batches, tmp_path / "given", class_names=[1, 2, 3]).class_names == ["1", "2", "3"]
    with pytest.raises(ValueError, match=r"class_names are \['dog', .* columns are \['cat', .*: leave them out"):
        capture(ensemble, batches, tmp_path / "turned", class_names=["dog", "cat", "eel"])
    with pytest.raises(ValueError, match="there are 2 class names for 3 classes"):
        capture(small_ensemble(), batches, tmp_path / "few", class_names=["cat", "dog"])
    with pytest.raises(MismatchError, match=r"begun with the class names .*'Katze'.*, not .*'cat'"):
        capture(ensemble, batches, tmp_path / "renamed")


def test_a_capture_begun_without_class_names_takes_them(tmp_path):
    capture(small_ensemble(), list(small_batches())[:2], tmp_path)
    assert capture(named(["cat", "dog", "eel"]), small_batches(), tmp_path).class_names == ["cat", "dog", "eel"]


def test_another_data_set_is_refused(tmp_path):
    remembered = capture(small_ensemble(), small_batches(), tmp_path)
    with pytest.raises(MismatchError, match="captured on other inputs: example 0"):
        remembered.check(small_batches(seed=1).all)
    with pytest.raises(MismatchError, match="no prediction for example 50"):
        remembered.check(small_batches(examples=60).all)
    with pytest.raises(MismatchError, match="begun on other inputs"):
        capture(small_ensemble(), small_batches(seed=1), tmp_path)


def test_features_that_changed_places_are_other_inputs(tmp_path):
    batches = small_batches()
    remembered = capture(small_ensemble(), batches, tmp_path)
    swapped = replace(batches.all, inputs=batches.all.inputs[:, [1, 0, 2, 3]])
    with pytest.raises(MismatchError, match="captured on other inputs: example 0"):
        remembered.check(swapped)


def test_examples_captured_out_of_order_keep_their_answers(tmp_path):
    ensemble, batches = small_ensemble(), small_batches()
    remembered = capture(ensemble, list(batches.shuffled(1)), tmp_path, codec="dense", shard_bytes=500)
    assert len(remembered.shards) > 1
    remembered.check(batches.all)
    torch.testing.assert_close(remembered(batches.all).mean, ensemble(batches.all).mean, rtol=0, atol=2e-3)


def test_more_data_is_appended_and_old_shards_stay(tmp_path):
    ensemble, more = small_ensemble(), small_batches(examples=64)
    first = capture(ensemble, list(more)[:2], tmp_path)
    before = (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns
    second = capture(ensemble, more, tmp_path)
    assert (len(first), len(second)) == (32, 64)
    assert (tmp_path / "shard-00000.safetensors").stat().st_mtime_ns == before
    torch.testing.assert_close(second(more.all).mean, ensemble(more.all).mean, rtol=0, atol=2e-3)


@pytest.mark.parametrize("name", ["shard-00000.safetensors", "manifest.json"])
def test_a_flipped_byte_anywhere_is_refused_by_name(tmp_path, name):
    capture(small_ensemble(), small_batches(), tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    for place in range(0, len(content), max(1, len(content) // 40)):
        changed = content.copy()
        changed[place] ^= 1
        (tmp_path / name).write_bytes(changed)
        with pytest.raises((DamagedFileError, ValueError), match=name):
            TransferSet(tmp_path)


@pytest.mark.parametrize("name", ["shard-00000.safetensors", "manifest.json"])
def test_a_truncated_or_missing_file_is_refused_by_name(tmp_path, name):
    capture(small_ensemble(), small_batches(), tmp_path)
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DamagedFileError, match=name):
        TransferSet(tmp_path)
    file.unlink()
    with pytest.raises((DamagedFileError, FileNotFoundError), match=name):
        TransferSet(tmp_path)


def test_a_later_schema_and_another_kind_are_refused(tmp_path):
    from solera.core.disk import write_manifest

    write_manifest(tmp_path / "manifest.json", "transfer set", 99, {})
    with pytest.raises(ValueError, match="written by a later Solera"):
        TransferSet(tmp_path)
    write_manifest(tmp_path / "manifest.json", "student", 1, {})
    with pytest.raises(ValueError, match="holds a student, not a transfer set"):
        TransferSet(tmp_path)


SLOW_CAPTURE = """
import sys, time, torch
from solera import capture
from tests.helpers import small_batches, small_ensemble
ensemble = small_ensemble()
forward = ensemble.forward
def slow(batch):
    time.sleep(0.02)
    return forward(batch)
ensemble.forward = slow
capture(ensemble, small_batches(examples=800), sys.argv[1], shard_bytes=500)
"""


def start_capture(path):
    root = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", SLOW_CAPTURE, path], cwd=root, env={**os.environ, "PYTHONPATH": "."})


def wait_for(path, process):
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


def test_a_killed_capture_goes_on_and_ends_the_same(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for shard in (1, 6):
        process = start_capture(killed)
        wait_for(killed / f"shard-{shard:05d}.safetensors", process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(DamagedFileError, match="left unfinished"):
            TransferSet(killed)
    assert start_capture(killed).wait() == 0
    assert start_capture(whole).wait() == 0
    for file in whole.glob("shard-*"):
        assert (killed / file.name).read_bytes() == file.read_bytes()
    a, b = (json.loads((p / "manifest.json").read_text()) for p in (killed, whole))
    assert a == b


def test_two_writers_at_once_are_told_so(tmp_path):
    process = start_capture(tmp_path)
    try:
        wait_for(tmp_path / "shard-00000.safetensors", process)
        with pytest.raises(InUseError, match="being written by another process"):
            capture(small_ensemble(), small_batches(examples=800), tmp_path)
    finally:
        process.kill()
        process.wait()


def test_nothing_to_capture_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="nothing to capture"):
        capture(small_ensemble(), [], tmp_path)
