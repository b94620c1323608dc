"""What the data mean: what a target is, what a model says about it, what can be measured."""

from solera.tasks.base import Columns, Row, Task
from solera.tasks.classification import Classification
from solera.tasks.known import task_of
from solera.tasks.regression import Regression

__all__ = ["Classification", "Columns", "Regression", "Row", "Task", "task_of"]
