"""Gaussian noise: inputs moved a little in every direction alike."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.perturbations.base import Perturbation
from solera.teachers.ensemble import Ensemble


@dataclass(frozen=True)
class GaussianNoise(Perturbation):
    """x + N(0, σ²), σ = 1/255 of the range's width, or step/√D (eq. 34 of Nam et al., 2022): `step` is its length."""

    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        noise = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
        return noise.to(inputs.device) / math.sqrt(max(1, math.prod(inputs.shape[1:])))
