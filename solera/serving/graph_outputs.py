"""What an exported graph answers: the student's mean, total, data and knowledge, computed inside it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from solera.data import map_tensors
from solera.training.student import Student


class Answers(nn.Module):
    """A student as torch.export can trace it: tensors in, its mean and its uncertainty out, as tensors, by `names`."""

    def __init__(self, student: Student, example: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.student, self.names = student, names
        self.nest = map_tensors(lambda t: t[:0], example)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        prediction = self.student(map_tensors(lambda _: next(given), self.nest))
        return tuple(getattr(prediction, name) for name in self.names)
