"""Checks that a capture keeps the teacher's answers to exactly these inputs, once each, in finite numbers."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from solera.core.errors import DivergedError, MismatchError
from solera.data import Batch, Batches
from solera.distributions.base import Targets
from solera.teachers.base import Teacher, row_fingerprints
from solera.teachers.codecs import Columns
from solera.teachers.transfer_set import KIND


class Indices:
    """Which examples have come in this run: sorted arrays, each more than twice as long as the next."""

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []

    def add(self, index: np.ndarray) -> None:
        """Refuses an example that has come before."""
        new = np.sort(index)
        before = [new[1:][np.diff(new) == 0]]
        before += [new[run[np.searchsorted(run, new).clip(max=len(run) - 1)] == new] for run in self.runs]
        if len(twice := np.concatenate(before)):
            raise MismatchError(
                f"example {twice[0]} comes twice, so nobody could tell which answer is whose: give every example an "
                "index of its own, and every test or second data set a folder of its own"
            )
        self.runs.append(new)
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            self.runs.append(np.sort(np.concatenate([self.runs.pop(), self.runs.pop()])))


def require_distinct(batches: Iterable[Batch]) -> None:
    """Where all indices are at hand, a double one is refused before anything is asked or written."""
    if isinstance(batches, Batches) and not batches.mapped:
        Indices().add(batches.all.index.numpy())
    elif isinstance(batches, (list, tuple)):
        indices = Indices()
        for batch in batches:
            indices.add(batch.index.numpy())


OURS = {"solera": KIND}  # the metadata of every shard


def require_own_shard(path: Path) -> None:
    """What lies under the name of the next shard may be what a kill left of this capture, but no file of others."""
    if path.exists() and f'"solera":"{KIND}"'.encode() not in path.open("rb").read(1024):
        raise ValueError(
            f"{path} is not from a capture of Solera's and would be lost: choose another folder, or move it away"
        )


def answered(teacher: Teacher, batch: Batch, fingerprints: np.ndarray) -> Targets:
    """What the teacher says about these very inputs: they must be the same before and after."""
    targets = teacher(batch)
    changed = row_fingerprints(batch) != fingerprints
    if changed.any():
        raise MismatchError(
            f"the input of example {int(batch.index[int(changed.argmax())])} changed while the teacher answered: let "
            "members work on a copy, and nobody write to the data"
        )
    return targets


LOG_PROBABILITIES = ("members", "mean", "kept")  # columns that may hold −∞: a class that a member rules out


def require_finite_answers(batch: Batch, encoded: Columns) -> None:
    """An answer that is infinite or no number at all is refused by its example; padding does not count."""
    tokens = batch.weight is not None and batch.weight.ndim > 1
    for name, column in encoded.items():
        if not column.is_floating_point() or torch.isfinite(column.float().sum()):
            continue
        right = column.isfinite()
        if name in LOG_PROBABILITIES:
            right = right | (column == -torch.inf)
        fine = right.flatten(1 + tokens).all(-1) if column.ndim > 1 + tokens else right
        fine = (fine | (batch.weight.to(fine.device) <= 0)).all(1) if tokens and batch.weight is not None else fine
        if not bool(fine.all()):
            raise DivergedError(
                f"the teacher's answer about example {int(batch.index[int((~fine).int().argmax())])} is not finite: "
                "look at that input, and leave out members that diverged"
            )
