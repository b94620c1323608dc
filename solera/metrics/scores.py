"""Proper scores and accuracy of predicted class probabilities: probs [*batch, K], class indices y [*batch]."""

import numpy as np

from solera.metrics.inputs import Values
from solera.metrics.rows import at_label, blocks, probabilities


def accuracy(probs: Values, y: Values, weight: Values | None = None) -> float:
    """How often argmax_k p_k = y; among equally probable classes the lowest index is the prediction."""
    layout, p, labels = probabilities(probs, y, weight)
    return layout.average((p.argmax(-1) == labels).astype(np.float64))


def nll(probs: Values, y: Values, weight: Values | None = None) -> float:
    """Mean −ln p_y in nats; infinite when a true class was given probability 0."""
    layout, p, labels = probabilities(probs, y, weight)
    with np.errstate(divide="ignore"):
        return layout.average(-np.log(at_label(p, labels)))


def brier(probs: Values, y: Values, weight: Values | None = None) -> float:
    """Mean Σ_k (p_k − [k = y])², between 0 and 2 (`hydra` prints this minus 1)."""
    layout, p, labels = probabilities(probs, y, weight)
    squares = []
    for block in blocks(p):
        difference = p[block].astype(np.float64)  # always a copy: the caller's array stays as it is
        difference[np.arange(len(difference)), labels[block]] -= 1.0
        squares.append(np.einsum("nk,nk->n", difference, difference))
    return layout.average(np.concatenate(squares))
