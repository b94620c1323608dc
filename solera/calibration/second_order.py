"""The size of a student's uncertainty, fitted after training on held-out data: to its ensemble, or to labels."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Literal

from solera.calibration.smoothing import fit_smoothing
from solera.data import as_batches
from solera.methods.base import Method
from solera.teachers.base import Teacher, require_vocabulary
from solera.training.size import KEPT, HeldOut, ask, kept, sizes
from solera.training.student import Student

LABELS = " of the labels fitted to"


def _nll(method: Method, heard: HeldOut) -> float:
    said = method.predict(heard.output[heard.labelled])
    return -float(said.log_prob(heard.target[heard.labelled]).mean())


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
    held_out: Any,
    *,
    to: Literal["ensemble", "labels"] = "ensemble",
    show: bool = True,
) -> Student:
    """The same network, its uncertainty given the right size on held-out data; prints what is kept before and after.

    `held_out` are inputs (arrays, a data frame), batches, a `DataLoader` or a data set; `Batches(x, y)` brings labels.

    To the ensemble (no labels needed): total, data and knowledge get the ensemble's size, on familiar inputs and on
    auxiliary ones alike (those of `Batches(auxiliary=...)`; of data that do not say it, what has no label). To the
    labels: a temperature and an offset of the mean that make the NLL least. The two are fitted apart and kept side by
    side, in fields of the student's method. What is kept, before and after, goes onto the student's card.
    """
    if to not in ("ensemble", "labels"):
        raise ValueError(f"to must be 'ensemble' or 'labels', got {to!r}")
    batches = held_out if isinstance(held_out, Iterator) else as_batches(held_out, names=student.class_names)
    require_vocabulary(teacher, batches)
    heard = ask(student.model, teacher, batches)
    method = heard.fitted(student.method) if to == "ensemble" else _fitted_to_labels(student.method, heard)
    if show:
        print(f"of the ensemble's uncertainty, before:\n{kept(student.method, heard)}")
        print(f"after {method}:\n{kept(method, heard)}")
    fit = {name: value for name, value in student.notes.fit.items() if KEPT not in name}  # of other inputs, maybe
    fit |= sizes(student.method, method, heard)
    if to == "labels":
        fit |= {f"NLL{LABELS}, before the fit": _nll(student.method, heard), f"NLL{LABELS}": _nll(method, heard)}
    notes = replace(student.notes, fit=fit)
    return Student(student.model, method, student.class_names, student.preprocessing, notes, student.tokenizer).eval()
