"""Metrics: pure functions, arrays, tensors or lists in, a float out.

Axes come first as *batch, any number of them, so that a batch of images and a padded batch of tokens are the same to
every metric. `weight` has one entry per element. Weight 0 is padding: the element is dropped before anything is
checked, so it may hold anything. Means (accuracy, nll, brier, ece, stratified_brier, agreement, mean_kl,
mean_absolute_difference) also honour weights other than 0 and 1; the metrics that rank or count elements (all others)
only ask whether a weight is above 0.
"""

from solera.metrics.balanced import balanced_brier, balanced_ece, stratified_brier
from solera.metrics.calibration import adaptive_ece, ece, top_k_ece
from solera.metrics.detection import aupr, auroc, fpr_at_tpr
from solera.metrics.fidelity import agreement, mean_absolute_difference, mean_kl, rank_correlation
from solera.metrics.rejection import prediction_rejection_ratio, rejection_curve
from solera.metrics.scores import accuracy, brier, nll

__all__ = [
    "accuracy",
    "adaptive_ece",
    "agreement",
    "aupr",
    "auroc",
    "balanced_brier",
    "balanced_ece",
    "brier",
    "ece",
    "fpr_at_tpr",
    "mean_absolute_difference",
    "mean_kl",
    "nll",
    "prediction_rejection_ratio",
    "rank_correlation",
    "rejection_curve",
    "stratified_brier",
    "top_k_ece",
]
