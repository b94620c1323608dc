"""What the data mean: what a target is, what a model says about it, what can be measured."""

from solera.tasks.base import Columns, ErrorKind, Figure, Margin, Row, Score, Task, mean_of, uncertainties
from solera.tasks.classification import Classification
from solera.tasks.generation import Generation
from solera.tasks.infer import entry_of, register, task_named, task_of, task_of_family
from solera.tasks.regression import Regression
from solera.tasks.seq2seq import Seq2Seq
from solera.tasks.tagging import Tagging
from solera.tasks.transcription import Transcription
from solera.tasks.translation import Translation

__all__ = [
    "Classification",
    "Columns",
    "ErrorKind",
    "Figure",
    "Generation",
    "Margin",
    "Regression",
    "Row",
    "Score",
    "Seq2Seq",
    "Tagging",
    "Task",
    "Transcription",
    "Translation",
    "entry_of",
    "mean_of",
    "register",
    "task_named",
    "task_of",
    "task_of_family",
    "uncertainties",
]
