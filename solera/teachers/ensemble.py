"""A live ensemble."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from solera.core.batch import Batch, map_tensors, tensors_in
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture
from solera.teachers.base import fingerprint, stack_members


class Ensemble(nn.Module):
    """Several torch modules that answer the same question; each gives logits `[*batch, K]`."""

    live = True

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise ValueError("an ensemble needs at least one model, got none")
        for number, model in enumerate(models):
            if not isinstance(model, nn.Module):
                raise TypeError(f"member {number} is a {type(model).__name__}, not a torch module")
        self.models = nn.ModuleList(models).eval().requires_grad_(False)

    @property
    def members(self) -> int:
        return len(self.models)

    @property
    def fingerprints(self) -> list[str]:
        return [fingerprint(dict(m.state_dict()), type(m).__name__) for m in self.models]

    def check(self, batch: Batch) -> None:
        """A live teacher answers for anything."""

    def forward(self, batch: Batch) -> Mixture:
        return Mixture(Categorical(stack_members([model(batch.inputs) for model in self.models])))

    @torch.no_grad()
    def predict(self, inputs: Any, batch_size: int = 1024) -> Mixture:
        """Every member's answer about these inputs, as one mixture."""
        size = len(tensors_in(inputs)[0])
        parts = []
        for start in range(0, size, batch_size):
            rows = slice(start, start + batch_size)
            part = map_tensors(lambda t: t[rows], inputs)  # noqa: B023
            parts.append(self(Batch(part, torch.arange(size)[rows])).members.logits)
        return Mixture(Categorical(torch.cat(parts)))
