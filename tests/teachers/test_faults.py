"""Real kills, a full disk, several processes: never a wrong number, always a message that names the file."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from solera import TransferSet, capture
from solera.core.errors import DamagedFileError
from tests.helpers import small_batches, small_ensemble

EXAMPLES = 640


def run(path):
    return capture(small_ensemble(), small_batches(examples=EXAMPLES), path, "top_k", shard_bytes=700)


def in_child(work) -> int:
    """Forks, so that a kill costs no import; the child does the work and leaves without cleaning up."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except OSError:
            os._exit(3)
        except BaseException:
            os._exit(4)
    return child


@pytest.mark.long  # a few kills are tests/attacks/test_kills.py
def test_fifty_kills_at_random_moments_lose_nothing(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = time.monotonic()
    run(whole)
    length = time.monotonic() - start
    waits = random.Random(0)
    finished = 0
    for _ in range(50):
        child = in_child(lambda: run(killed))
        time.sleep(waits.uniform(0, length))
        os.kill(child, signal.SIGKILL)
        finished += os.waitpid(child, 0)[1] == 0
        if (killed / "manifest.json").exists():
            # whatever was written is whole: the shards that the manifest names are the undisturbed run's
            manifest = json.loads((killed / "manifest.json").read_text())
            for entry in manifest["shards"]:
                assert (killed / entry["file"]).read_bytes() == (whole / entry["file"]).read_bytes()
            if not manifest["complete"]:
                with pytest.raises(DamagedFileError, match="left unfinished"):
                    TransferSet(killed)
    remembered = run(killed)
    assert len(remembered) == EXAMPLES
    a, b = (json.loads((p / "manifest.json").read_text()) for p in (killed, whole))
    assert a == b


def test_a_full_disk_stops_cleanly_and_the_same_call_goes_on(tmp_path):
    """A real write error: the child may not write files beyond a size that one shard exceeds."""
    whole, full = tmp_path / "whole", tmp_path / "full"

    def big(path):
        return capture(small_ensemble(), small_batches(examples=EXAMPLES), path, shard_bytes=8000)

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        big(full)

    big(whole)
    _, status = os.waitpid(in_child(limited), 0)
    assert os.waitstatus_to_exitcode(status) == 3  # an OSError, not a silent half file
    assert not list(full.glob("shard-*"))
    assert not list(full.glob(".shard-*"))
    big(full)
    for file in whole.glob("shard-*"):
        assert (full / file.name).read_bytes() == file.read_bytes()


def test_a_missing_shard_is_named(tmp_path):
    run(tmp_path)
    (tmp_path / "shard-00002.safetensors").unlink()
    with pytest.raises(DamagedFileError, match=r"shard-00002\.safetensors is missing"):
        TransferSet(tmp_path)
    with pytest.raises(DamagedFileError, match=r"shard-00002\.safetensors is missing"):
        run(tmp_path)


def test_two_processes_share_a_capture(tmp_path):
    """Each takes every other batch; the transfer set answers as if one had done it."""
    root = Path(__file__).parents[2]
    code = "import sys; from tests.teachers.test_faults import run; run(sys.argv[1])"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "shared"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": ".", "RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    shared, alone = TransferSet(tmp_path / "shared"), run(tmp_path / "alone")
    assert len(shared) == len(alone) == EXAMPLES
    whole = small_batches(examples=EXAMPLES).all
    assert torch.equal(shared(whole).mean, alone(whole).mean)
