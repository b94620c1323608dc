"""Which task it is."""

from jaxtyping import Shaped
from torch import Tensor

from solera.tasks.base import Task
from solera.tasks.classification import Classification
from solera.tasks.regression import Regression


def task_of(target: Shaped[Tensor, "..."]) -> Task:
    """The kind of number decides: whole numbers are classes, floating-point ones are real targets."""
    return Regression() if target.is_floating_point() else Classification()
