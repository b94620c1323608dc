"""How well a score finds the positives: misclassified or out-of-domain examples, higher score = more suspect.

Equal scores are one threshold: a tied block is flagged together. `weight` only says what is padding here (an element
is kept when its weight is above 0).
"""

import numpy as np
from numpy.typing import NDArray

from solera.metrics.inputs import Values, columns, zero_or_one
from solera.metrics.ties import cumulative_counts


def _flagged(
    score: Values, positive: Values, weight: Values | None, needs_negatives: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements and positives flagged at every distinct threshold, from none to all."""
    layout, (scores, truth) = columns({"score": score, "positive": positive}, weight)
    flagged, found = cumulative_counts(scores, zero_or_one(truth, "positive", layout))
    if found[-1] == 0:
        raise ValueError(f"positive has no positive among {flagged[-1]} elements: pass scores of both classes")
    if needs_negatives and found[-1] == flagged[-1]:
        raise ValueError(f"positive has no negative among {flagged[-1]} elements: pass scores of both classes")
    return flagged, found


def auroc(score: Values, positive: Values, weight: Values | None = None) -> float:
    """P(score of a positive > score of a negative) + ½ P(equal), from exact integer counts."""
    flagged, found = _flagged(score, positive, weight, needs_negatives=True)
    false_alarms = flagged - found
    # The trapezoid under a tied block is the ½ in the definition.
    twice_area = int(np.diff(false_alarms) @ (found[1:] + found[:-1]))
    return twice_area / (2 * int(found[-1]) * int(false_alarms[-1]))


def aupr(score: Values, positive: Values, weight: Values | None = None) -> float:
    """Average precision Σ_t (recall_t − recall_{t−1}) · precision_t over the distinct thresholds; no interpolation."""
    flagged, found = _flagged(score, positive, weight, needs_negatives=False)
    return float(np.diff(found) @ (found[1:] / flagged[1:]) / found[-1])


def fpr_at_tpr(score: Values, positive: Values, tpr: float = 0.95, weight: Values | None = None) -> float:
    """The false positive rate at the highest threshold whose true positive rate is at least `tpr`."""
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr is {tpr}: pass a rate above 0 and at most 1")
    flagged, found = _flagged(score, positive, weight, needs_negatives=True)
    first = int(np.argmax(found / found[-1] >= tpr))
    return float((flagged[first] - found[first]) / (flagged[-1] - found[-1]))
