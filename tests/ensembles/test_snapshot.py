import math
import shutil

import pytest
import torch

from solera import Ensemble, Training
from solera.core.errors import MismatchError
from solera.core.seeds import seed_everything, stream
from solera.ensembles import train_snapshots
from solera.nn import MLP
from tests.helpers import small_batches

SIX = Training(epochs=6, lr=0.01, weight_decay=0.1, checkpoint_seconds=0.0)


def make():
    return MLP(4, 3, (8,), dropout=0.2)


def test_members_are_one_training_with_cosine_restarts():
    """The referee is the loop written out: rates, orders, restarts."""
    batches = small_batches()
    ensemble = train_snapshots(make, batches, 3, Training(epochs=7, lr=0.01, weight_decay=0.1, seed=4))
    seed_everything(stream(4, "member", 0))
    network = make()
    for number, epochs in enumerate((2, 2, 3)):
        seed = stream(4, "cycle", number)
        seed_everything(stream(seed, "train", 0))
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1)
        step, last = 0, epochs * len(batches) - 1
        network.train()
        for epoch in range(epochs):
            for batch in batches.shuffled(seed, epoch):
                optimizer.param_groups[0]["lr"] = 0.01 * (1 + math.cos(math.pi * step / last)) / 2
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(batch.inputs), batch.target).backward()
                optimizer.step()
                step += 1
        for mine, other in zip(ensemble.models[number].parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_a_shorter_training_of_equal_cycles_gives_the_first_members():
    batches = small_batches()
    whole = train_snapshots(make, batches, 3, SIX)
    stopped = train_snapshots(make, batches, 2, Training(epochs=4, lr=0.01, weight_decay=0.1))
    assert whole.fingerprints[:2] == stopped.fingerprints
    assert len(set(whole.fingerprints)) == 3


def test_deleted_cycles_come_back_in_the_same_bits(tmp_path):
    batches = small_batches()
    whole = train_snapshots(make, batches, 3, SIX, folder=tmp_path)
    assert whole.fingerprints == train_snapshots(make, batches, 3, SIX).fingerprints
    first = (tmp_path / "cycle-0" / "checkpoint.safetensors").stat().st_mtime_ns
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"cycle-{number}")
    assert train_snapshots(make, batches, 3, SIX, folder=tmp_path).fingerprints == whole.fingerprints
    assert (tmp_path / "cycle-0" / "checkpoint.safetensors").stat().st_mtime_ns == first


def test_a_folder_of_another_training_is_refused(tmp_path):
    train_snapshots(make, small_batches(), 3, SIX, folder=tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        train_snapshots(make, small_batches(seed=1), 3, SIX, folder=tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        train_snapshots(lambda: MLP(4, 3, (9,)), small_batches(), 3, SIX, folder=tmp_path)


class Interrupted(MLP):
    """Stops like a killed process in the middle of its n-th step; what is on disk by then is all that is left."""

    steps_left = 0

    def forward(self, input):
        if self.training:
            Interrupted.steps_left -= 1
            if Interrupted.steps_left < 0:
                raise KeyboardInterrupt
        return super().forward(input)


def test_a_stopped_run_ends_in_the_same_bits(tmp_path):
    def run(folder, steps):
        Interrupted.steps_left = steps
        return train_snapshots(lambda: Interrupted(4, 3, (8,), dropout=0.2), small_batches(), 3, SIX, folder=folder)

    whole = run(None, 24)
    for steps in (3, 10, 7):  # in the first cycle, in the second, in the third
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, steps)
    assert (tmp_path / "cycle-2").exists()
    assert run(tmp_path, 4).fingerprints == whole.fingerprints
    assert Interrupted.steps_left == 0


def test_too_many_snapshots_are_refused():
    for members in (0, 7):
        with pytest.raises(ValueError, match=f"between 1 and epochs=6, got {members}: train longer"):
            train_snapshots(make, small_batches(), members, SIX)


def test_one_snapshot_is_one_training():
    ensemble = train_snapshots(make, small_batches(), 1, SIX)
    assert isinstance(ensemble, Ensemble)
    assert ensemble.members == 1
