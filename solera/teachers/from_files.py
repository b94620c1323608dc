"""A teacher, labels and masks from the files that a user brings: what the verbs of the command line read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.array_files import read_npy
from solera.core.checks import require_labels
from solera.core.progress import tell
from solera.data import UNLABELLED, class_numbers
from solera.distributions import Mixture
from solera.teachers.adapters import Forecasts, Predictions
from solera.teachers.adapters.files import read
from solera.teachers.base import saw_from_folds
from solera.teachers.committee import committee


def load_array(path: str) -> np.ndarray:
    """One `.npy` file; never one that holds pickled objects."""
    return read_npy(Path(path))


def load_saw(folds: str, saw: str, members: int | None = None) -> Tensor | None:
    """Who was trained on which row: from a file of fold ids `(N,)`, or of true and false `(N, M)`."""
    if folds and saw:
        raise ValueError("--folds and --saw both say who saw which row: give one of them")
    if saw:
        return torch.as_tensor(load_array(saw))
    if not folds:
        return None
    ids = load_array(folds)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise ValueError(f"{folds} must hold one fold id per row, whole numbers from 0, got {ids.dtype} {ids.shape}")
    return saw_from_folds(torch.as_tensor(ids.astype(np.int64)), members)


def as_labels(values: np.ndarray, teacher: Any, task: str) -> Tensor:
    """Labels as the teacher has them: classes by its names, or numbers; continuous targets as floats."""
    if task == "regression" or isinstance(teacher, Forecasts) or getattr(teacher, "family", "") == "gaussian":
        return torch.as_tensor(values).float()
    numbers, _ = class_numbers(values, getattr(teacher, "class_names", None))
    if numbers.is_floating_point():
        whole = numbers.long()
        if not torch.equal(whole.to(numbers.dtype), numbers):
            raise ValueError(f"classes are whole numbers, the labels hold {numbers[whole != numbers][0].item():.4g}")
        numbers = whole
    return numbers


def teacher_from(
    members: Sequence[str],
    variances: str,
    x: Tensor,
    labels: np.ndarray | None,
    saw: Tensor | None = None,
    task: str = "",
) -> tuple[Predictions | Forecasts, Tensor | None]:
    """What the files say, and the labels as they are for it: continuous targets are floats, classes whole numbers."""
    files = members[0] if len(members) == 1 else list(members)
    y = None if labels is None else torch.as_tensor(labels) if labels.dtype.kind in "biuf" else None
    if variances:
        return Forecasts(files, len(x), variances=variances, saw=saw), None if y is None else y.float()
    if isinstance(files, str) and read(files).values.ndim == 2:
        if y is None:
            raise ValueError(
                f"{files} holds one number per example and member, forecasts without a variance: pass labels to "
                "estimate the noise from, or variances"
            )
        if saw is None:
            tell(
                "nobody said which rows the members were trained on: the noise is right only if these were none of "
                "them (--folds FILE or --saw FILE says who saw which)"
            )
        return committee(files, x, y.float(), saw), y.float()  # type: ignore[return-value]
    teacher = Predictions(files, examples=len(x), saw=saw)
    if labels is None:
        return teacher, None
    numbers = as_labels(labels, teacher, task)
    known = numbers != UNLABELLED
    require_labels("labels", numbers.masked_fill(~known, 0), teacher.logits.shape[-1], torch.arange(len(numbers)))
    return teacher, numbers


def first_member(said: Mixture) -> Mixture:
    """What the first member said alone."""
    return Mixture(type(said.members)(*(t[:, :1] for t in vars(said.members).values())))
