"""Plain predictions: an array of what every member said about every example."""

import hashlib
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.batch import Batch
from solera.core.errors import MismatchError
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture

SUM_TOLERANCE = 1e-3
LEAST_PROBABILITY = 1e-12  # a forest says 0 and means "never among my trees": no finite sample knows more than that


def _first_bad_row(wrong: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def as_log_probs(values: np.ndarray) -> Float[Tensor, "N M K"]:
    """Log-probabilities of probabilities or log-probabilities; anything else is refused, with the row and the value."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 3:
        raise ValueError(f"member predictions need three axes, (examples, members, classes), got shape {values.shape}")
    if np.isnan(values).any():
        row = _first_bad_row(np.isnan(values).any(-1))
        raise ValueError(f"member predictions hold NaN for example {row[0]}, member {row[1]}: every member must answer")
    probabilities = values if (values >= 0).all() else np.exp(values) if (values <= 0).all() else None
    if probabilities is None:
        row = _first_bad_row((values < 0).any(-1))
        raise ValueError(
            f"member predictions are neither probabilities nor log-probabilities: example {row[0]}, member {row[1]} is "
            f"{np.round(values[row], 4).tolist()}: if they are logits, pass their softmax"
        )
    sums = probabilities.sum(-1)
    if (wrong := np.abs(sums - 1) > SUM_TOLERANCE).any():
        row = _first_bad_row(wrong)
        raise ValueError(
            f"member predictions must sum to one over the classes: example {row[0]}, member {row[1]} sums to "
            f"{sums[row]:.6g}: if they are logits, pass their softmax"
        )
    return torch.from_numpy(np.log(np.maximum(probabilities, LEAST_PROBABILITY))).float()


class Predictions:
    """A teacher made of an array `(examples, members, classes)`; `(members, examples, classes)` is turned."""

    live = False

    def __init__(self, values: Any, examples: int | None = None) -> None:
        """With `examples`, the axis of that length is the examples'; where both are, the first one is."""
        values = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
        if examples is not None and values.ndim == 3 and values.shape[0] != examples:
            if values.shape[1] != examples:
                raise ValueError(
                    f"there are {examples} inputs, but predictions of shape {values.shape} are for other ones"
                )
            values = values.swapaxes(0, 1)
        self.logits = as_log_probs(values)

    @property
    def members(self) -> int:
        return self.logits.shape[1]

    @property
    def fingerprints(self) -> list[str]:
        bytes_of = [np.ascontiguousarray(self.logits[:, m].numpy()).tobytes() for m in range(self.members)]
        return [hashlib.sha256(content).hexdigest()[:16] for content in bytes_of]

    def check(self, batch: Batch) -> None:
        """Refuses an example that no prediction is for."""
        if int(batch.index.max()) >= len(self.logits):
            raise MismatchError(
                f"there are predictions for {len(self.logits)} examples, none for {int(batch.index.max())}"
            )

    def __call__(self, batch: Batch) -> Mixture:
        return Mixture(Categorical(self.logits[batch.index]))
