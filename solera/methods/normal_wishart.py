"""EnD² for continuous targets: maximum likelihood under a Normal-Wishart (Regression Prior Networks, 2020)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from solera.core.checks import require_positive
from solera.core.schedule import linear
from solera.distributions import normal_wishart as second_order
from solera.distributions.base import Targets
from solera.distributions.families import Family
from solera.distributions.gaussian import Gaussian
from solera.distributions.sizing import fit_factor, fit_line
from solera.methods.base import Method, require_family
from solera.nn.units import begin_at


def _require_temperature(name: str, value: float) -> None:
    if not 1 <= value < math.inf:
        raise ValueError(
            f"{name} must be at least 1, got {value}: 1 leaves the members as they are, more draws them together"
        )


def _drawn_together(members: Gaussian, share: Float[Tensor, "*batch M 1"], temperature: float) -> tuple[Tensor, Tensor]:
    """μ̄ + f·(μ_m − μ̄) and ln(v̄ + f·(v_m − v̄)) with f = 2/(T + 1): the mean and the mean variance stay what they are."""
    mean, log_variance, factor = members.location, members.log_variance, 2 / (temperature + 1)
    if temperature == 1:
        return mean, log_variance
    centre = (share * mean).sum(-2, keepdim=True)
    level = (share.log() + log_variance).logsumexp(-2, keepdim=True)
    variance = torch.logaddexp(math.log(factor) + log_variance, math.log1p(-factor) + level)
    return centre + factor * (mean - centre), variance


def normal_wishart_loss(
    output: Float[Tensor, "*batch outputs"],
    member_mean: Float[Tensor, "*batch M D"],
    member_log_variance: Float[Tensor, "*batch M D"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """−(1/T)·mean_m ln NW(μ_T, Λ_T | m, σ², Tκ, Tν): members drawn together by T, and a student as much surer of them.

    σ², the expected variance, is the same at every T, as the members' mean variance is. In float64 inside.
    """
    _require_temperature("temperature", temperature)
    student = second_order.NormalWishart.from_output(output.double())
    size, wanted = student.location.shape[-1], member_mean.shape[-1]
    if size != wanted:
        raise ValueError(
            f"a network of {output.shape[-1]} outputs is for {size} target dimensions, the members have {wanted}: "
            f"give it {second_order.NormalWishart.outputs(wanted)} outputs"
        )
    surer = second_order.NormalWishart(
        student.location, student.log_variance, temperature * student.belief, temperature * student.freedom
    )
    members, share = Gaussian(member_mean, member_log_variance).weighed(weights)
    likelihood = surer.log_density(*_drawn_together(members, share, temperature))
    loss = -(share.squeeze(-1) * likelihood).sum(-1) / temperature
    return loss.to(output.dtype if output.dtype == torch.float64 else torch.float32)


@dataclass(frozen=True)
class NormalWishart(Method):
    """Keeps the whole decomposition of a continuous target's variance into data and knowledge.

    The temperature stays at `initial_temperature` for a third of the training, falls linearly to 1 over the next third,
    and stays there, as for EnD². A diagonal Λ is a thin slice of the Wishart's matrices: for D > 1 the likeliest ν is
    about (D + 1)/2 times the one of each dimension alone, which leaves the expected variance where it belongs.

    Members are much surer than an untrained student (ln σ² = ln κ = 0): its first gradients would be of the size of
    e^{ln σ² − ln σ²_m}, and Adam recalls them for a thousand steps. So its last layer begins at the likeliest constant.

    Fitted on held-out inputs it predicts ln σ² + c with c = `variance_shift` (to the ensemble's data uncertainty) and
    ln κ' = a·ln κ + b with a = `belief_slope`, b = `belief_shift` (to its knowledge).
    """

    family: ClassVar[Family] = "gaussian"
    initial_temperature: float = 10.0
    variance_shift: float = 0.0
    belief_slope: float = 1.0
    belief_shift: float = 0.0

    def __post_init__(self) -> None:
        _require_temperature("initial_temperature", self.initial_temperature)
        require_positive("belief_slope", self.belief_slope)

    def temperature(self, progress: float) -> float:
        """T at this point of the training."""
        return linear(self.initial_temperature, 1.0, 1 / 3, 2 / 3)(progress)

    def outputs(self, size: int) -> int:
        return second_order.NormalWishart.outputs(size)

    def begin(self, student: nn.Module, targets: Targets) -> None:
        """At the teacher's mean, its mean ln σ², and a κ that takes all the spread of the means for knowledge."""
        members, share = targets.members.weighed(targets.weights)
        location, log_variance = (t.flatten(0, -2) for t in (members.location, members.log_variance))
        share = share.flatten(0, -2) / share.sum()
        centre, level = ((share * t).sum(0) for t in (location, log_variance))
        spread = (share * (location - centre).square()).mean(-1).sum()
        belief = (level.exp().mean() / spread.clamp(min=torch.finfo(spread.dtype).tiny)).log().clamp(-5, 5)
        begin_at(student, torch.cat([centre, level, belief.reshape(1), belief.new_full((1,), 2.0)]).float())

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        require_family(self, targets)
        members = targets.members
        temperature = self.temperature(progress)
        return normal_wishart_loss(output, members.location, members.log_variance, temperature, targets.weights)

    def predict(self, output: Tensor) -> second_order.NormalWishart:
        said = second_order.NormalWishart.from_output(output)
        if (self.variance_shift, self.belief_slope, self.belief_shift) == (0.0, 1.0, 0.0):
            return said
        belief = (self.belief_slope * said.belief.log() + self.belief_shift).exp()
        log_variance = said.log_variance + self.variance_shift
        return second_order.NormalWishart(said.location, log_variance, belief, said.freedom)

    def fitted(
        self,
        output: Float[Tensor, "N outputs"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "NormalWishart":
        said, data = second_order.NormalWishart.from_output(output.double()), total.double() - knowledge.double()
        lift = fit_factor(said.data, data, auxiliary)
        slope, shift = fit_line(
            lambda log_belief: said.data * (lift - log_belief).exp(), said.belief.log(), knowledge, auxiliary
        )
        return replace(self, variance_shift=lift, belief_slope=slope, belief_shift=shift)
