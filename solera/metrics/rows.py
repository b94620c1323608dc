"""Rows of class scores with their labels: what the metrics of predicted probabilities read."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Elements, Values, elements, to_numpy

SUM_TOLERANCE = 1e-3  # how far from 1 the probabilities of one row may add up


def blocks(probs: NDArray) -> Iterator[slice]:
    """Slices of rows small enough to stay in the processor's cache: twice as fast as one pass over a million rows."""
    step = max(1, min(2**14, 2**18 // probs.shape[-1]))
    return (slice(start, start + step) for start in range(0, len(probs), step))


def check_rows(probs: NDArray, name: str, layout: Elements) -> None:
    """Every row must be a distribution: no entry below 0, sum 1 to within 1e-3 (so no entry is above 1.001)."""
    ones = np.ones(probs.shape[-1], probs.dtype)
    for block in blocks(probs):
        rows = probs[block]
        with np.errstate(all="ignore"):
            off = np.abs(rows @ ones - 1)
            if rows.min() >= 0 and off.max() <= SUM_TOLERANCE:
                continue
            first = int((~((rows >= 0).all(-1) & (off <= SUM_TOLERANCE))).argmax())
        row, where = rows[first], f"{name}[{layout.position(block.start + first)}]"
        if np.isnan(row).any():
            raise ValueError(f"{where} contains NaN: remove the row or give it weight 0")
        if row.min() < 0:
            raise ValueError(f"{where} contains {row.min()}, outside [0, 1]: pass probabilities, not logits")
        raise ValueError(f"{where} sums to {row.sum():.6g}, not 1: pass probabilities, not logits")


def check_labels(y: NDArray, classes: int, layout: Elements) -> NDArray[np.intp]:
    """Class indices, whole numbers in 0 … K−1."""
    if y.dtype.kind not in "biu":
        raise ValueError(f"y has type {y.dtype}: pass whole class indices, for example y.astype(int)")
    bad = (y < 0) | (y >= classes)
    if bad.any():
        at = bad.argmax()
        raise ValueError(
            f"y[{layout.position(at)}] is {y[at]}, but there are {classes} classes: "
            f"labels must be 0 to {classes - 1}; give padding weight 0"
        )
    return y.astype(np.intp, copy=False)


def rows_and_labels(rows: Values, name: str, y: Values, weight: Values | None) -> tuple[Elements, NDArray, NDArray]:
    """Rows [*batch, K] and labels [*batch] as [N, K] and [N] without padding. Only the labels are checked."""
    values, labels = to_numpy(rows, name), to_numpy(y, "y")
    if values.size == 0:
        raise ValueError(f"{name} is empty (shape {values.shape}): pass at least one row")
    if values.ndim == 0 or values.shape[:-1] != labels.shape:
        raise ValueError(
            f"{name} has shape {values.shape} but y has {labels.shape}: y must have one entry per row of {name}"
        )
    layout = elements(labels.shape, "y", weight)
    values = layout.pick(values if values.dtype.kind == "f" else values.astype(np.float64))
    return layout, values, check_labels(layout.pick(labels), values.shape[-1], layout)


def probabilities(probs: Values, y: Values, weight: Values | None) -> tuple[Elements, NDArray, NDArray]:
    """Checked probabilities [N, K] in their own precision and checked labels [N]."""
    layout, values, labels = rows_and_labels(probs, "probs", y, weight)
    check_rows(values, "probs", layout)
    return layout, values, labels


def at_label(probs: NDArray, y: NDArray) -> NDArray[np.float64]:
    """p_y of every row, as float64."""
    return probs[np.arange(len(y)), y].astype(np.float64)
