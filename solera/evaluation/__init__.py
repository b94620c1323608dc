"""Did the student keep what the ensemble knew?"""

from solera.evaluation.evaluate import Evaluation, evaluate
from solera.evaluation.intervals import Interval
from solera.evaluation.thresholds import Threshold, threshold_for_error, threshold_for_false_alarms, threshold_table
from solera.evaluation.verdict import Verdict, verdict

__all__ = [
    "Evaluation",
    "Interval",
    "Threshold",
    "Verdict",
    "evaluate",
    "threshold_for_error",
    "threshold_for_false_alarms",
    "threshold_table",
    "verdict",
]
