"""Members that speak together: what an ensemble answers, live or remembered."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical


def _weigh(values: Float[Tensor, "*batch M"], weights: Float[Tensor, "*batch M"] | None) -> Float[Tensor, "*batch"]:
    if weights is None:
        return values.mean(-1)
    return (weights * values.masked_fill(weights == 0, 0.0)).sum(-1)


@dataclass(frozen=True)
class Mixture(Targets):
    """Equally weighted members, or weighted ones: 0 for a member that must not speak here (it saw this row)."""

    members: Categorical  # the member axis is −2
    weights: Float[Tensor, "*batch M"] | None = None

    @cached_property
    def averaged(self) -> Categorical:
        """p̄ = Σ_m w_m p_m."""
        return self.members.averaged(self.weights)

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.averaged.mean

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[p̄]."""
        return self.averaged.total

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """mean_m H[p_m]."""
        return _weigh(self._heard.total, self.weights)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """Mutual information as mean_m KL[p_m ‖ p̄]: exactly 0 for one member, never negative."""
        return _weigh(self._heard.kl(self._mean_beside_members), self.weights)

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """mean_m KL[p̄ ‖ p_m]."""
        return _weigh(self._mean_beside_members.kl(self._heard), self.weights)

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        return self.averaged.log_prob(y)

    @cached_property
    def _heard(self) -> Categorical:
        return self.members if self.weights is None else self.members.heard(self.weights)

    @property
    def _mean_beside_members(self) -> Categorical:
        return Categorical(self.averaged.logits.unsqueeze(-2))
