"""Which task it is: by its name, or as a guess from the targets."""

from dataclasses import asdict
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from solera.tasks.base import Task
from solera.tasks.classification import Classification
from solera.tasks.regression import Regression
from solera.tasks.seq2seq import Seq2Seq
from solera.tasks.tagging import Tagging
from solera.tasks.transcription import Transcription
from solera.tasks.translation import Translation

TASKS: dict[str, type[Task]] = {
    kind.name: kind for kind in (Classification, Regression, Seq2Seq, Tagging, Transcription, Translation)
}


def register(kind: type[Task]) -> type[Task]:
    """Makes a task of your own known by its name, so that saved evaluations can be read: a class decorator."""
    known = TASKS.setdefault(kind.name, kind)
    if known is not kind and known.__qualname__ != kind.__qualname__:
        raise ValueError(f"there is a task {kind.name!r} already, {known.__qualname__}: choose another name")
    TASKS[kind.name] = kind
    return kind


def task_named(name: str, settings: dict[str, Any] | None = None) -> Task:
    """The task of this name with these settings."""
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r} among {', '.join(TASKS)}: solera.tasks.register adds yours")
    return TASKS[name].of_settings(settings or {})


def entry_of(task: Task) -> dict[str, Any]:
    """A task in a file: `task_named(**entry)` makes it again."""
    return {"name": task.name, "settings": asdict(task)}  # type: ignore[call-overload]


def task_of(target: Shaped[Tensor, "..."]) -> Task:
    """A guess, where no task is given: whole numbers are classes, floating-point ones continuous targets."""
    return Regression() if target.is_floating_point() else Classification()


def task_of_family(family: str) -> Task:
    """The first task whose predictions are of this family: classification, or regression."""
    return next(kind() for kind in TASKS.values() if kind.family == family)
