"""Output-diversified sampling: along a random direction of one teacher's output (Tashiro et al., 2020)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.core.checks import require_positive
from solera.distributions.categorical import Categorical
from solera.perturbations.base import Perturbation, ask, balanced, normalized, pulled_back
from solera.teachers.ensemble import Ensemble


def guided(
    inputs: Float[Tensor, "B *shape"], teacher: Ensemble, temperature: float, generator: torch.Generator
) -> tuple[Float[Tensor, "B *shape"], Float[Tensor, " B"]]:
    """∇_x wᵀp, p = softmax(z_m/T), for one random m and w ~ U(−1, 1)^K of each example; and the top probability of p.

    With respect to z the slope is p_k·(w_k − wᵀp)/T.
    """
    number = int(torch.randint(teacher.members, (), generator=generator))
    inputs = inputs.requires_grad_()
    answer = ask(teacher, number, inputs)
    wish = 2 * torch.rand(answer.shape, generator=generator, dtype=torch.float64).to(answer.device) - 1
    p = Categorical(answer.detach().double()).tempered(temperature).mean
    top, likeliest = p.max(-1, keepdim=True)
    slope = balanced(p * (wish - (wish * p).sum(-1, keepdim=True)), likeliest) / temperature
    return pulled_back(slope, answer, inputs), top.flatten(1).mean(1)


@dataclass(frozen=True)
class ODS(Perturbation):
    """Along ∇_x wᵀ softmax(z_m/T), normalized: eq. 4 of Nam et al. (2022)."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("temperature", self.temperature)

    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        return normalized(guided(inputs, teacher, self.temperature, generator)[0])


@dataclass(frozen=True)
class ConfODS(ODS):
    """The same, its length scaled by that teacher's top probability at T (Nam et al., 2021)."""

    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        gradient, confidence = guided(inputs, teacher, self.temperature, generator)
        return normalized(gradient) * confidence.view(-1, *(1,) * (inputs.ndim - 1))
