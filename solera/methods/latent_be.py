"""LatentBE: subnetworks imitate the members one to one and are averaged into one plain network (Nam et al., 2022)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from solera.distributions.base import Prediction, Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.mixture import Mixture
from solera.methods.base import Method, one_to_one, require_family, require_temperature
from solera.nn.batch_ensemble import Average, Subnetworks, branch, merge, require_mergeable


def latent_be_loss(
    logits: Float[Tensor, "*batch M K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 4.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·mean_m KL[softmax(z_teacher,m/T) ‖ softmax(z_m/T)], Algorithm 2: 0 at perfect imitation."""
    return one_to_one(Categorical(logits), Categorical(members), weights, temperature)


@dataclass(frozen=True)
class LatentBE(Method):
    """Keeps the ensemble's prediction, like EnD, in a network that its members' diversity has made better.

    All subnetworks start as the network that is given (r = s = 1), and weight decay pulls their factors to 1, not to 0:
    so they stay in one low-loss region, and W ∘ mean_m(s_m r_mᵀ) (eq. 5) is a network as good as they are. It is served
    as a plain network: the same class, parameter names and cost. 4 is the paper's temperature on CIFAR.

    `weight_decay` is the factors' own; None: that of the training (λ = 5·10⁻⁴ for both in the paper, under SGD).
    """

    temperature: float = 4.0
    average: Average = "products"
    weight_decay: float | None = None
    family: Family = "categorical"

    def __post_init__(self) -> None:
        require_temperature(self.temperature, self.family)
        if self.average not in ("products", "factors"):
            raise ValueError(f"average must be 'products' or 'factors', got {self.average!r}")
        if self.weight_decay is not None and self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")

    def student(self, model: nn.Module, members: int) -> nn.Module:
        student = branch(model, members)
        require_mergeable(student)
        return student

    def outputs(self, size: int) -> int:
        return family_named(self.family).outputs(size)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        require_family(self, targets)
        student = family_named(self.family).from_output(output)
        return one_to_one(student, targets.members, targets.weights, self.temperature)

    def predict(self, output: Tensor) -> Prediction:
        """What the merged network says, `[*batch, K]`."""
        return family_named(self.family).from_output(output)

    def predict_in_training(self, output: Tensor) -> Mixture:
        """What the subnetworks say together, `[*batch, M, K]`."""
        return Mixture(family_named(self.family).from_output(output))  # type: ignore[arg-type]

    def finalize(self, student: nn.Module) -> nn.Module:
        assert isinstance(student, Subnetworks)
        return merge(student, self.average)

    def parameter_groups(self, student: nn.Module, lr: float, weight_decay: float) -> Iterable[dict[str, Any]]:
        assert isinstance(student, Subnetworks)
        pull = weight_decay if self.weight_decay is None else self.weight_decay
        return [
            {"params": student.shared(), "lr": lr, "weight_decay": weight_decay},
            {"params": student.factors(), "lr": lr, "weight_decay": pull},
        ]
