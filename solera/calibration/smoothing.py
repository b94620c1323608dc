"""Temperature and offset: two numbers that calibrate any categorical prediction to labels.

A temperature corrects how sharp predictions are; the offset, like label smoothing, how sure the surest may be. Fitted
alike for a student, a single model and an ensemble, they make a comparison fair.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.calibration.temperature import fit_temperature
from solera.core.checks import require_positive
from solera.core.minimum import minimum
from solera.distributions.categorical import Categorical
from solera.metrics.inputs import Values
from solera.metrics.rows import rows_and_labels

_STARTS = (-12.0, -7.0, -3.0, 0.0)  # of ln d, from the mean ln Σ e^{z/T}: the NLL may have two valleys


@dataclass(frozen=True)
class Smoothing:
    """mean ∝ e^{z/T} + d. Of log-probabilities at T = 1, d mixes in the uniform prediction, K·d parts to one."""

    temperature: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        require_positive("temperature", self.temperature)
        if not 0 <= self.offset < math.inf:
            raise ValueError(f"offset must be 0 or more, got {self.offset}: 0 is plain temperature scaling")

    def __call__(self, logits: Float[Tensor, "*batch K"]) -> Categorical:
        """The prediction, calibrated."""
        scaled = logits / self.temperature
        return Categorical(torch.logaddexp(scaled, scaled.new_tensor(self.offset).log()) if self.offset else scaled)


def fit_smoothing(logits: Values, y: Values, weight: Values | None = None) -> Smoothing:
    """argmin over T > 0 and d ≥ 0 of the mean −ln of e^{z_y/T} + d over Σ_k (e^{z_k/T} + d).

    Logits are taken as they are: of a student its outputs, in which ln Σ e^z says how sure it is; of an ensemble ln p̄.
    Where an offset does not lower the NLL it is 0 and T is `fit_temperature`'s.
    """
    layout, rows, labels = rows_and_labels(logits, "logits", y, weight)
    temperature = fit_temperature(logits, y, weight)
    z = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float64))
    at = torch.from_numpy(np.ascontiguousarray(labels)).long().unsqueeze(-1)
    share = torch.full((len(z),), 1 / len(z), dtype=torch.float64)
    if layout.weight is not None:
        share = torch.from_numpy(np.asarray(layout.weight, dtype=np.float64) / np.sum(layout.weight))

    def nll(log_temperature: Tensor, log_offset: Tensor) -> Tensor:
        mean = torch.logaddexp(z * (-log_temperature).exp(), log_offset)
        return (share * (mean.logsumexp(-1) - mean.gather(-1, at).squeeze(-1))).sum()

    cold = math.log(temperature)
    level = float((share * (z / temperature).logsumexp(-1)).sum())
    plain = float(nll(z.new_tensor(cold), z.new_tensor(-math.inf)))
    found = [minimum(lambda n: nll(n[0], n[1] + level), [cold, start]) for start in _STARTS]
    (log_temperature, log_offset), best = min(found, key=lambda pair: pair[1])
    if best >= plain - 1e-9 * max(1.0, plain):
        return Smoothing(temperature)
    return Smoothing(math.exp(log_temperature), math.exp(log_offset + level))
