"""Members that speak together: what an ensemble answers, live or remembered, and what Hydra's heads do."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family
from solera.distributions.gaussian import Ends, Gaussian

Members = TypeVar("Members", Categorical, Gaussian)


def _weigh(values: Float[Tensor, "*batch M"], weights: Float[Tensor, "*batch M"] | None) -> Float[Tensor, "*batch"]:
    if weights is None:
        return values.mean(-1)
    return (weights * values.masked_fill(weights == 0, 0.0)).sum(-1)


@dataclass(frozen=True)
class Mixture(Targets, Generic[Members]):
    """Equally weighted members, or weighted ones: 0 for a member that must not speak here (it saw this row).

    Categorical members: entropies in nats. Gaussian members: variances, by the law of total variance.
    """

    members: Members  # the member axis is −2
    weights: Float[Tensor, "*batch M"] | None = None

    @property
    def family(self) -> Family:
        return "gaussian" if isinstance(self.members, Gaussian) else "categorical"

    @cached_property
    def averaged(self) -> Members:
        """p̄ = Σ_m w_m p_m; of Gaussians, the one Gaussian with the mixture's mean and variance."""
        return self.members.averaged(self.weights)

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.averaged.mean

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[p̄], or the variance of the mixture."""
        return self.averaged.total

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """mean_m H[p_m], or mean_m σ²_m."""
        return _weigh(self._heard.total, self.weights)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """Mutual information as mean_m KL[p_m ‖ p̄], or var_m μ_m: exactly 0 for one member, never negative."""
        return _weigh(self._heard.departure(self.averaged), self.weights)  # type: ignore[arg-type]

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """KL between two members, over all ordered pairs, in nats; of Gaussians too."""
        if isinstance(self.members, Gaussian):
            return self.members.pairwise_kl(self.weights)
        return self.knowledge + self.rmi

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """mean_m KL[p̄ ‖ p_m]."""
        if isinstance(self.members, Gaussian):
            raise ValueError("a mixture of Gaussians has no closed form of the reverse mutual information: use epkl")
        average = Categorical(self.averaged.logits.unsqueeze(-2))  # type: ignore[union-attr]
        return _weigh(average.kl(self._heard), self.weights)  # type: ignore[arg-type]

    def log_prob(self, y: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        return self.members.mixed_log_prob(y, self.weights)

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Where the central interval of probability `level` begins and ends, in every dimension of a continuous target.

        Of the mixture itself, whatever its shape: half of what is left lies below, half above. See `Gaussian.interval`.
        """
        if not isinstance(self.members, Gaussian):
            raise ValueError("classes have no order and so no interval: take the likeliest classes of mean")
        return self.members.mixed_interval(self.weights, level, dtype)

    @cached_property
    def _heard(self) -> Members:
        return self.members if self.weights is None else self.members.heard(self.weights)


@dataclass(frozen=True)
class Labelled(Mixture[Categorical]):
    """One member, certain of the label; where there is none, it is not known and the prediction even."""

    known: Bool[Tensor, "*batch"] = field(kw_only=True)
