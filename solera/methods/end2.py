"""EnD²: maximum likelihood of the members under the student's Dirichlet (Malinin et al., 2020)."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_finite_loss, require_fraction, require_members, require_positive
from solera.core.schedule import linear
from solera.distributions.base import Targets
from solera.distributions.density import dirichlet_nll, smoothed_log_probs
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.sizing import fit_mean_temperature, fit_precision, mapped, require_map
from solera.methods.base import Method


def smoothed_log_mean(
    members: Float[Tensor, "*batch M K"], smoothing: float, weights: Float[Tensor, "*batch M"] | None = None
) -> Float[Tensor, "*batch K"]:
    """mean_m ln((1 − γ)·p_m + γ/K), in float64."""
    log_probs = smoothed_log_probs(members, smoothing, weights)
    if weights is None:
        return log_probs.mean(-2)
    return (weights.unsqueeze(-1) * log_probs).sum(-2)


def end2_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    smoothing: float = 1e-4,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·(−mean_m ln Dir(p̃_m | e^{z/T})), p̃_m the member's softmax(z_m/T) smoothed by γ; eq. 8 with its 1/M."""
    require_positive("temperature", temperature)
    require_members(logits, members)
    log_mean = smoothed_log_mean(members / temperature, smoothing, weights)
    loss = temperature**2 * dirichlet_nll(logits / temperature, log_mean)
    remedy = "beyond 88·T e^{z/T} overflows float32; lower the learning rate, and keep smoothing above 0"
    return require_finite_loss(loss, logits, remedy)


@dataclass(frozen=True)
class EnD2(Method):
    """Keeps the whole decomposition; for few classes (from some tens of them on, use ProxyDirichlet).

    The temperature stays at `initial_temperature` for a third of the training, falls linearly to 1 over the next third,
    and stays there: the paper's half-cycles.

    Predicts Dir(e^z) or, once fitted on held-out inputs, mean ∝ e^{z/T} + d with T = `mean_temperature` (to the
    ensemble's total, or to labels) and d = `mean_offset` (to labels), and α₀ = e^{a·lse(z) + b} with
    a = `precision_slope`, b = `precision_shift` (to the ensemble's knowledge).
    """

    initial_temperature: float = 10.0
    smoothing: float = 1e-4
    mean_temperature: float = 1.0
    mean_offset: float = 0.0
    precision_slope: float = 1.0
    precision_shift: float = 0.0

    def __post_init__(self) -> None:
        require_positive("initial_temperature", self.initial_temperature)
        require_fraction("smoothing", self.smoothing)
        require_map(*self._map)

    @property
    def _map(self) -> tuple[float, float, float, float]:
        return self.mean_temperature, self.mean_offset, self.precision_slope, self.precision_shift

    def temperature(self, progress: float) -> float:
        """T at this point of the training."""
        return linear(self.initial_temperature, 1.0, 1 / 3, 2 / 3)(progress)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        members, temperature = targets.members.logits, self.temperature(progress)
        return end2_loss(output, members, temperature, self.smoothing, targets.weights)

    def predict(self, output: Tensor) -> Dirichlet:
        return mapped(output, *self._map)

    def fitted(
        self,
        output: Float[Tensor, "N K"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "EnD2":
        temperature = fit_mean_temperature(output, total, auxiliary)
        sized = replace(self, mean_temperature=temperature, mean_offset=0.0)
        slope, shift = fit_precision(output, sized.predict(output).logits, knowledge, auxiliary)
        return replace(sized, precision_slope=slope, precision_shift=shift)
