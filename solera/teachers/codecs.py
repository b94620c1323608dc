"""How predictions are remembered: targets to columns of rows and back."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture

Columns = dict[str, Tensor]  # one row per example or token in each


@runtime_checkable
class Codec(Protocol):
    """One way to remember. Its fields are its settings and go into the manifest."""

    def encode(self, targets: Targets) -> Columns:
        """Columns `[*batch, ...]` to keep."""
        ...

    def decode(self, columns: Columns, classes: int) -> Targets:
        """What the columns say, as the teacher would have said it."""
        ...


@dataclass(frozen=True)
class Dense:
    """Every member's log-probabilities: every method can use them; the size grows with members and classes."""

    dtype: Literal["float16", "float32"] = "float16"

    def encode(self, targets: Targets) -> Columns:
        log_probs: Float[Tensor, "*batch M K"] = targets.members.log_probs
        least = torch.finfo(getattr(torch, self.dtype)).min
        columns = {"members": log_probs.clamp(min=least).to(getattr(torch, self.dtype))}
        if targets.weights is not None:
            columns["weights"] = targets.weights.float()
        return columns

    def decode(self, columns: Columns, classes: int) -> Mixture:
        return Mixture(Categorical(columns["members"].float()), columns.get("weights"))


CODECS: dict[str, Any] = {"dense": Dense}
