"""Towards inputs on which teachers disagree and the student's members do not (Nam et al., 2022)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture
from solera.nn.batch_ensemble import Subnetworks, merge
from solera.perturbations.base import Perturbation, ask, balanced, evaluating, normalized, pulled_back
from solera.teachers.base import Teacher
from solera.teachers.ensemble import Ensemble


def diversity(members: Float[Tensor, "*batch M K"]) -> Float[Tensor, "*batch"]:
    """Σ_{i≠j} KL[p_i ‖ p_j]/(M(M − 1)), eq. 6, from logits: M/(M − 1) times the expected pairwise KL."""
    count = members.shape[-2]
    if count < 2:
        raise ValueError(f"diversity is between two members at least, got {count}")
    return count / (count - 1) * Mixture(Categorical(members)).epkl


def random_pair(members: int, generator: torch.Generator) -> tuple[int, int]:
    """i ≠ j, evenly."""
    first = int(torch.randint(members, (), generator=generator))
    second = int(torch.randint(members - 1, (), generator=generator))
    return first, second + (second >= first)


def disagreement_slope(
    first: Float[Tensor, "*batch K"], second: Float[Tensor, "*batch K"]
) -> Float[Tensor, "*batch K"]:
    """p_j − p_i, the slope of KL[p_i ‖ p_j] with respect to z_j, p_i held constant; in float64."""
    fixed, moving = (Categorical(z.detach().double()).mean for z in (first, second))
    return balanced(moving - fixed, fixed.argmax(-1, keepdim=True))


Pair = tuple[Float[Tensor, "*batch K"], Float[Tensor, "*batch K"]]  # the logits of members i and j


def two_teachers(inputs: Tensor, teacher: Ensemble, first: int, second: int) -> Pair:
    """What two teachers say; no others are asked."""
    with torch.no_grad():
        fixed = ask(teacher, first, inputs)
    return fixed, ask(teacher, second, inputs)


def _subnetwork(student: Subnetworks, number: int) -> nn.Module:
    return (
        merge(student, shares=[float(number == member) for member in range(student.members)])
        .eval()
        .requires_grad_(False)
    )


def two_students(inputs: Tensor, student: nn.Module, shape: torch.Size, first: int, second: int) -> Pair | None:
    """What two members of the student say; of subnetworks no others are computed. Of one network alone: None.

    `shape` is that of all members' answers. The student predicts here as if it were in use, and is left as it was.
    """
    with evaluating(student):
        if isinstance(student, Subnetworks) and student.norms == "shared" and student.members == shape[-2]:
            with torch.no_grad():
                fixed = _subnetwork(student, first)(inputs)
            return fixed, _subnetwork(student, second)(inputs)
        answer = student(inputs)
    if answer.ndim == len(shape) - 1:
        return None
    if answer.shape != shape:
        raise ValueError(
            f"the student answers {tuple(answer.shape)}, the {shape[-2]} teachers together {tuple(shape)}: TDivSDiv "
            "needs a student member for each teacher (Hydra, BatchEnsemble, LatentBE); for any other perturb with TDiv"
        )
    return answer[..., first, :], answer[..., second, :]


def pull(pair: Pair, inputs: Float[Tensor, "B *shape"]) -> Float[Tensor, "B *shape"]:
    """∇_x KL[stop_grad p_i ‖ p_j] (eq. 13 and 14)."""
    return pulled_back(disagreement_slope(*pair), pair[1], inputs)


@dataclass(frozen=True)
class TDiv(Perturbation):
    """Along ∇_x KL[stop_grad p_i ‖ p_j] of a random pair of teachers, one for the whole batch."""

    def check(self, teacher: Teacher) -> Ensemble:
        ensemble = super().check(teacher)
        if ensemble.members < 2:
            raise ValueError(f"{type(self).__name__} needs a pair of teachers, got one: perturb with ODS")
        return ensemble

    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        inputs = inputs.requires_grad_()
        return normalized(pull(two_teachers(inputs, teacher, *random_pair(teacher.members, generator)), inputs))


@dataclass(frozen=True)
class TDivSDiv(TDiv):
    """Along ∇_x (KL_teachers(i, j) − KL_students(i, j)), the same pair for both (eq. 12 to 14).

    The student's network gives `[B, ..., M, K]`. One that gives `[B, K]` does not disagree with itself: then it is
    TDiv, for less.
    """

    def direction(
        self, inputs: Float[Tensor, "B *shape"], teacher: Ensemble, student: nn.Module, generator: torch.Generator
    ) -> Float[Tensor, "B *shape"]:
        first, second = random_pair(teacher.members, generator)
        inputs = inputs.requires_grad_()
        teachers = two_teachers(inputs, teacher, first, second)
        *batch, classes = teachers[1].shape
        gradient = pull(teachers, inputs)
        students = two_students(inputs, student, torch.Size((*batch, teacher.members, classes)), first, second)
        return normalized(gradient if students is None else gradient - pull(students, inputs))
