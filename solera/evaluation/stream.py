"""Every model on the same examples, a few at a time; nothing is kept but columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from solera.core.memory import give_back
from solera.core.progress import progress
from solera.data import Batch, ManyBatches
from solera.distributions.base import Prediction
from solera.distributions.families import family_named
from solera.evaluation.measure import Sets
from solera.tasks import Columns, Task
from solera.teachers.base import Teacher

NUMBERS = 1 << 22  # that an answer may hold at once, members and classes included
PIECES = 16  # that are answered before freed memory is handed back


@runtime_checkable
class Predictor(Protocol):
    """A student, an ensemble: whatever answers inputs with a Prediction."""

    def predict(self, inputs: Any) -> Prediction:
        """The answer for these inputs."""
        ...


@dataclass(frozen=True)
class Elements:
    """The elements of a set: whose they are, which token, their targets and weights, where they have any."""

    example: np.ndarray
    token: np.ndarray | None = None
    target: np.ndarray | None = None

    @property
    def starts(self) -> np.ndarray:
        """Where each example's elements begin, and the end of the last: they stand together."""
        change = np.flatnonzero(np.diff(self.example)) + 1
        return np.concatenate([[0], change, [len(self.example)]])

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1


def rows_of(prediction: Any, rows: slice | list[int] | tuple[slice, slice]) -> Any:
    """A prediction of some of the examples, or of some of their tokens."""
    if isinstance(prediction, Tensor):
        return prediction[rows]
    if not is_dataclass(prediction):
        return prediction
    part = object.__new__(type(prediction))  # its fields are not always what its class is made from
    for field in fields(prediction):
        object.__setattr__(part, field.name, rows_of(getattr(prediction, field.name), rows))
    return part


class Source:
    """One model: a predictor, a teacher that remembers, or what a model once said, by set."""

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model = name, model
        self.members = int(getattr(model, "members", 1))

    def knows(self, name: str) -> bool:
        """Whether it can be asked about this set."""
        return not isinstance(self.model, Mapping) or name in self.model

    def __call__(self, name: str, batch: Batch, position: int) -> Prediction:
        """Its answer about a batch of a set, whose first example is at this position."""
        model = self.model[name] if isinstance(self.model, Mapping) else self.model
        if isinstance(model, Prediction):
            end = position + len(batch)
            if end > len(model.mean):
                raise ValueError(
                    f"{self.name} answered for {len(model.mean)} inputs of the set {name!r}, which has more"
                )
            return rows_of(model, slice(position, end))
        if isinstance(model, Predictor):
            return self._for(batch, model.predict(batch.inputs))
        if isinstance(model, Teacher):
            model.check(batch)
            return self._for(batch, model(batch))
        raise TypeError(
            f"{self.name} is a {type(model).__name__}, which cannot be asked: a model has predict(inputs), or is a "
            "teacher; put a model of your own into solera.Ensemble([model])"
        )

    def _for(self, batch: Batch, said: Prediction) -> Prediction:
        if len(said.mean) != len(batch):
            raise ValueError(f"{self.name} was asked about {len(batch)} inputs and answered for {len(said.mean)}")
        return said


def source_of(name: str, model: Any) -> Source:
    """A model as what answers for it."""
    return model if isinstance(model, Source) else Source(name, model)


def pieces(batch: Batch, sources: Mapping[str, Source], name: str, position: int) -> Iterator[tuple[int, Batch]]:
    """The batch in parts small enough that no answer holds more than so many numbers."""
    largest = 1
    for source in sources.values():
        said = source(name, batch.take(slice(0, 1)), position)
        largest = max(largest, said.mean.numel() * source.members)
    size = max(1, NUMBERS // largest)
    for start in range(0, len(batch), size):
        yield position + start, batch.take(slice(start, start + size))


def _check(said: Mapping[str, Prediction], batch: Batch, task: Task) -> None:
    """All models and the labels must have the same classes or targets."""
    sizes = {name: prediction.mean.shape[-1] for name, prediction in said.items()}
    first, size = next(iter(sizes.items()))
    what = family_named(task.family).sizes
    for name, other in sizes.items():
        if other != size:
            raise ValueError(f"{name} answers for {other} {what}, {first} for {size}: compare models of one question")
    task.check(batch, size)


class _Collected:
    """Columns as they come, batch by batch."""

    def __init__(self) -> None:
        self.parts: dict[str, list[np.ndarray]] = {}

    def add(self, columns: Mapping[str, Tensor | np.ndarray], mask: np.ndarray) -> None:
        for key, column in columns.items():
            array = column.detach().cpu().numpy() if isinstance(column, Tensor) else column
            self.parts.setdefault(key, []).append(array[mask])

    def joined(self, order: np.ndarray | None) -> Columns:
        """Whole columns, their elements in this order."""
        whole = {key: np.concatenate(parts) for key, parts in self.parts.items()}
        return whole if order is None else {key: column[order] for key, column in whole.items()}


def stream(
    models: Mapping[str, Any], name: str, batches: ManyBatches, task: Task, reference: str | None
) -> tuple[Elements, dict[str, Columns]]:
    """The elements of a set, and every model's columns of them."""
    sources = {key: source for key, model in models.items() if (source := source_of(key, model)).knows(name)}
    collected: dict[str, _Collected] = {key: _Collected() for key in sources}
    facts, position, answered = _Collected(), 0, 0
    with progress(f"evaluate on {name}", len(batches)) as advance, torch.no_grad():
        for batch in batches:
            for place, part in pieces(batch, sources, name, position):
                said = {key: source(name, part, place) for key, source in sources.items()}
                _check(said, part, task)
                shape = next(iter(said.values())).total.shape
                mask = task.mask(part, shape)
                facts.add(_facts(part, task, shape), mask.numpy())
                for key, prediction in said.items():
                    columns = task.columns(prediction, part)
                    if reference in said:
                        columns |= task.compare(prediction, said[reference])  # type: ignore[index]
                    collected[key].add(columns, mask.numpy())
                answered += 1
                if answered % PIECES == 0:
                    give_back()
            position += len(batch)
            advance("")
    _require_all(name, models, position)
    own = facts.joined(None)
    if not own or not len(own["example"]):
        raise ValueError(
            f"the set {name!r} has no element that counts: all are padding or unlabelled (pass a set without labels "
            "as such, without targets)"
        )
    order = np.argsort(own["example"], kind="stable")
    elements = {key: column[order] for key, column in own.items()}
    weight = elements.pop("weight", None)
    found = {key: parts.joined(order) for key, parts in collected.items()}
    if weight is not None and not (weight == 1).all():
        found = {key: {**columns, "weight": weight} for key, columns in found.items()}
    return Elements(**elements), found


def _require_all(name: str, models: Mapping[str, Any], size: int) -> None:
    for key, model in models.items():
        said = model.get(name) if isinstance(model, Mapping) else None
        if isinstance(said, Prediction) and len(said.mean) != size:
            raise ValueError(f"{key} answered for {len(said.mean)} inputs of the set {name!r}, which has {size}")


def _facts(batch: Batch, task: Task, shape: torch.Size) -> dict[str, Tensor]:
    """What belongs to the elements themselves."""
    rest = [1] * (len(shape) - 1)
    found = {"example": batch.index.reshape(-1, *rest).expand(shape)}
    if rest:
        found["token"] = torch.arange(shape[1]).reshape(1, -1, *rest[1:]).expand(shape)
    target = task.element_target(batch)
    if target is not None:
        found["target"] = target
    weight = task.weight(batch, shape)
    return found if weight is None else {**found, "weight": weight}


def by_set(found: Mapping[str, dict[str, Columns]]) -> dict[str, Sets]:
    """Columns by model and set, from those by set and model."""
    every: dict[str, Sets] = {}
    for name, models in found.items():
        for model, columns in models.items():
            every.setdefault(model, {})[name] = columns
    return every
