"""DirichletMixture: maximum likelihood of the members under a mixture of Dirichlets, EnD²'s own open question."""

import math
from dataclasses import dataclass, replace
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_finite_loss, require_fraction, require_members, require_positive
from solera.core.schedule import linear
from solera.distributions import dirichlet_mixture as second_order
from solera.distributions.base import Targets
from solera.distributions.density import dirichlet_nll, smoothed_log_probs
from solera.distributions.sizing import fit_temperature_and_shift
from solera.methods.base import Method


def dirichlet_mixture_loss(
    output: Float[Tensor, "*batch outputs"],
    members: Float[Tensor, "*batch M K"],
    components: int = 2,
    temperature: float = 1.0,
    smoothing: float = 1e-4,
    weights: Float[Tensor, "*batch M"] | None = None,
    freedom: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """T²·(−mean_m ln Σ_c w_c·Dir(p̃_m | e^{z_c/T})), p̃_m the member's softmax(z_m/T) smoothed by γ.

    The output holds K logits z_c and one logit of w_c for each component. Below a `freedom` of 1, the rest of the loss
    is −mean_m ln Dir(p̃_m | e^{z_c/T}) with the component that member m was given, c = ⌊m·C/M⌋.
    """
    require_positive("temperature", temperature)
    logits, weight_logits = second_order.split(output / temperature, components)
    require_members(logits[..., 0, :], members)
    log_probs = smoothed_log_probs(members / temperature, smoothing, weights).unsqueeze(-2)
    shape = (*log_probs.shape[:-2], components, log_probs.shape[-1])
    surprise = dirichlet_nll(logits.unsqueeze(-3).expand(shape), log_probs.expand(shape))
    log_weights = (temperature * weight_logits).log_softmax(-1).unsqueeze(-2)
    count = surprise.shape[-2]
    given = surprise[..., range(count), [m * components // count for m in range(count)]]
    mixed = -(log_weights - surprise).logsumexp(-1)
    each = mixed if freedom == 1 else freedom * mixed + (1 - freedom) * given
    loss = temperature**2 * (each.mean(-1) if weights is None else (weights * each).sum(-1))
    remedy = "beyond 88·T e^{z/T} overflows float32; lower the learning rate, and keep smoothing above 0"
    return require_finite_loss(loss, output, remedy)


@dataclass(frozen=True)
class DirichletMixture(Method):
    """Keeps the whole decomposition of members that fall into groups; for up to a few hundred classes.

    So that components do not collapse into one, each is first given some of the members, neighbours in their list; over
    the second third of the training the likelihood of the mixture takes over. An `initial_temperature` above 1 is
    EnD²'s: it softens the members for a third of the training and falls linearly to 1 over the next.

    Fitted on held-out inputs it predicts α_c = e^{lse(z_c) + b}·softmax(z_c/T) with T = `mean_temperature` and
    b = `precision_shift`, by the ensemble's total and knowledge.
    """

    components: int = 2
    initial_temperature: float = 1.0
    smoothing: float = 1e-4
    mean_temperature: float = 1.0
    precision_shift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("components", "initial_temperature", "mean_temperature"):
            require_positive(name, getattr(self, name))
        require_fraction("smoothing", self.smoothing)
        if not math.isfinite(self.precision_shift):
            raise ValueError(f"precision_shift must be finite, got {self.precision_shift}: 0 leaves it as it is")

    def temperature(self, progress: float) -> float:
        """T at this point of the training."""
        return linear(self.initial_temperature, 1.0, 1 / 3, 2 / 3)(progress)

    def outputs(self, size: int) -> int:
        return self.components * (size + 1)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        freedom = linear(0.0, 1.0, 1 / 3, 2 / 3)(progress)
        members, temperature = targets.members.logits, self.temperature(progress)
        return dirichlet_mixture_loss(
            output, members, self.components, temperature, self.smoothing, targets.weights, freedom
        )

    def predict(self, output: Tensor) -> second_order.DirichletMixture:
        settings = self.components, self.mean_temperature, self.precision_shift
        return second_order.DirichletMixture.from_output(output, *settings)

    def fitted(
        self,
        output: Float[Tensor, "N outputs"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "DirichletMixture":
        predicted = partial(second_order.DirichletMixture.from_output, output.double(), self.components)
        temperature, shift = fit_temperature_and_shift(predicted, total, knowledge, auxiliary)
        return replace(self, mean_temperature=temperature, precision_shift=shift)
