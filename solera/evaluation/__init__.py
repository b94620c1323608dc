"""Did the student keep what the ensemble knew?"""

from solera.evaluation.compare import compare
from solera.evaluation.evaluate import evaluate
from solera.evaluation.evaluation import Evaluation
from solera.evaluation.intervals import Interval
from solera.evaluation.report import report
from solera.evaluation.thresholds import (
    Threshold,
    threshold_for_error,
    threshold_for_false_alarms,
    threshold_table,
    thresholds_for_errors,
)
from solera.evaluation.verdict import Verdict, verdict

__all__ = [
    "Evaluation",
    "Interval",
    "Threshold",
    "Verdict",
    "compare",
    "evaluate",
    "report",
    "threshold_for_error",
    "threshold_for_false_alarms",
    "threshold_table",
    "thresholds_for_errors",
    "verdict",
]
