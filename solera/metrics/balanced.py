"""Calibration where almost every label is 0, as in entity recognition (`structured`): stratified and balanced scores.

Inputs are cells [*tokens, types]: the probability that a token is of a type, and whether it is. A single axis is one
type. `weight` has one entry per token, 0 for padding.

Balanced scores look, for each type with N ≥ 1 gold tokens, at its 2N most confident cells (at all of them when there
are fewer), and average the types with weight 2N. Where cells tie at the cut, each counts as gold to the degree their
block is, so that the result does not depend on the order of the tokens.
"""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solera.metrics.calibration import check_bins, equal_count_gaps
from solera.metrics.inputs import Elements, Values, columns, to_numpy, unit_interval, zero_or_one
from solera.metrics.ties import average_over_ties

Cells = tuple[Elements, NDArray[np.float64], NDArray[np.bool_]]


def _cells(confidence: Values, label: Values, weight: Values | None) -> Cells:
    """Checked confidences and labels as [tokens, types] without padding."""
    confidence, label = to_numpy(confidence, "confidence"), to_numpy(label, "label")
    types = label.shape[-1] if label.ndim > 1 else 1
    if weight is not None and label.ndim > 1:
        weights = to_numpy(weight, "weight")
        if weights.shape != label.shape[:-1]:
            raise ValueError(
                f"weight has shape {weights.shape}, but the tokens have {label.shape[:-1]}: pass one weight per token"
            )
        weight = np.repeat(weights[..., None], types, axis=-1)
    layout, (certain, gold) = columns({"confidence": confidence, "label": label}, weight)
    shape = (-1, types)
    certain, gold = unit_interval(certain, "confidence", layout), zero_or_one(gold, "label", layout)
    return layout, certain.reshape(shape), gold.reshape(shape)


def stratified_brier(confidence: Values, label: Values, weight: Values | None = None) -> tuple[float, float]:
    """(BS+, BS−): the mean (confidence − label)² over all cells with label 1, and over all with label 0.

    A stratum without cells is NaN, with a RuntimeWarning.
    """
    layout, certain, gold = _cells(confidence, label, weight)
    square = (certain - gold).reshape(-1) ** 2
    weights = np.ones_like(square) if layout.weight is None else layout.weight
    strata: list[float] = []
    for name, cells in (("BS+", gold.reshape(-1)), ("BS−", ~gold.reshape(-1))):
        if cells.any():
            strata.append(float(np.average(square[cells], weights=weights[cells])))
        else:
            warnings.warn(f"{name} is NaN: no cell has label {int(name == 'BS+')}", RuntimeWarning, stacklevel=2)
            strata.append(float("nan"))
    return strata[0], strata[1]


def _average_over_types(cells: Cells, score: Callable[[NDArray, NDArray], float]) -> float:
    """Σ_t 2N_t · score(the 2N_t most confident cells of type t) / Σ_t 2N_t."""
    _, certain, gold = cells
    kept = 2 * gold.sum(0)
    if not kept.any():
        warnings.warn("the balanced score is NaN: no cell has label 1", RuntimeWarning, stacklevel=3)
        return float("nan")
    scores = []
    for column in np.flatnonzero(kept):
        confidences, labels = average_over_ties(certain[:, column], gold[:, column])
        scores.append(score(confidences[-kept[column] :], labels[-kept[column] :]))
    return float(np.average(scores, weights=kept[kept > 0]))


def balanced_brier(confidence: Values, label: Values, weight: Values | None = None) -> float:
    """B-BS: the mean (confidence − label)² over the 2N most confident cells of each type, types weighted by 2N."""
    return _average_over_types(
        _cells(confidence, label, weight),
        # A tied cell carries the mean label l of its block: l·(1 − c)² + (1 − l)·c² is the block's mean square.
        lambda c, gold: float((gold * (1 - c) ** 2 + (1 - gold) * c**2).mean()),
    )


def balanced_ece(confidence: Values, label: Values, bins: int = 20, weight: Values | None = None) -> float:
    """B-ECE: the adaptive ECE over the 2N most confident cells of each type, types weighted by 2N.

    Bins hold equal counts; with 2N < bins every cell is a bin of its own.
    """
    check_bins(bins)

    def score(certain: NDArray, gold: NDArray) -> float:
        gaps, sizes = equal_count_gaps(certain, gold, bins)
        return float(gaps @ sizes / len(certain))

    return _average_over_types(_cells(confidence, label, weight), score)
