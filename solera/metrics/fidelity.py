"""How faithfully a student repeats its teacher, in predictions and in uncertainties."""

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Elements, Values, columns, elements, to_numpy
from solera.metrics.rows import checked_blocks


def _pair(p_teacher: Values, p_student: Values, weight: Values | None) -> tuple[Elements, NDArray, NDArray]:
    """Two sets of probabilities [N, K] without padding."""
    teacher, student = to_numpy(p_teacher, "p_teacher"), to_numpy(p_student, "p_student")
    if teacher.shape != student.shape or not teacher.ndim:
        raise ValueError(
            f"p_teacher has shape {teacher.shape} but p_student has {student.shape}: both must be [*batch, K]"
        )
    layout = elements(teacher.shape[:-1], "p_teacher", weight)
    teacher, student = (layout.pick(p if p.dtype.kind == "f" else p.astype(np.float64)) for p in (teacher, student))
    return layout, teacher, student


def _blocks(teacher: NDArray, student: NDArray, layout: Elements) -> Iterator[tuple[NDArray, NDArray]]:
    """Both, checked, block by block."""
    both = zip(checked_blocks(teacher, "p_teacher", layout), checked_blocks(student, "p_student", layout), strict=True)
    return ((p, q) for (_, p), (_, q) in both)


def agreement(p_teacher: Values, p_student: Values, weight: Values | None = None) -> float:
    """How often both name the same most probable class; among equals the lowest index is the one named."""
    layout, teacher, student = _pair(p_teacher, p_student, weight)
    same = [p.argmax(-1) == q.argmax(-1) for p, q in _blocks(teacher, student, layout)]
    return layout.average(np.concatenate(same).astype(np.float64))


def mean_kl(p_teacher: Values, p_student: Values, weight: Values | None = None) -> float:
    """Mean KL(p‖q) = Σ_k [p_k ln(p_k/q_k) − p_k + q_k] in nats; infinite where the student excludes a possible class.

    The last two terms cancel in exact arithmetic. With them no term is negative, and rows whose sum is off 1 by
    rounding do not drown a small divergence.
    """
    layout, teacher, student = _pair(p_teacher, p_student, weight)
    divergences = []
    for p, q in _blocks(teacher, student, layout):
        p, q = p.astype(np.float64), q.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)  # 0 ln 0 = 0
        divergences.append((terms - p + q).sum(-1))
    return layout.average(np.concatenate(divergences))


def _centred_ranks(column: NDArray) -> NDArray[np.float64]:
    """Twice the rank minus its mean, tied elements sharing the middle rank: whole numbers, hence exact."""
    _, block, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (2 * last - counts - len(column))[block].astype(np.float64)


def rank_correlation(teacher: Values, student: Values, weight: Values | None = None) -> float:
    """Spearman's ρ: the Pearson correlation of the ranks, tied elements sharing their average rank.

    `weight` only says what is padding. A constant column has no order: NaN, with a RuntimeWarning.
    """
    _, (left, right) = columns({"teacher": teacher, "student": student}, weight)
    left, right = _centred_ranks(left), _centred_ranks(right)
    for name, ranks in (("teacher", left), ("student", right)):
        if not ranks.any():
            warnings.warn(f"the rank correlation is NaN: {name} is constant", RuntimeWarning, stacklevel=2)
            return float("nan")
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))


def mean_absolute_difference(teacher: Values, student: Values, weight: Values | None = None) -> float:
    """Mean |teacher − student|, for example of two uncertainties."""
    layout, (left, right) = columns({"teacher": teacher, "student": student}, weight)
    return layout.average(np.abs(left.astype(np.float64) - right.astype(np.float64)))
