"""The same view for student and teacher: with live members batch by batch, with slow ones asked once, in advance."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from solera.data import (
    Augment,
    Augmented,
    Batch,
    Batches,
    ManyBatches,
    Shuffling,
    Views,
    default_views,
    one_epoch,
    require_finite_inputs,
    shuffling,
)
from solera.data.auto_views import MOST_ROWS
from solera.distributions.base import Targets
from solera.methods.base import Method
from solera.teachers import DenseCodec, Labels, TransferSet, capture
from solera.teachers.adapters import Adapter, SequenceClassifier
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.teachers.base import Teacher
from solera.teachers.ensemble import Ensemble

SEEDED = 4  # views of every example that members which are asked only once are asked about
AT_ONCE = 1024  # examples that such a member is asked about in one call


def views_for(teacher: Teacher, views: str | Augment | None, inputs: Any, method: Method) -> Augment | None:
    """The function that makes views of such inputs; None: examples as they are.

    "auto" is the default for this kind of input and of target; none for a teacher that remembers, or that knows labels
    alone: these are for the examples as they are. Any other function needs a live teacher.
    """
    if views is None or (views == "auto" and (not teacher.live or isinstance(teacher, Labels))):
        return None
    if views == "auto":
        return default_views(inputs, continuous=getattr(method, "family", "categorical") == "gaussian")
    if isinstance(views, str):
        raise ValueError(f"views must be 'auto', None or a function (inputs, generator) → inputs, got {views!r}")
    if not teacher.live:
        raise ValueError(
            "remembered predictions know nothing of new views: pass the live Ensemble, or capture "
            "solera.data.Views(batches, augment, views=4) and distil on these, with views=None"
        )
    return views


def _reference(batches: ManyBatches) -> Any:
    """Some 4,096 examples' inputs, at random; None where they are padded, or of other sizes in every batch."""
    parts: list[Any] = []
    rows = 0
    for batch in one_epoch(batches, 0, 0):
        require_finite_inputs(batch)
        if (
            batch.masks is not None
            or not isinstance(batch.inputs, Tensor)
            or batch.inputs.shape[1:] != (parts[0] if parts else batch.inputs).shape[1:]
        ):
            return None
        parts.append(batch.inputs)
        rows += len(batch)
        if rows >= MOST_ROWS:
            break
    return torch.cat(parts)


def with_views(
    batches: ManyBatches, teacher: Teacher, views: str | Augment | None, method: Method, seed: int
) -> tuple[ManyBatches, Augment | None]:
    """The batches, changed at random in every epoch, and what changes them."""
    augment = views_for(teacher, views, _reference(batches) if views == "auto" and teacher.live else None, method)
    return (batches if augment is None else Augmented(shuffling(batches), augment, seed)), augment


def fingerprint_of_views(augment: Augment) -> str:
    """Changes when the views do: part of a run's identity."""
    return object_fingerprint(augment)


def expensive(teacher: Teacher) -> bool:
    """Whether members are to be asked once only: estimators, ONNX files and functions answer slowly, batch by batch."""
    return isinstance(teacher, Ensemble) and any(
        isinstance(model, Adapter) and not isinstance(model, SequenceClassifier) for model in teacher.models
    )


class _OfExamples:
    """A live teacher that is asked about views: view i·V + v is one of example i, whatever a member was trained on."""

    live = True

    def __init__(self, teacher: Teacher, views: int) -> None:
        self.teacher, self.views = teacher, views
        self.members, self.fingerprints = teacher.members, teacher.fingerprints
        self.class_names = getattr(teacher, "class_names", None)

    def _plain(self, batch: Batch) -> Batch:
        return replace(batch, index=batch.index // self.views)

    def check(self, batch: Batch) -> None:
        self.teacher.check(self._plain(batch))

    def __call__(self, batch: Batch) -> Targets:
        return self.teacher(self._plain(batch))


def _renamed(batches: Batches, views: int, size: int) -> Batches:
    """The same examples, example i as number i·V, in batches of this size."""
    whole = batches.all
    made = Batches(
        whole.inputs, whole.target, weight=whole.weight, batch_size=size, index=whole.index * views, names=batches.names
    )
    return made.marked(whole.elsewhere)


@contextmanager
def asked_once(
    teacher: Teacher, batches: Batches, held: Batches | None, augment: Augment | None, seed: int, folder: Path | None
) -> Iterator[tuple[TransferSet, Shuffling, Batches | None]]:
    """A memory of what the members say about seeded views of the batches, these views, and the held-out examples.

    View v of example i is number i·V + v, a held-out example number i·V, as it is. Kept in the folder; without one, in
    a temporary one that is gone afterwards. Every member is asked (V·N + N_held) / 1024 times, rounded up.
    """
    count = 1 if augment is None else SEEDED
    asked = _OfExamples(teacher, count)

    def shown(size: int) -> Shuffling:
        if augment is None:
            return _renamed(batches, 1, size)
        return Views(_renamed(batches, 1, size), augment, count, seed)

    with TemporaryDirectory(prefix="solera-") as temporary:
        path = folder or Path(temporary) / "captured"
        codec = DenseCodec("float32")
        memory = capture(asked, shown(AT_ONCE), path, codec)
        if held is not None:
            memory = capture(asked, _renamed(held, count, AT_ONCE), path, codec)
            held = _renamed(held, count, held.batch_size)
        yield memory, shown(batches.batch_size), held
