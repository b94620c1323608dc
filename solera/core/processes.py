"""Processes that share work in one folder, as `torchrun` starts them: who has come, and who has died.

Each holds a lock on a file of its own while it works, and takes it before the file gets its name. So whoever finds the
file knows: while it is locked its process lives, and once it is free its process has ended, be it by a kill.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from solera.core.errors import InUseError, LostProcessError

GRACE_SECONDS = 600.0  # for a process to come: it may be slower than this one to import, download or load models
_PAUSE_SECONDS = 0.1


def rank_and_world() -> tuple[int, int]:
    """This process's number and how many there are, as torchrun says; 0 and 1 otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ.get("RANK", "0")), world) if world > 1 else (0, 1)


def _file(folder: Path, rank: int) -> Path:
    return folder / f".process-{rank}"


def _lives(file: Path) -> bool | None:
    """Whether the process that made this file is at work; None if there is no such file."""
    try:
        with open(file) as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return True
    return False


@contextmanager
def present(folder: Path, rank: int) -> Iterator[None]:
    """Shows the others that process `rank` is at work here, until the block ends or the process does."""
    unnamed = folder / f".process-{rank}.{os.getpid()}"
    with open(unnamed, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.replace(unnamed, _file(folder, rank))
        yield


def forget_processes(folder: Path) -> None:
    """At the end of a run, so that nobody takes its processes for those of the next."""
    for file in folder.glob(".process-*"):
        file.unlink(missing_ok=True)


def require_nobody(folder: Path) -> None:
    """Before a run begins: refuses while a process of an earlier one is still at work."""
    for file in folder.glob(".process-*"):
        if _lives(file):
            who = file.name.removeprefix(".process-")
            raise InUseError(
                f"{folder} is being written by process {who} of an earlier run: wait for it, or choose another folder"
            )
    forget_processes(folder)


def await_first(folder: Path) -> None:
    """Until process 0 is at work here: it begins alone."""
    began = time.monotonic()
    while not _lives(_file(folder, 0)):
        _require_patience(began, 0, folder)
        time.sleep(_PAUSE_SECONDS)


def await_process(rank: int, folder: Path, done: Callable[[], bool]) -> None:
    """Until process `rank` has `done` its part. That it has died, or does not come in time, is an error."""
    began = time.monotonic()
    while not done():
        lives = _lives(_file(folder, rank))
        if lives is None:
            _require_patience(began, rank, folder)
        elif not lives and not done():  # it may have done it and left since we looked
            raise LostProcessError(
                f"process {rank} ended before its part of {folder} was done (its own output says why): what is written "
                "is kept, start the same command again"
            )
        time.sleep(_PAUSE_SECONDS)


def _require_patience(began: float, rank: int, folder: Path) -> None:
    if time.monotonic() - began > GRACE_SECONDS:
        raise LostProcessError(
            f"process {rank} did not come to work on {folder} within {GRACE_SECONDS:.0f} seconds: start all processes "
            "with the same command, as torchrun does"
        )
