"""The size of a student's uncertainty, fitted after training on held-out data: to its ensemble, or to labels."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

from solera.calibration.smoothing import fit_smoothing
from solera.data import Batch
from solera.distributions.base import SecondOrder
from solera.methods.base import Method
from solera.teachers.base import Teacher
from solera.training.size import HeldOut, ask
from solera.training.student import Student


@dataclass(frozen=True)
class Kept:
    """Total, data and knowledge of a student in per cent of its ensemble's, on average over each group of inputs."""

    groups: dict[str, dict[str, float]]  # "familiar", "auxiliary" or "held-out": one number per measure

    def __str__(self) -> str:
        lines = [
            f"{group:>10}: " + ", ".join(f"{name} {value:.0f} %" for name, value in row.items())
            for group, row in self.groups.items()
        ]
        return "\n".join(lines)


def kept(method: Method, heard: HeldOut) -> Kept:
    """How much of the ensemble's uncertainty the method reads from these outputs."""
    said = method.predict(heard.output)
    pairs = {"total": (said.total, heard.total)}
    if isinstance(said, SecondOrder):
        pairs |= {"data": (said.data, heard.total - heard.knowledge), "knowledge": (said.knowledge, heard.knowledge)}
    everything = torch.ones_like(heard.labelled)
    groups = {"held-out": everything}
    if heard.auxiliary is not None:
        groups = {"familiar": heard.labelled, "auxiliary": heard.auxiliary}

    def share(ours: Tensor, theirs: Tensor) -> float:
        return 100 * float(ours.double().sum() / theirs.double().sum())

    return Kept(
        {group: {name: share(a[rows], b[rows]) for name, (a, b) in pairs.items()} for group, rows in groups.items()}
    )


def _fitted_to_labels(method: Method, heard: HeldOut) -> Method:
    """mean ∝ e^{z/T} + d, by the labels."""
    if not {"mean_temperature", "mean_offset"} <= {field.name for field in fields(method)}:
        raise ValueError(
            f"{type(method).__name__} has no mean_temperature and mean_offset to fit: use to='ensemble', or "
            "solera.calibration.fit_smoothing(logits, y) on its logits"
        )
    if getattr(method, "as_published", False):
        raise ValueError("as_published predicts with e^z + 1 and nothing else: distil, or load, without it")
    if not heard.labelled.any():
        raise ValueError("to='labels' needs labels, and held_out has none: pass batches with a target")
    smoothing = fit_smoothing(heard.output[heard.labelled], heard.target[heard.labelled])
    return replace(method, mean_temperature=smoothing.temperature, mean_offset=smoothing.offset)  # type: ignore[call-arg]


def calibrate(
    student: Student,
    teacher: Teacher,
    held_out: Iterable[Batch],
    *,
    to: Literal["ensemble", "labels"] = "ensemble",
    show: bool = True,
) -> Student:
    """The same network, its uncertainty given the right size on held-out data; prints what is kept before and after.

    To the ensemble (no labels needed): total, data and knowledge get the ensemble's size, on familiar inputs and on
    auxiliary ones (unlabelled batches, or labels of −100) alike. To the labels: a temperature and an offset of the mean
    that make the NLL least. The two are fitted apart and kept side by side, in fields of the student's method.
    """
    if to not in ("ensemble", "labels"):
        raise ValueError(f"to must be 'ensemble' or 'labels', got {to!r}")
    heard = ask(student.model, teacher, held_out)
    method = heard.fitted(student.method) if to == "ensemble" else _fitted_to_labels(student.method, heard)
    if show:
        print(f"of the ensemble's uncertainty, before:\n{kept(student.method, heard)}")
        print(f"after {method}:\n{kept(method, heard)}")
    return Student(student.model, method, student.labels, student.preprocessing, student.notes).eval()
