"""Proper scores and accuracy of predicted class probabilities: probs [*batch, K], class indices y [*batch]."""

import numpy as np

from solera.metrics.inputs import Values
from solera.metrics.rows import at_label, checked_blocks, rows_and_labels, top_class


def accuracy(probs: Values, y: Values, weight: Values | None = None) -> float:
    """How often argmax_k p_k = y; among equally probable classes the lowest index is the prediction."""
    layout, p, labels = rows_and_labels(probs, "probs", y, weight)
    correct = [top_class(rows, labels[block])[1] for block, rows in checked_blocks(p, "probs", layout)]
    return layout.average(np.concatenate(correct).astype(np.float64))


def nll(probs: Values, y: Values, weight: Values | None = None) -> float:
    """Mean −ln p_y in nats; infinite when a true class was given probability 0."""
    layout, p, labels = rows_and_labels(probs, "probs", y, weight)
    of_label = [at_label(rows, labels[block]) for block, rows in checked_blocks(p, "probs", layout)]
    with np.errstate(divide="ignore"):
        return layout.average(-np.log(np.concatenate(of_label).astype(np.float64)))


def brier(probs: Values, y: Values, weight: Values | None = None) -> float:
    """Mean Σ_k (p_k − [k = y])², between 0 and 2 (`hydra` prints this minus 1)."""
    layout, p, labels = rows_and_labels(probs, "probs", y, weight)
    squares = []
    for block, rows in checked_blocks(p, "probs", layout):
        difference = rows.astype(np.float64)  # always a copy: the caller's array stays as it is
        difference[np.arange(len(rows)), labels[block]] -= 1.0
        squares.append((difference**2).sum(-1))
    return layout.average(np.concatenate(squares))
