"""EnD: the student imitates the average of the members (Hinton et al., 2015); of Gaussians, their moments."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.checks import require_members
from solera.core.fused import Kernel, fused, row_sum
from solera.distributions.base import Prediction, Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.gaussian import Gaussian
from solera.distributions.summary import Mean, TopK
from solera.methods.base import Method, require_family, require_temperature


def end_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·KL[p̄_T ‖ softmax(z/T)] with p̄_T = mean_m softmax(z_m/T): 0 at perfect imitation."""
    require_members(logits, members)
    teacher = Categorical(members).tempered(temperature).averaged(weights)
    return temperature**2 * teacher.kl(Categorical(logits).tempered(temperature))


def _grouped_kl(z: Tensor, indices: Tensor, probs: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_kept p·(ln p − ln q) + t·(ln t − ln Σ_others q) for q = softmax(z) and the tail t, and its gradient.

    With E = Σ_others e^z, O = Σ_others q and P = Σ_kept p + t: q·P − p at a kept class, (P·O − t)·e^z/E at any other.
    The others are added up by themselves, not as what the kept ones leave of one, which for a sure student is nothing.
    """
    kept, others = z.gather(-1, indices), z.scatter(-1, indices, -torch.inf)
    top = others.amax(-1, keepdim=True).clamp(min=torch.finfo(z.dtype).min)  # no others at all: not −∞ − −∞
    share = others.sub_(top).exp_()
    size = row_sum(share)  # at least 1 where there are others
    log_others = top.squeeze(-1) + size.log()
    log_size = torch.logaddexp(log_others, kept.double().logsumexp(-1))
    log_q = kept - log_size.unsqueeze(-1)
    missed = torch.where(tail > 0, tail * (log_others - log_size), 0.0)
    loss = (torch.xlogy(probs, probs.double()) - probs * log_q).sum(-1) + torch.xlogy(tail, tail.double()) - missed
    mass = probs.sum(-1, dtype=torch.float64) + tail
    pull = (mass * (log_others - log_size).exp() - tail) / size.clamp(min=1)
    gradient = share.mul_(pull.to(z.dtype).unsqueeze(-1))
    return loss.to(z.dtype), gradient.scatter_(-1, indices, (log_q.exp() * mass.unsqueeze(-1) - probs).to(z.dtype))


def _soft_kl(z: Tensor, log_p: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """T²·KL[p ‖ q] for q = softmax(z/T), summed as in `Categorical.kl`, and its gradient T·(q − p)."""
    t = temperature.unsqueeze(-1)
    shifted = z / t
    shifted = shifted - shifted.amax(-1, keepdim=True)
    log_q = shifted - row_sum(shifted.exp()).log().to(z.dtype).unsqueeze(-1)
    p, q = log_p.exp(), log_q.exp()
    d = torch.where(p == 0, -1.0, log_p - log_q)  # any number but 0 or NaN: it is multiplied by p
    near = d.clamp(-0.5, 0.5)
    loss = row_sum(torch.where(d == near, p * (near + torch.expm1(-near)), p * d - p + q))
    return (temperature**2 * loss).to(z.dtype), t * (q - p)


def _kept_cross_entropy(z: Tensor, indices: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """−Σ_kept p·ln q, and its gradient."""
    loss, gradient = _grouped_kl(z, indices, probs, probs.new_zeros(probs.shape[0]))
    return loss - torch.xlogy(probs, probs).sum(-1), gradient


def truncated_cross_entropy(
    logits: Float[Tensor, "*batch K"], indices: Int[Tensor, "*batch V"], probs: Float[Tensor, "*batch V"]
) -> Float[Tensor, "*batch"]:
    """−Σ over the kept classes of p̄_k ln q_k, mass un-normalised, as in Reich et al. (2020): not a KL."""
    return fused(_kept_cross_entropy, logits, indices, probs)


def end_top_k_loss(
    logits: Float[Tensor, "*batch K"],
    indices: Int[Tensor, "*batch V"],
    probs: Float[Tensor, "*batch V"],
    tail: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch"]:
    """KL over V + 1 events: each kept class, and all others together. A true KL, at most the one over all classes."""
    return fused(_grouped_kl, logits, indices, probs, tail)


@dataclass(frozen=True)
class EnD(Method):
    """Keeps the ensemble's prediction and total uncertainty; its split into data and knowledge is lost.

    At temperature 1 it reads summaries too; `tail` says what becomes of the classes that `top_k` did not keep.
    Of the Gaussian family the network gives means and log-variances of continuous targets, and there is no temperature.
    """

    temperature: float = 1.0
    tail: Literal["event", "dropped"] = "event"
    family: Family = "categorical"

    def __post_init__(self) -> None:
        require_temperature(self.temperature, self.family)
        if self.tail not in ("event", "dropped"):
            raise ValueError(f"tail must be 'event' or 'dropped', got {self.tail!r}")

    def outputs(self, size: int) -> int:
        return family_named(self.family).outputs(size)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        require_family(self, targets)
        if self.family == "gaussian":  # KL[N(μ̄, σ̄²) ‖ N(μ, σ²)] from the Gaussian with the members' mean and variance
            return targets.averaged.kl(Gaussian.from_output(output))
        if self.temperature == 1 and isinstance(targets, Mean):
            return targets.averaged.kl(Categorical(output))
        if self.temperature == 1 and isinstance(targets, TopK):
            if self.tail == "dropped":
                return truncated_cross_entropy(output, targets.indices, targets.probs)
            return end_top_k_loss(output, targets.indices, targets.probs, targets.tail)
        return end_loss(output, targets.members.logits, self.temperature, targets.weights)

    def kernel(self, targets: Targets, classes: int) -> tuple[Kernel, tuple[Tensor, ...]] | None:
        require_family(self, targets)
        if self.family == "gaussian":
            return None
        if self.temperature == 1 and isinstance(targets, TopK):
            if self.tail == "dropped":
                return _kept_cross_entropy, (targets.indices, targets.probs)
            return _grouped_kl, (targets.indices, targets.probs, targets.tail)
        if self.temperature == 1 and isinstance(targets, Mean):
            teacher = targets.averaged
        else:
            teacher = targets.members.tempered(self.temperature).averaged(targets.weights)
        log_p = teacher.log_probs
        return _soft_kl, (log_p, torch.full_like(log_p[..., 0], self.temperature))

    @property
    def softmax(self) -> bool:
        return self.family == "categorical"

    def predict(self, output: Tensor) -> Prediction:
        return family_named(self.family).from_output(output)
