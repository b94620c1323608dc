"""Hydra: one head per member on a shared body (Tran et al., 2020)."""

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.methods.base import Method, one_to_one, require_family, require_temperature
from solera.nn.heads import grow


def _over_members(
    each: Float[Tensor, "*batch M"], weights: Float[Tensor, "*batch M"] | None
) -> Float[Tensor, "*batch"]:
    return each.mean(-1) if weights is None else (weights * each).sum(-1)


def hydra_loss(
    logits: Float[Tensor, "*batch M K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·mean_m KL[softmax(z_teacher,m/T) ‖ softmax(z_head,m/T)]: 0 at perfect imitation.

    A member of weight 0 is not read, nor is its head: neither NaN nor a gradient passes.
    """
    return one_to_one(Categorical(logits), Categorical(members), weights, temperature)


def gaussian_hydra_loss(
    mean: Float[Tensor, "*batch M"],
    log_variance: Float[Tensor, "*batch M"],
    member_mean: Float[Tensor, "*batch M"],
    member_log_variance: Float[Tensor, "*batch M"],
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """mean_m [(σ²_m + (μ_m − μ_head,m)²)/(2σ²_head,m) + ½ ln(2πσ²_head,m)], the cross-entropy.

    (The paper's line has a wrong leading minus.) The quotients are powers of differences of logarithms, in float64.
    """
    given = [t.double() for t in (mean, log_variance, member_mean, member_log_variance)]
    if weights is not None:
        given = [t.masked_fill(weights == 0, 0.0) for t in given]
    location, log_scale, target, target_log_scale = given
    away = (target - location) * (-0.5 * log_scale).exp()
    each = 0.5 * ((target_log_scale - log_scale).exp() + away.square() + log_scale + math.log(2 * math.pi))
    return _over_members(each, weights).to(mean.dtype)


def _require_heads(output: Tensor, members: Tensor) -> None:
    if output.shape[:-1] != members.shape[:-1]:
        raise ValueError(
            f"an output of shape {tuple(output.shape)} is not one head for each of {members.shape[-2]} members: give "
            f"the network that many heads, solera.nn.grow(network, members={members.shape[-2]})"
        )


@dataclass(frozen=True)
class Hydra(Method):
    """Keeps every member: head m imitates member m, so the student is an ensemble that shares all but its last layers.

    `head` is how many of the network's last layers every head has of its own, or the name of the one they start at.
    The paper's warm start is two calls: distil with EnD, then with Hydra on that student's network.
    """

    temperature: float = 1.0
    head: int | str = 1
    family: Family = "categorical"

    def __post_init__(self) -> None:
        require_temperature(self.temperature, self.family)

    def student(self, model: nn.Module, members: int) -> nn.Module:
        return grow(model, members, self.head)

    def outputs(self, size: int) -> int:
        return family_named(self.family).outputs(size)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        require_family(self, targets)
        members, weights = targets.members, targets.weights
        if isinstance(members, Categorical):
            _require_heads(output, members.logits)
            return hydra_loss(output, members.logits, self.temperature, weights)
        _require_heads(output, members.location)
        heads = Gaussian.from_output(output)
        mean, log_variance = heads.location.mT, heads.log_variance.mT  # [*batch, D, M]
        if weights is not None:
            weights = weights.unsqueeze(-2).expand(mean.shape)
        return gaussian_hydra_loss(mean, log_variance, members.location.mT, members.log_variance.mT, weights).sum(-1)

    def predict(self, output: Tensor) -> Mixture:
        members = family_named(self.family).from_output(output)
        return Mixture(members)  # type: ignore[arg-type]
