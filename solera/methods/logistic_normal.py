"""LogisticNormal: maximum likelihood of the members under a Gaussian over logits, EnD²'s own open question."""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from solera.core.checks import require_finite_loss, require_fraction, require_members, require_positive
from solera.distributions import logistic_normal as second_order
from solera.distributions.base import Targets
from solera.distributions.density import smoothed_log_probs
from solera.distributions.sizing import fit_temperature_and_shift
from solera.methods.base import Method
from solera.nn.units import begin_at

MOST_NUMBERS = 1 << 20  # of the logits that a fit looks at: more rows are thinned out evenly


def logistic_normal_loss(
    output: Float[Tensor, "*batch outputs"],
    members: Float[Tensor, "*batch M K"],
    rank: int = 2,
    smoothing: float = 1e-4,
    least: float = 0.01,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """−mean_m ln LN(p̃_m | μ, L·Lᵀ + diag(σ²)), p̃_m the member's probabilities smoothed by γ; in float64 inside.

    The output holds μ, s and Lᵀ, K numbers a row; σ² = least² + e^{2s}, for members that agree have no likeliest σ.
    """
    law = second_order.LogisticNormal.from_output(output.double(), rank, least)
    require_members(law.location, members)
    each = -law.log_density(smoothed_log_probs(members, smoothing, weights))
    loss = each.mean(-1) if weights is None else (weights * each).sum(-1)
    loss = loss.to(output.dtype if output.dtype == torch.float64 else torch.float32)
    return require_finite_loss(loss, output, "lower the learning rate, and keep smoothing above 0")


@dataclass(frozen=True)
class LogisticNormal(Method):
    """Keeps the whole decomposition, and which classes the members confuse together; for up to a few hundred classes.

    The members' ln p̃ are regressed on, so there is no temperature: the student's last layer begins at their mean and
    spread over all inputs, where no gradient is large. Members nearer to each other than `least_deviation` in ln p̃
    count as agreeing.

    The mean and the measures are taken at `nodes` fixed points (see `solera.distributions.LogisticNormal`). Fitted on
    held-out inputs, the logits are divided by T = `mean_temperature`, σ and L multiplied by e^b with
    b = `deviation_shift`, by the ensemble's total and knowledge.
    """

    rank: int = 2
    smoothing: float = 1e-4
    least_deviation: float = 0.01
    nodes: int = second_order.NODES
    mean_temperature: float = 1.0
    deviation_shift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rank", "least_deviation", "mean_temperature"):
            require_positive(name, getattr(self, name))
        require_fraction("smoothing", self.smoothing)
        if self.nodes < 2 or self.nodes % 2:
            raise ValueError(f"nodes come in pairs, got {self.nodes}: choose an even number, 128 say")
        if not math.isfinite(self.deviation_shift):
            raise ValueError(f"deviation_shift must be finite, got {self.deviation_shift}: 0 leaves it as it is")

    def outputs(self, size: int) -> int:
        return (self.rank + 2) * size

    def begin(self, student: nn.Module, targets: Targets) -> None:
        """At the mean and the logarithm of the deviation of ln p̃, over all members and inputs."""
        log_probs = smoothed_log_probs(targets.members.logits, self.smoothing, targets.weights)
        weights = torch.ones_like(log_probs[..., 0]) if targets.weights is None else targets.weights.double()
        share, rows = (weights / weights.sum()).reshape(-1, 1), log_probs.reshape(-1, log_probs.shape[-1])
        centre = (share * rows).sum(0)
        variance = (share * (rows - centre).square()).sum(0).clamp(min=self.least_deviation**2)
        begin_at(student, torch.cat([centre, 0.5 * variance.log(), centre.new_zeros(self.rank * len(centre))]).float())

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        settings = self.rank, self.smoothing, self.least_deviation
        return logistic_normal_loss(output, targets.members.logits, *settings, targets.weights)

    def predict(self, output: Tensor) -> second_order.LogisticNormal:
        return self._predicted(output, self.mean_temperature, self.deviation_shift)

    def _predicted(
        self, output: Tensor, temperature: float | Tensor, shift: float | Tensor
    ) -> second_order.LogisticNormal:
        settings = self.rank, self.least_deviation, temperature, shift, self.nodes
        return second_order.LogisticNormal.from_output(output, *settings)

    def fitted(
        self,
        output: Float[Tensor, "N outputs"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "LogisticNormal":
        numbers = output.numel() // (self.rank + 2) * self.nodes
        thin = slice(None, None, -(-numbers // MOST_NUMBERS))
        some = None if auxiliary is None else auxiliary[thin]
        predicted = partial(self._predicted, output[thin].double())
        temperature, shift = fit_temperature_and_shift(predicted, total[thin], knowledge[thin], some)
        return replace(self, mean_temperature=temperature, deviation_shift=shift)
