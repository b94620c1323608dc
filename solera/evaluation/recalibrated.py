"""What calibration alone would give a single model: a rival that every student must beat.

One number is fitted, a temperature or a factor of the standard deviation (`Task.recalibrated`), on one half of the test
examples and applied to the other half: no example is judged with a number that it helped to fit.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.data import Batch, ManyBatches
from solera.distributions.base import Prediction
from solera.evaluation.stream import Source, pieces, source_of
from solera.tasks import Task

STEP = math.log(2) / 4
SPREADS = np.exp(STEP * np.arange(-12, 13))  # from ⅛ to 8


def calibrated_name(single: str) -> str:
    """What the calibrated single member is called in an evaluation."""
    return f"{single}, calibrated"


def half_of(index: Tensor) -> Tensor:
    """0 or 1 for each example: like a coin, but the same every time (the top bit of index × 2³²/φ)."""
    return (index.cpu().long() * 2654435769 >> 31) & 1


class Recalibrated(Source):
    """A model with the spread that was fitted on the half of the examples that this one does not belong to."""

    def __init__(self, source: Source, task: Task, fitted: Tensor) -> None:
        super().__init__(source.name, source.model)
        self.source, self.task, self.fitted = source, task, fitted

    def __call__(self, name: str, batch: Batch, position: int) -> Prediction:
        spread = self.fitted[1 - half_of(batch.index)]
        found = self.task.recalibrated(self.source(name, batch, position), spread)
        assert found is not None
        return found


def best_spread(losses: np.ndarray) -> float:
    """Where the losses at `SPREADS` are least, between two of them by a parabola; 1 where they do not tell."""
    at = int(np.argmin(losses))
    if not np.isfinite(losses[at]) or losses.max() == losses.min():
        return 1.0
    offset = 0.0
    if 0 < at < len(losses) - 1:
        before, least, after = losses[at - 1 : at + 2]
        bend = before - 2 * least + after
        offset = 0.5 * (before - after) / bend if np.isfinite(bend) and bend > 0 else 0.0
    return float(SPREADS[at] * np.exp(STEP * offset))


def _losses(said: Prediction, batch: Batch, task: Task) -> np.ndarray:
    """The NLL of both halves of a batch at each of the spreads, summed; what no spread makes possible is left out."""
    assert batch.target is not None
    target, shape = task.filled(batch.target).to(said.mean.device), said.total.shape
    weight = task.weight(batch, shape)
    weight = torch.ones(shape, dtype=torch.float64) if weight is None else weight
    each = []
    for spread in SPREADS:
        changed = task.recalibrated(said, torch.full((len(batch),), spread))
        assert changed is not None
        each.append(-changed.log_prob(target).double().cpu())
    losses = torch.stack(each, -1)
    counts = task.mask(batch, shape) & losses[..., -1].isfinite()
    which = half_of(batch.index).reshape(-1, *[1] * (len(shape) - 1)).expand(shape)[counts]
    found = torch.zeros(2, len(SPREADS), dtype=torch.float64)
    return found.index_add(0, which, losses[counts] * weight[counts].unsqueeze(-1)).numpy()


def _fitted(source: Source, batches: ManyBatches, task: Task) -> Tensor | None:
    """The spread that suits each half of the test examples; None: the task knows no such thing."""
    losses, position = np.zeros((2, len(SPREADS))), 0
    with torch.no_grad():
        for batch in batches:
            for place, part in pieces(batch, {source.name: source}, "test", position):
                said = source("test", part, place)
                task.check(part, said.mean.shape[-1])
                if task.recalibrated(said, torch.ones(len(part))) is None:
                    return None
                losses += _losses(said, part, task)
            position += len(batch)
    return torch.tensor([best_spread(half) for half in losses])


def with_calibrated(models: Mapping[str, Any], single: str | None, batches: ManyBatches, task: Task) -> dict[str, Any]:
    """The models and, after the single one, itself calibrated, unless it is there already or there is no such thing."""
    if single is None or calibrated_name(single) in models:
        return dict(models)
    source = source_of(single, models[single])
    fitted = _fitted(source, batches, task)
    found: dict[str, Any] = {}
    for name, model in models.items():
        found[name] = model
        if name == single and fitted is not None:
            found[calibrated_name(single)] = Recalibrated(source, task, fitted)
    return found
