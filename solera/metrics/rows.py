"""Rows of class scores with their labels: what the metrics of predicted probabilities read."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Elements, Values, elements, to_numpy

SUM_TOLERANCE = 1e-3  # how far from 1 the probabilities of one row may add up


def _check_rows(rows: NDArray, start: int, name: str, layout: Elements) -> None:
    """Every row must be a distribution: no entry below 0, sum 1 to within 1e-3 (so no entry is above 1.001)."""
    with np.errstate(all="ignore"):
        sums = rows.sum(-1)
        if rows.min() >= 0 and sums.min() >= 1 - SUM_TOLERANCE and sums.max() <= 1 + SUM_TOLERANCE:
            return
        first = int((~((rows >= 0).all(-1) & (np.abs(sums - 1) <= SUM_TOLERANCE))).argmax())
    row, where = rows[first], f"{name}[{layout.position(start + first)}]"
    if np.isnan(row).any():
        raise ValueError(f"{where} contains NaN: remove the row or give it weight 0")
    if row.min() < 0:
        raise ValueError(f"{where} contains {row.min()}, outside [0, 1]: pass probabilities, not logits")
    raise ValueError(f"{where} sums to {sums[first]:.6g}, not 1: pass probabilities, not logits")


def checked_blocks(probs: NDArray, name: str, layout: Elements) -> Iterator[tuple[slice, NDArray]]:
    """Blocks of rows small enough to stay in the processor's cache, each checked and handed on while it is there.

    With few classes a block is stored class by class: maxima and sums over the classes then run along the rows, which
    is several times faster. For the reader it is an array [rows, K] either way.
    """
    classes = probs.shape[-1]
    step = max(1, min(2**14, 2**18 // classes))
    for start in range(0, len(probs), step):
        block = slice(start, start + step)
        rows = np.asfortranarray(probs[block]) if classes <= 32 else probs[block]
        _check_rows(rows, start, name, layout)
        yield block, rows


def check_labels(y: NDArray, classes: int, layout: Elements) -> NDArray[np.intp]:
    """Class indices, whole numbers in 0 … K−1."""
    if y.dtype.kind not in "biu":
        raise ValueError(f"y has type {y.dtype}: pass whole class indices, for example y.astype(int)")
    if y.min() < 0 or y.max() >= classes:
        at = ((y < 0) | (y >= classes)).argmax()
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


def at_label(rows: NDArray, y: NDArray) -> NDArray:
    """The entry of every row at its label."""
    if rows.flags.f_contiguous:  # a flat index is twice as fast as a pair
        return rows.T.reshape(-1).take(y * len(rows) + np.arange(len(rows)))
    return rows[np.arange(len(rows)), y]


def top_class(rows: NDArray, y: NDArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """max_k p_k, and whether argmax_k p_k = y; among equally probable classes argmax is the lowest index."""
    top = rows.max(-1)
    # argmax is slow over few classes. It is needed only where a maximum is shared; elsewhere p_y = max says the same.
    shared = np.count_nonzero(rows == top[:, None]) > len(top)
    correct = rows.argmax(-1) == y if shared else at_label(rows, y) == top
    return np.minimum(top, 1.0, dtype=np.float64), correct
