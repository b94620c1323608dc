"""What a perturbation is: a step of a given length along a direction of its own for every example."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.core.checks import require_positive
from solera.teachers.base import Teacher
from solera.teachers.ensemble import Ensemble


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module as it predicts (no dropout, batch norm by its statistics), every part put back as it was."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def ask(teacher: Ensemble, number: int, inputs: Tensor) -> Float[Tensor, "*batch K"]:
    """One member's logits alone, from which a gradient leads back to the inputs."""
    answer = teacher.ask(number, inputs)
    if torch.is_grad_enabled() and not answer.requires_grad:
        raise ValueError(
            f"member {number} ({type(teacher.models[number]).__name__}) gives no gradient with respect to its inputs: "
            "perturb with GaussianNoise, or make the ensemble of torch modules whose answers depend on their inputs, "
            "outside of torch.inference_mode"
        )
    return answer


def balanced(slope: Float[Tensor, "*batch K"], likeliest: Tensor) -> Float[Tensor, "*batch K"]:
    """A slope over logits sums to zero: the entry of the likeliest class, where it cancels, is minus all others."""
    others = slope.scatter(-1, likeliest, 0.0)
    return others.scatter(-1, likeliest, -others.sum(-1, keepdim=True))


def pulled_back(
    slope: Float[Tensor, "B *rest"], answer: Float[Tensor, "B *rest"], inputs: Float[Tensor, "B *shape"]
) -> Float[Tensor, "B *shape"]:
    """Σ slope·∂answer/∂inputs, in float64. Each example's slope makes the way at size one: a tiny one does not vanish.

    Parameters get no gradient.
    """
    flat = slope.flatten(1) if slope.ndim > 1 else slope.unsqueeze(1)
    size = flat.abs().amax(1)
    shape = (-1, *(1,) * (slope.ndim - 1))
    unit = slope / torch.where(size > 0, size, 1.0).view(shape)
    (found,) = torch.autograd.grad(answer, inputs, unit.to(answer.dtype), allow_unused=True)
    if found is None:
        return torch.zeros_like(inputs, dtype=torch.float64)
    return found.double() * size.view(-1, *(1,) * (inputs.ndim - 1))


def normalized(direction: Float[Tensor, "B *shape"]) -> Float[Tensor, "B *shape"]:
    """Each example's direction at length one; no direction stays none. The largest entry is taken out first, so no
    square vanishes or overflows."""
    flat = direction.double().flatten(1)
    size = flat.abs().amax(1, keepdim=True)
    flat = flat / torch.where(size > 0, size, 1.0)
    return (flat / torch.where(size > 0, flat.norm(dim=1, keepdim=True), 1.0)).view(direction.shape)


@dataclass(frozen=True)
class Perturbation(ABC):
    """x′ = x + step·direction, clipped to `range`.

    `step` is the length of the step, in the inputs' units. By default it is √D/255 of the range's width, D being the
    numbers in one example: as long as Gaussian noise of one grey level. Inputs without a range (None) need a step.
    """

    range: tuple[float, float] | None = (0.0, 1.0)
    step: float | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            require_positive("step", self.step)
        if self.range is None and self.step is None:
            raise ValueError("inputs without a range have no natural step: pass step, its length in the inputs' units")
        if self.range is not None:
            object.__setattr__(self, "range", tuple(self.range))
            if not self.range[0] < self.range[1]:
                raise ValueError(f"range must be (lowest, highest) of the inputs, got {self.range}")

    @abstractmethod
    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        """Of each example, in units of the step."""

    def check(self, teacher: Teacher) -> Ensemble:
        """Refuses a teacher that only remembers."""
        if not teacher.live:
            raise ValueError(
                "perturbed inputs have no remembered predictions: pass the live Ensemble, not a "
                f"{type(teacher).__name__}"
            )
        if not isinstance(teacher, Ensemble) or teacher.family != "categorical":
            what = f"{type(teacher).__name__} of continuous targets" if isinstance(teacher, Ensemble) else type(teacher)
            raise ValueError(f"perturbations need an Ensemble of classifiers, got {what}")
        return teacher

    def __call__(
        self, inputs: Any, teacher: Teacher, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        """The inputs, moved. The generator, on the CPU, decides everything random; the student is left as it was."""
        ensemble = self.check(teacher)
        self._check_inputs(inputs)
        with torch.enable_grad():
            direction = self.direction(inputs.detach(), ensemble, student, generator)
        moved = (inputs.detach().double() + self.length(inputs) * direction).to(inputs.dtype)
        return moved if self.range is None else moved.clamp(*self.range)

    def length(self, inputs: Float[Tensor, "B *shape"]) -> float:
        """Of one step."""
        if self.step is not None:
            return self.step
        assert self.range is not None
        return math.sqrt(math.prod(inputs.shape[1:])) * (self.range[1] - self.range[0]) / 255

    def _check_inputs(self, inputs: Any) -> None:
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim < 2:
            raise ValueError(
                f"perturbations move inputs that are one tensor of real numbers [B, ...], got {type(inputs).__name__}"
                + (f" of shape {tuple(inputs.shape)} and {inputs.dtype}" if isinstance(inputs, Tensor) else "")
            )
        if self.range is not None and len(inputs):
            low, high = (float(x) for x in inputs.aminmax())
            if low < self.range[0] or high > self.range[1]:
                raise ValueError(
                    f"inputs reach from {low:.4g} to {high:.4g}, outside the range {self.range}: pass their range, or "
                    "range=None and a step; a network that wants standardized images does best to do that itself"
                )
