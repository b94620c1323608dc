"""Did the student keep what the ensemble knew?"""

from solera.evaluation.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
