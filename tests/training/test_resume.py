"""Killed for real, at any moment, a training goes on and ends in the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from solera import EnD2, Training, distill, train_ensemble
from solera.core.disk import only_writer
from solera.core.errors import DamagedFileError, InUseError, MismatchError, UnwritableError
from solera.core.tensor_files import read_sealed_tensors, write_sealed_tensors
from solera.nn import MLP
from tests.helpers import small_batches, small_ensemble

SCRIPT = """
import sys, time, torch
from solera import EnD2, Training, distill, train_ensemble
from solera.data import Augmented
from solera.nn import MLP
from tests.helpers import small_batches
batches = small_batches(examples=96)
augmented = sys.argv[2] != "stacked"
training = Training(epochs=6, checkpoint_seconds=0.0, optimizer="sgd" if augmented else "adamw")
stacked = not augmented
jitter = lambda x, random: x + torch.randn(x.shape, generator=random)
ensemble = train_ensemble(
    lambda: MLP(4, 3, (8,), dropout=0.2),
    batches,
    3,
    training,
    folder=sys.argv[1] + "/ensemble",
    stacked=stacked,
    augment=jitter if augmented else None,
)
train, held = batches.split(0.25)
torch.manual_seed(5)
class Slow(MLP):
    def forward(self, x):
        time.sleep(0.01)
        return super().forward(x)
student = Slow(4, 3, (8,), dropout=0.2)
train = Augmented(train, jitter) if augmented else train
distill(ensemble, student, train, EnD2(), training, validation=held, folder=sys.argv[1] + "/student").save(sys.argv[1])
"""


def start(folder, mode):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SCRIPT, str(folder), mode]
    return subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": "."})


@pytest.mark.parametrize("mode", ["stacked", pytest.param("one by one, augmented, by SGD", marks=pytest.mark.long)])
def test_a_killed_run_ends_in_the_same_bits(tmp_path, mode):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole, mode).wait() == 0
    waits = random.Random(mode)
    for stage in ("ensemble", "student"):
        process = start(killed, mode)
        while not list((killed / stage).rglob("checkpoint.safetensors")) and process.poll() is None:
            time.sleep(0.005)
        time.sleep(waits.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start(killed, mode).wait() == 0
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def train(folder, **changes):
    torch.manual_seed(0)
    settings = {"epochs": 2, "checkpoint_seconds": 0.0} | changes
    return distill(small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), Training(**settings), folder=folder)


def test_a_finished_run_is_not_run_again(tmp_path):
    first = train(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns
    second = train(tmp_path)
    assert (tmp_path / "checkpoint.safetensors").stat().st_mtime_ns == before
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_run_in_the_same_folder_is_refused(tmp_path):
    train(tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        train(tmp_path, lr=0.5)


def test_other_validation_data_are_another_run(tmp_path):
    ensemble, rows = small_ensemble(), small_batches()
    train_rows, held = rows.split(0.4)
    for other, refusal in ((held, nullcontext()), (held.split(0.5)[0], pytest.raises(MismatchError))):
        torch.manual_seed(0)
        with refusal:
            distill(
                ensemble, MLP(4, 3), train_rows, EnD2(), Training(epochs=2), validation=other, folder=tmp_path / "run"
            )


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path):
    train(tmp_path)
    file = tmp_path / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DamagedFileError, match=r"checkpoint\.safetensors is damaged"):
        train(tmp_path)


def state_with(metadata, **changes):
    metadata["state"] = json.dumps({**json.loads(metadata["state"]), **changes})


RESEALED = {
    "no random": lambda tensors, _: tensors.pop("random"),
    "a short random": lambda tensors, _: tensors.update(random=tensors["random"][:9].clone()),
    "network/3.bias": lambda tensors, _: tensors.pop("network/3.bias"),
    "network/more": lambda tensors, _: tensors.update({"network/more": torch.zeros(2)}),
    "network/1.weight": lambda tensors, _: tensors["network/1.weight"].fill_(torch.nan),
    "best/1.bias": lambda tensors, _: tensors.update({"best/1.weight": torch.zeros(8, 4)}),
    "average/1.weight": lambda tensors, _: tensors.update({"average/1.weight": torch.full((8, 4), torch.inf)}),
    "optimizer/x": lambda tensors, _: tensors.update({"optimizer/x": torch.zeros(2)}),
    "optimizer/99/step": lambda tensors, _: tensors.update({"optimizer/99/step": torch.zeros(())}),
    "state.epoch of a text": lambda _, metadata: state_with(metadata, epoch="x"),
    "state.epoch of null": lambda _, metadata: state_with(metadata, epoch=None),
    "state.history": lambda _, metadata: state_with(metadata, history=[1]),
    "state of another": lambda _, metadata: state_with(metadata, epoch=-1),
    "state of brackets": lambda _, metadata: metadata.update(state="[" * 100_000),
}


@pytest.mark.parametrize("what", RESEALED)
def test_a_checkpoint_that_a_stranger_sealed_is_one_line_that_names_file_and_key(tmp_path, what):
    train(tmp_path)
    file = tmp_path / "checkpoint.safetensors"
    tensors, metadata = read_sealed_tensors(file)
    RESEALED[what](tensors, metadata)
    write_sealed_tensors(file, tensors, metadata)
    with pytest.raises(DamagedFileError) as caught:
        train(tmp_path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    key = what.removeprefix("no ").removeprefix("a short ").split(" of ")[0].removeprefix("network/")
    assert key in str(caught.value)


def test_a_second_training_in_the_folder_is_refused_before_its_first_step(tmp_path):
    steps = []

    class Counting(MLP):
        def forward(self, x):
            steps.append(len(x))
            return super().forward(x)

    def again():
        return distill(
            small_ensemble(), Counting(4, 3, (8,)), small_batches(), EnD2(), Training(epochs=1), folder=tmp_path
        )

    def watch(epoch, network):
        with pytest.raises(InUseError, match="is being written by another process"):
            again()
        assert len(steps) <= 2  # the first batch is looked at, nothing is trained

    distill(
        small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), Training(epochs=1), folder=tmp_path, watch=watch
    )
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_folder_without_room_or_without_leave_is_refused_before_the_first_step(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder, error in ((tmp_path / "file" / "run", UnwritableError), (tmp_path / "full", ValueError)):
        if folder.name == "full":
            monkeypatch.setattr("solera.core.disk.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
        with pytest.raises(error, match=folder.name):
            distill(small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), Training(epochs=1), folder=folder)


def test_every_flipped_bit_of_a_checkpoint_is_found(tmp_path):
    distill(small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), Training(epochs=1), folder=tmp_path)
    file, draw = tmp_path / "checkpoint.safetensors", random.Random(0)
    content = file.read_bytes()
    for _ in range(40):
        place, changed = draw.randrange(8 * len(content)), bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises(DamagedFileError, match=r"checkpoint\.safetensors .*delete it to start this training again"):
            distill(small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), Training(epochs=1), folder=tmp_path)


def test_a_finished_training_is_read_by_many_at_once(tmp_path):
    """Two processes of a study ask for the same trained members; neither writes."""
    training = Training(epochs=2)
    members = train_ensemble(lambda: MLP(4, 3, (8,)), small_batches(), 2, training, folder=tmp_path, stacked=False)
    folders = sorted({file.parent for file in tmp_path.rglob("checkpoint.safetensors")})
    assert folders
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(only_writer(folder, "-training"))
        again = train_ensemble(lambda: MLP(4, 3, (8,)), small_batches(), 2, training, folder=tmp_path, stacked=False)
        assert again.fingerprints == members.fingerprints
        longer = Training(epochs=3)
        with pytest.raises((InUseError, MismatchError)):
            train_ensemble(lambda: MLP(4, 3, (8,)), small_batches(), 2, longer, folder=tmp_path, stacked=False)
