"""What is attacked: small, real pieces of work, each in a folder, each the same in bits every time."""

import os
import random
import signal
from pathlib import Path

import torch

from solera import EnD2, Ensemble, Student, Training, capture, distill, train_ensemble
from solera.evaluation import Evaluation, evaluate, report
from solera.methods import EnD
from solera.nn import MLP
from tests.helpers import small_batches, small_ensemble

TRAINING = Training(epochs=2, checkpoint_seconds=0.0)


def save(folder: Path) -> None:
    """Over another student: the first call and the second save different ones."""
    torch.manual_seed(1)
    Student(MLP(4, 3, (8,)), EnD(), list("xyz")).save(folder)


def captured(folder: Path) -> None:
    capture(small_ensemble(), small_batches(examples=64), folder, "top_k", shard_bytes=700)


def ensemble(folder: Path) -> None:
    train_ensemble(lambda: MLP(4, 3, (8,)), small_batches(), 2, TRAINING, folder=folder)


def distilled(folder: Path) -> None:
    torch.manual_seed(2)
    student = distill(small_ensemble(), MLP(4, 3, (8,)), small_batches(), EnD2(), TRAINING, folder=folder / "training")
    student.save(folder)


def _evaluation(seed: int) -> Evaluation:
    """Of what the models said, for their speed is another every time."""
    batches = small_batches().all
    torch.manual_seed(seed)
    models = {"ensemble": small_ensemble(), "student": Student(MLP(4, 3, (8,)), EnD())}
    said = {name: {"test": model.predict(batches.inputs)} for name, model in models.items()}
    return evaluate(said, batches.inputs, batches.target, resamples=3)


def evaluated(folder: Path) -> None:
    _evaluation(3).save(folder)


def reported(folder: Path) -> None:
    report(_evaluation(3), folder / "report.html")


def demonstrated(folder: Path) -> None:
    """What the demonstration does, in small: members, a transfer set, students, an evaluation and a page."""
    batches = small_batches()
    members = train_ensemble(lambda: MLP(4, 3, (8,)), batches, 2, TRAINING, folder=folder / "ensemble")
    kept = capture(Ensemble(list(members.models)), batches, folder / "transfer", shard_bytes=700)
    torch.manual_seed(4)
    distill(kept, MLP(4, 3, (8,)), batches, EnD2(), TRAINING, folder=folder / "training").save(folder / "student")
    evaluated(folder / "evaluation")
    report(Evaluation.load(folder / "evaluation"), folder / "report.html")


WORK = {
    "save": save,
    "capture": captured,
    "ensemble": ensemble,
    "distil": distilled,
    "evaluate": evaluated,
    "report": reported,
    "demo": demonstrated,
}


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by name."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def killed(work, folder: Path, moment: int, calls=("replace", "fsync", "open", "close", "unlink")) -> int:
    """Does the work in a process that kills itself at its `moment`-th call of the system that concerns files.

    Returns how it ended: −9 for a kill, 0 for work that was done before that moment.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [moment]

    def counted(real):
        def call(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in calls:
        setattr(os, name, counted(getattr(os, name)))
    try:
        work(folder)
        os._exit(0)
    finally:
        os._exit(1)


def flipped(content: bytes, draw: random.Random) -> bytes:
    """One bit is another."""
    place = draw.randrange(8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
