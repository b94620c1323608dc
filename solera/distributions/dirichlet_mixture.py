"""A mixture of Dirichlets over class probabilities: for members that fall into groups."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical, log_sum_of_members
from solera.distributions.dirichlet import Dirichlet, excess


@dataclass(frozen=True)
class DirichletMixture(SecondOrder):
    """Σ_c w_c·Dir(α_c). A Dirichlet has one mode; this has one for each group of members.

    With m_c the mean of component c: mean = Σ_c w_c·m_c, and knowledge is what the components say they do not know
    and how far they are apart, Σ_c w_c·(I_c + KL[m_c ‖ mean]): all in closed form. The components' own numbers are as
    accurate as `Dirichlet` has them; what lies between them is taken in float64.
    """

    components: Dirichlet  # the component axis is the last of its batch axes
    log_weights: Float[Tensor, "*batch C"]  # ln w, normalised

    @classmethod
    def from_output(
        cls,
        output: Float[Tensor, "*batch outputs"],
        components: int,
        temperature: float | Tensor = 1.0,
        shift: float | Tensor = 0.0,
    ) -> "DirichletMixture":
        """Of a network's output, K logits z_c and the logit of w_c for each component.

        α_c = e^{lse(z_c) + b}·softmax(z_c/T) with T = `temperature` and b = `shift`: e^{z_c} unless fitted.
        """
        logits, weight_logits = split(output if output.dtype == torch.float64 else output.float(), components)
        log_precision = Categorical(logits).log_sum + shift
        return cls(Dirichlet.from_mean(logits / temperature, log_precision), weight_logits.log_softmax(-1))

    @cached_property
    def averaged(self) -> Categorical:
        """Σ_c w_c·m_c, in float64."""
        return Categorical(log_sum_of_members(self._means.log_probs + self.log_weights.double().unsqueeze(-1)))

    @property
    def weights(self) -> Float[Tensor, "*batch C"]:
        """w."""
        return self.log_weights.exp()

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self._rounded(self.averaged.mean)

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[mean], from the mean's logits in the precision of the output: exporters have no smallest float64."""
        return Categorical(self._rounded(self.averaged.logits)).total

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """E[H[y|π]], as total − knowledge: knowledge has the relative accuracy, total does not mind the loss."""
        return (self.total - self.knowledge).clamp(min=0)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """I[y, π] = Σ_c w_c·(I_c + KL[m_c ‖ mean]): no term is negative."""
        return self._weighed(self.components.knowledge + self._means.departure(self.averaged))

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """E[KL[mean ‖ π]] = Σ_c w_c·(KL[mean ‖ m_c] + Σ_k mean_k·h(α_ck) − h(α_c0)) with h(a) = ln a − ψ(a)."""
        average = Categorical(self.averaged.logits.unsqueeze(-2))
        log_precision = self.components.log_precision
        inside = (average.mean * _shortfall(self._means.log_probs + log_precision.unsqueeze(-1))).sum(-1)
        return self._weighed(average.kl(self._means) + inside - _shortfall(log_precision))

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """ln Σ_c w_c·m_cy: the probability of a class, averaged over the mixture."""
        return self._rounded(self.averaged.log_prob(y))

    def log_density(self, log_probs: Float[Tensor, "*batch M K"]) -> Float[Tensor, "*batch M"]:
        """ln Σ_c w_c·Dir(p | α_c) of probabilities, given by their logarithms."""
        count = self.log_weights.shape[-1]
        each = self.components.log_density(log_probs.unsqueeze(-3).expand(*log_probs.shape[:-2], count, -1, -1))
        return (each + self.log_weights.unsqueeze(-1)).logsumexp(-2)

    @property
    def _means(self) -> Categorical:
        return Categorical(self.components.logits.double())

    def _weighed(self, each: Float[Tensor, "*batch C"]) -> Float[Tensor, "*batch"]:
        return self._rounded((self.log_weights.double().exp() * each.double()).sum(-1))

    def _rounded(self, value: Tensor) -> Tensor:
        return value.to(self.components.logits.dtype)


def split(output: Float[Tensor, "*batch outputs"], components: int) -> tuple[Tensor, Tensor]:
    """The components' logits `[*batch, C, K]` and the logits of their weights `[*batch, C]`."""
    if output.shape[-1] % components:
        raise ValueError(
            f"{output.shape[-1]} outputs are no {components} components: give the network components·(classes + 1)"
        )
    whole = output.unflatten(-1, (components, output.shape[-1] // components))
    return whole[..., :-1], whole[..., -1]


def _shortfall(log_a: Tensor) -> Tensor:
    """h(a) = ln a − ψ(a) = 1/a − g(a), g(a) = ψ(a + 1) − ln a; from ln a, in float64."""
    large, small = excess(log_a)
    return (-log_a).exp() - large - small
