"""BatchEnsemble: a subnetwork for every member, by rank-one factors of shared weights (Mariet et al., 2021)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.mixture import Mixture
from solera.methods.base import Method, one_to_one, require_family, require_temperature
from solera.nn.batch_ensemble import Norms, Subnetworks, branch


def batch_ensemble_loss(
    logits: Float[Tensor, "*batch M K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·mean_m KL[softmax(z_teacher,m/T) ‖ softmax(z_m/T)], eq. 3 of Nam et al. (2022): 0 at perfect imitation."""
    return one_to_one(Categorical(logits), Categorical(members), weights, temperature)


@dataclass(frozen=True)
class BatchEnsemble(Method):
    """Keeps every member: subnetwork m imitates member m, for hardly more weights than one network and M times work.

    The factors start N(1, ½²) ("normal") or ±1 ("signs"), far enough apart to end in different minima, and are spared
    the weight decay. Their gradient is that of the sum over the members, the shared weights' that of the mean.
    """

    temperature: float = 1.0
    init: Literal["normal", "signs"] = "normal"
    norms: Norms = "shared"
    family: Family = "categorical"
    seed: int = 0  # of the first factors

    def __post_init__(self) -> None:
        require_temperature(self.temperature, self.family)
        if self.init not in ("normal", "signs"):
            raise ValueError(f"init must be 'normal' or 'signs', got {self.init!r}: for ones use LatentBE")
        if self.norms not in ("shared", "own"):
            raise ValueError(f"norms must be 'shared' or 'own', got {self.norms!r}")

    def student(self, model: nn.Module, members: int) -> nn.Module:
        return branch(model, members, self.init, self.norms, self.seed)

    def outputs(self, size: int) -> int:
        return family_named(self.family).outputs(size)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        require_family(self, targets)
        student = family_named(self.family).from_output(output)
        return one_to_one(student, targets.members, targets.weights, self.temperature)

    def predict(self, output: Tensor) -> Mixture:
        return Mixture(family_named(self.family).from_output(output))  # type: ignore[arg-type]

    def parameter_groups(self, student: nn.Module, lr: float, weight_decay: float) -> Iterable[dict[str, Any]]:
        assert isinstance(student, Subnetworks)
        return [
            {"params": student.shared(), "lr": lr, "weight_decay": weight_decay},
            {"params": student.factors(), "lr": lr, "weight_decay": 0.0},
        ]
