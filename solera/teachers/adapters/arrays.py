"""Plain predictions: an array of what every member said about every example."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.errors import MismatchError
from solera.core.renamed import RenamedAttribute, renamed_arguments
from solera.data import Batch, tensors_in
from solera.data.names import Names
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture
from solera.teachers.adapters.files import Table, read, real
from solera.teachers.adapters.probabilities import log_probs_of_either
from solera.teachers.base import as_saw, member_weights, with_mask
from solera.teachers.class_order import ABSENT, align

__all__ = ["Predictions", "as_log_probs"]


def as_log_probs(values: np.ndarray) -> Float[Tensor, "N M K"]:
    """Log-probabilities of probabilities or log-probabilities; anything else is refused, with the row and the value."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"member predictions need three axes, (examples, members, classes), got shape {values.shape}")
    if 0 in values.shape:
        raise ValueError(f"member predictions are empty: their shape is {values.shape}")
    return log_probs_of_either(torch.from_numpy(values), "member predictions", ("example", "member")).float()


def _array(values: Any) -> np.ndarray:
    if isinstance(values, Tensor) and not values.is_complex():
        return values.detach().cpu().double().numpy()
    return real(np.asarray(values), "predictions")


def _one_by_one(values: Sequence[Any], key: str | None) -> list[Table] | None:
    """Every member's own table, if this is a list of files or arrays; None for nested lists of numbers."""
    if not values or not all(isinstance(v, (str, Path)) or hasattr(v, "__array__") for v in values):
        return None
    tables = [read(v, key) if isinstance(v, (str, Path)) else Table(_array(v)) for v in values]
    for number, table in enumerate(tables):
        if table.values.ndim != 2:
            raise ValueError(
                f"each of several members needs two axes, (examples, classes); member {number} has shape "
                f"{table.values.shape}"
            )
    return tables


def _joined(tables: list[Table], class_names: Names | None) -> tuple[np.ndarray, list[str] | None]:
    """Members side by side on axis 1, their columns in one order, and the names of these columns."""
    agreed, orders = align([table.names for table in tables], class_names)
    aligned = [_ordered(table.values, order) for table, order in zip(tables, orders, strict=True)]
    for number, values in enumerate(aligned):
        if values.shape != aligned[0].shape:
            raise ValueError(
                f"members disagree in shape: member 0 has {aligned[0].shape}, member {number} has {values.shape}: "
                "every member must answer for the same examples and classes"
            )
    return np.stack(aligned, axis=1), agreed


def _ordered(values: np.ndarray, order: list[int] | None) -> np.ndarray:
    """Columns in the agreed order; a class that this member does not know has no probability."""
    if order is None:
        return values
    nothing = 0.0 if values.size and np.nanmax(values) > 0 else -np.inf  # probabilities, or their logarithms
    return np.where(np.array(order) == ABSENT, nothing, values[..., [max(place, 0) for place in order]])


def examples_first(values: np.ndarray, examples: int | None) -> np.ndarray:
    """With the examples' axis first: the one of that length, if it is known."""
    if examples is None or values.ndim != 3 or values.shape[0] == examples:
        return values
    if values.shape[1] != examples:
        raise ValueError(f"there are {examples} inputs, but predictions of shape {values.shape} are for other ones")
    return values.swapaxes(0, 1)


def require_known(batch: Batch, examples: int) -> None:
    """Refuses an example past the end of the array."""
    if int(batch.index.max()) >= examples:
        raise MismatchError(f"there are predictions for {examples} examples, none for {int(batch.index.max())}")


class Predictions:
    """A teacher made of what the members said: probabilities or log-probabilities.

    `values` is one array `(examples, members, classes)`, or `(members, examples, classes)` if `examples` says so, or a
    file that holds one (`.npy`, `.npz`, `.parquet`), or a list with one array or file `(examples, classes)` per member.
    """

    live = False

    labels = RenamedAttribute("class_names")

    @renamed_arguments(labels="class_names")
    def __init__(
        self,
        values: Any,
        examples: int | None = None,
        *,
        key: str | None = None,
        class_names: Names | None = None,
        saw: Any = None,
    ) -> None:
        """With `examples`, the axis of that length is the examples'; where both are, the first one is.

        `key` names the array in an `.npz`. `class_names` are in the order that the columns have or, where
        they carry names (`.parquet`), shall have. `saw[i, m]` is true where member m was trained on example i: there
        it does not count.
        """
        tables = _one_by_one(values, key) if isinstance(values, (list, tuple)) else None
        if tables is not None:
            array, self.class_names = _joined(tables, class_names)
            if examples not in (None, len(array)):
                raise ValueError(f"there are {examples} inputs, but every member answers for {len(array)} examples")
        else:
            table = read(values, key) if isinstance(values, (str, Path)) else Table(_array(values))
            if table.values.ndim == 2 and isinstance(values, (str, Path)):
                raise ValueError(
                    f"{values} holds one member's predictions {table.values.shape}: pass a list of files, one a member"
                )
            self.class_names, (order,) = align([table.names], class_names)
            array = examples_first(_ordered(table.values, order), examples)
        self.logits = as_log_probs(array)
        if self.class_names is not None and len(self.class_names) != self.logits.shape[-1]:
            raise ValueError(
                f"there are {self.logits.shape[-1]} classes, but {len(self.class_names)} names: {self.class_names}"
            )
        self.saw = as_saw(saw, self.members, len(self.logits))

    @property
    def members(self) -> int:
        return self.logits.shape[1]

    @property
    def fingerprints(self) -> list[str]:
        bytes_of = [np.ascontiguousarray(self.logits[:, m].numpy()).tobytes() for m in range(self.members)]
        return with_mask([hashlib.sha256(content).hexdigest()[:16] for content in bytes_of], self.saw)

    def check(self, batch: Batch) -> None:
        """Refuses an example that no prediction is for, or that every member was trained on."""
        require_known(batch, len(self.logits))
        member_weights(self.saw, batch.index)

    def __call__(self, batch: Batch) -> Mixture:
        self.check(batch)
        device = tensors_in(batch.inputs)[0].device
        weights = member_weights(self.saw, batch.index)
        if weights is None:
            return self._all.rows(batch.index, device)
        return Mixture(Categorical(self.logits[batch.index].to(device)), weights.to(device))

    @cached_property
    def _all(self) -> Mixture:
        return Mixture(Categorical(self.logits))
