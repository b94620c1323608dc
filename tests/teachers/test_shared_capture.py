"""A capture shared by several real processes: one dies, one is late, one never comes, another run was here before."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from solera import TransferSet, capture
from solera.core import processes
from solera.core.errors import DamagedFileError, InUseError, LostProcessError
from tests.helpers import small_batches, small_ensemble

ROOT = Path(__file__).parents[2]
CODE = "import sys; from tests.teachers.test_shared_capture import work; work(sys.argv[1], pause=float(sys.argv[2]))"


def work(path, examples=640, pause=0.0, late=0.0, grace=60.0):
    """40 batches of 16, each of them a shard."""
    processes.GRACE_SECONDS = grace
    time.sleep(late)
    ensemble = small_ensemble()
    forward = ensemble.forward

    def slow(batch):
        time.sleep(pause)
        return forward(batch)

    ensemble.forward = slow
    return capture(ensemble, small_batches(examples=examples), path, "top_k", shard_bytes=500)


def whole(path, examples=640):
    """The transfer set answers as if one process had made it, and nothing is left of the several."""
    ensemble, everything = small_ensemble(), small_batches(examples=examples).all
    found = TransferSet(path)
    assert len(found) == examples
    torch.testing.assert_close(found(everything).mean, ensemble(everything).mean, rtol=0, atol=2e-3)
    assert not list(path.glob("manifest-*"))
    assert not list(path.glob(".process-*"))


def start(path, rank, pause=0.0):
    environment = {**os.environ, "PYTHONPATH": ".", "RANK": str(rank), "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", CODE, str(path), str(pause)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def fork(rank, world, task):
    """A process of several that costs no import; it leaves with 0, or with 5 if another was lost, or else with 4."""
    child = os.fork()
    if child == 0:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
        try:
            task(rank)
            os._exit(0)
        except LostProcessError:
            os._exit(5)
        except BaseException:
            os._exit(4)
    return child


def codes(children):
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def wait_until(happened, seconds=60):
    """Polls; what never happens fails instead of hanging."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.01)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_is_an_error_in_the_other_and_nothing_is_lost(tmp_path, killed):
    path = tmp_path / "shared"
    two = [start(path, rank, 0.2 if rank == killed else 0.02) for rank in (0, 1)]
    wait_until(lambda: all((path / f"shard-{rank}-00001.safetensors").exists() for rank in (0, 1)))
    two[killed].send_signal(signal.SIGKILL)
    _, said = two[1 - killed].communicate(timeout=30)
    assert two[killed].wait() == -signal.SIGKILL
    assert two[1 - killed].returncode == 1
    assert f"process {killed} ended before its part of {path} was done" in said
    with pytest.raises((DamagedFileError, FileNotFoundError)):
        TransferSet(path)
    before = {file: file.stat().st_mtime_ns for file in path.glob("shard-*")}
    assert codes([fork(rank, 2, lambda _: work(path)) for rank in (0, 1)]) == [0, 0]
    whole(path)
    named = {entry["file"] for entry in json.loads((path / "manifest.json").read_text())["shards"]}
    kept = [file for file, when in before.items() if file.name in named and file.stat().st_mtime_ns == when]
    assert len(kept) >= 21  # what the living process had done, and two shards of the dead one


@pytest.mark.parametrize("late", [0, 1])
def test_an_append_waits_for_its_own_processes_not_for_manifests_of_the_last_run(tmp_path, late):
    assert codes([fork(rank, 2, lambda _: work(tmp_path, 320)) for rank in (0, 1)]) == [0, 0]
    whole(tmp_path, 320)

    def more(rank):
        assert len(work(tmp_path, 640, pause=0.01, late=rank == late)) == 640

    assert codes([fork(rank, 2, more) for rank in (0, 1)]) == [0, 0]
    whole(tmp_path)


def test_leftovers_of_a_dead_run_are_not_taken_for_parts_of_a_larger_one(tmp_path):
    """Process 1 had completed its part when process 0 died; then both are started on more data."""
    first = fork(0, 2, lambda _: work(tmp_path, 320, pause=0.3))
    second = fork(1, 2, lambda _: work(tmp_path, 320))
    part = tmp_path / "manifest-1.json"
    wait_until(lambda: part.exists() and json.loads(part.read_text())["complete"])
    os.kill(first, signal.SIGKILL)
    assert codes([first, second]) == [-signal.SIGKILL, 5]
    assert codes([fork(rank, 2, lambda rank: work(tmp_path, late=rank)) for rank in (0, 1)]) == [0, 0]
    whole(tmp_path)


def test_any_number_of_processes_goes_on_where_another_number_stopped(tmp_path):
    assert codes([fork(rank, 2, lambda _: work(tmp_path, 160)) for rank in (0, 1)]) == [0, 0]
    work(tmp_path, 320)
    assert codes([fork(rank, 3, lambda _: work(tmp_path)) for rank in (0, 1, 2)]) == [0, 0, 0]
    whole(tmp_path)


def test_two_captures_into_one_folder_in_one_script(tmp_path):
    def task(rank):
        for examples in (160, 320, 640):
            assert len(work(tmp_path, examples)) == examples

    assert codes([fork(rank, 3, task) for rank in (0, 1, 2)]) == [0, 0, 0]
    whole(tmp_path)


def test_a_process_without_batches_of_its_own_is_no_error(tmp_path):
    assert codes([fork(rank, 3, lambda _: work(tmp_path, 32)) for rank in (0, 1, 2)]) == [0, 0, 0]
    whole(tmp_path, 32)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_never_comes_is_an_error_after_the_grace_period(tmp_path, rank, monkeypatch):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    what = f"process {1 - rank} did not come to work on {tmp_path} within 0 seconds: start all processes"
    with pytest.raises(LostProcessError, match=re.escape(what)):
        capture(small_ensemble(), small_batches(), tmp_path)


def test_a_new_run_does_not_begin_while_a_process_of_the_last_is_at_work(tmp_path, monkeypatch):
    first = fork(0, 2, lambda _: work(tmp_path, pause=0.3))
    second = fork(1, 2, lambda _: work(tmp_path, pause=0.3))
    wait_until((tmp_path / "shard-1-00000.safetensors").exists)
    os.kill(first, signal.SIGKILL)
    codes([first])
    with pytest.raises(InUseError, match="process 1 of an earlier run"):
        work(tmp_path)
    os.kill(second, signal.SIGKILL)
    codes([second])
    work(tmp_path)
    whole(tmp_path)
