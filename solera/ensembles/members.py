"""What all ways of making members share: first weights of their own, and a check of the data."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from solera.core.seeds import seed_everything
from solera.data import Batches, ManyBatches, Sequences, as_batches
from solera.tasks import Task
from solera.teachers.ensemble import Ensemble
from solera.training.fit import first_of, task_for


def prepared(data: Any, task: Task | None) -> tuple[ManyBatches, Task]:
    """The data as batches, and the task, guessed from the first of them where it is not given."""
    batches = as_batches(data, read=None if task is None else task.batch)
    return batches, task_for(task, first_of(batches))


def in_memory(data: Any, task: Task | None, what: str) -> tuple[Batches | Sequences, Task]:
    """The same, of data whose examples can be chosen by row."""
    batches, task = prepared(data, task)
    if not isinstance(batches, (Batches, Sequences)):
        raise ValueError(
            f"{what} need arrays, whose rows can be chosen, got {type(batches).__name__}: use Batches or Sequences"
        )
    return batches, task


def fresh(make: Callable[[], nn.Module], seeds: Sequence[int]) -> list[nn.Module]:
    """One network per seed."""
    networks: list[nn.Module] = []
    for seed in seeds:
        seed_everything(seed)
        networks.append(make())
    return networks


def together(networks: Sequence[nn.Module], batches: ManyBatches, task: Task, saw: Any = None) -> Ensemble:
    """The trained networks as an ensemble for targets such as theirs."""
    return Ensemble(networks, saw=saw, class_names=getattr(batches, "names", None), family=task.family)
