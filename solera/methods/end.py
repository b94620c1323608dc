"""EnD: the student imitates the average of the members (Hinton et al., 2015)."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from solera.core.checks import require_positive
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.methods.base import Method


def end_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·KL[p̄_T ‖ softmax(z/T)] with p̄_T = mean_m softmax(z_m/T): 0 at perfect imitation."""
    teacher = Categorical(members).tempered(temperature).averaged(weights)
    return temperature**2 * teacher.kl(Categorical(logits).tempered(temperature))


@dataclass(frozen=True)
class EnD(Method):
    """Keeps the ensemble's prediction and total uncertainty; its split into data and knowledge is lost."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_positive("temperature", self.temperature)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        return end_loss(output, targets.members.logits, self.temperature, targets.weights)

    def predict(self, output: Tensor) -> Categorical:
        return Categorical(output)
