"""Metrics: pure functions, arrays, tensors or lists in, a float out.

Axes come first as *batch, any number of them, so that a batch of images and a padded batch of tokens are the same to
every metric. `weight` has one entry per element. Weight 0 is padding: the element is dropped before anything is
checked, so it may hold anything. Means (accuracy, nll, brier, ece, stratified_brier, agreement, mean_kl,
mean_absolute_difference, and of continuous targets rmse, mae, mean_nll, crps, crps_student_t, coverage, coverage_at,
coverage_error, interval_width) also honour weights other than 0 and 1; the metrics that rank or count elements (all
others) only ask whether a weight is above 0.
"""

from solera.metrics.balanced import balanced_brier, balanced_ece, stratified_brier
from solera.metrics.calibration import adaptive_ece, confidence_ece, ece, top_k_ece
from solera.metrics.detection import aupr, auroc, fpr_at_tpr
from solera.metrics.fidelity import agreement, mean_absolute_difference, mean_kl, rank_correlation
from solera.metrics.regression import (
    coverage,
    coverage_at,
    coverage_error,
    crps,
    error_correlation,
    interval_width,
    mae,
    mean_nll,
    retention_area,
    retention_curve,
    retention_ratio,
    rmse,
)
from solera.metrics.rejection import prediction_rejection_ratio, rejection_curve
from solera.metrics.scores import accuracy, brier, nll
from solera.metrics.spans import (
    lenient_spans,
    precision_recall,
    span_brier,
    span_counts,
    span_counts_by_type,
    strict_spans,
)
from solera.metrics.student_t import crps_student_t

__all__ = [
    "accuracy",
    "adaptive_ece",
    "agreement",
    "aupr",
    "auroc",
    "balanced_brier",
    "balanced_ece",
    "brier",
    "confidence_ece",
    "coverage",
    "coverage_at",
    "coverage_error",
    "crps",
    "crps_student_t",
    "ece",
    "error_correlation",
    "fpr_at_tpr",
    "interval_width",
    "lenient_spans",
    "mae",
    "mean_absolute_difference",
    "mean_kl",
    "mean_nll",
    "nll",
    "precision_recall",
    "prediction_rejection_ratio",
    "rank_correlation",
    "rejection_curve",
    "retention_area",
    "retention_curve",
    "retention_ratio",
    "rmse",
    "span_brier",
    "span_counts",
    "span_counts_by_type",
    "stratified_brier",
    "strict_spans",
    "top_k_ece",
]
