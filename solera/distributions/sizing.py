"""Maps that give a student's uncertainty the size of its ensemble's: fitted on held-out inputs, without labels.

A student's total and knowledge may rank inputs well and still be too large or too small throughout. The maps here have
a few numbers, chosen so that the *deviance* of what the student says from what the ensemble says is least.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.minimum import minimum
from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet

LEAST_ROWS = 30  # fewer examples say too little about two numbers
MOST_NUMBERS = 1 << 20  # of the logits that are looked at: more rows are thinned out evenly
STEEPEST = 10.0  # a slope from 1/10 to 10: a flatter one would throw away how the student ranks its inputs


def deviance(
    ours: Float[Tensor, " N"], theirs: Float[Tensor, " N"], auxiliary: Bool[Tensor, " N"] | None = None
) -> Float[Tensor, ""]:
    """Σ (s − e + e·ln(e/s))/Σ e, of Poisson: 0 where s = e. Familiar and auxiliary inputs apart, and then added.

    Relative where both are large and absolute where both are small; and where a factor of s is free, Σ s = Σ e at its
    least value: so amounts are kept on average, which least squares of logarithms does not achieve.
    """
    if auxiliary is not None:
        parts = [part for part in (auxiliary, ~auxiliary) if theirs[part].sum() > 0]
        return torch.stack([deviance(ours[part], theirs[part]) for part in parts]).sum()
    smallest = torch.finfo(torch.float64).tiny
    ours, theirs = ours.double(), theirs.double()
    logs = theirs.clamp(min=smallest).log() - ours.clamp(min=smallest).log()
    return (ours - theirs + theirs * logs).sum() / theirs.sum()


def enough(wanted: Float[Tensor, " N"]) -> bool:
    """Whether there is something to fit to: some examples, and an ensemble that is not sure of all of them."""
    return len(wanted) >= LEAST_ROWS and float(wanted.double().sum()) > 1e-6 * len(wanted)


def fit_factor(
    amount: Float[Tensor, " N"], wanted: Float[Tensor, " N"], auxiliary: Bool[Tensor, " N"] | None = None
) -> float:
    """c for which e^c·amount is nearest to `wanted`; 0 where there is not enough to tell."""
    if not enough(wanted):
        return 0.0
    (lift,), _ = minimum(lambda n: deviance(n[0].exp() * amount, wanted, auxiliary), [0.0])
    return lift


def fit_line(
    amount: Callable[[Tensor], Tensor],
    predictor: Float[Tensor, " N"],
    wanted: Float[Tensor, " N"],
    auxiliary: Bool[Tensor, " N"] | None = None,
) -> tuple[float, float]:
    """(a, b), a > 0, for which amount(a·x + b) is nearest to `wanted`; (1, 0) where there is not enough to tell."""
    if not enough(wanted):
        return 1.0, 0.0
    x, steepest = predictor.double(), math.log(STEEPEST)
    centre = x.mean()

    def log_slope(number: Tensor) -> Tensor:
        return steepest * (number / steepest).tanh()

    def away(numbers: Tensor) -> Tensor:
        moved = x + torch.expm1(log_slope(numbers[0])) * (x - centre) + numbers[1]
        return deviance(amount(moved), wanted, auxiliary)

    (turn, lift), _ = minimum(away, [0.0, 0.0])
    slope = float(log_slope(x.new_tensor(turn)).exp())
    return slope, lift + (1 - slope) * float(centre)


def fit_precision(
    logits: Float[Tensor, "N K"],
    mean: Float[Tensor, "N K"],
    knowledge: Float[Tensor, " N"],
    auxiliary: Bool[Tensor, " N"] | None = None,
) -> tuple[float, float]:
    """(a, b) of ln α₀ = a·lse(z) + b, by the ensemble's knowledge; `mean` are the logits of the mean."""
    log_sum = Categorical(logits).log_sum
    return fit_line(lambda x: Dirichlet.from_mean(mean, x).knowledge, log_sum, knowledge, auxiliary)


def fit_mean_temperature(
    logits: Float[Tensor, "N K"], total: Float[Tensor, " N"], auxiliary: Bool[Tensor, " N"] | None = None
) -> float:
    """T for which the entropy of softmax(z/T) is nearest to the ensemble's total."""
    if not enough(total):
        return 1.0
    z = logits.double()
    (log_inverse,), _ = minimum(lambda n: deviance(Categorical(z * n[0].exp()).total, total, auxiliary), [0.0])
    return math.exp(-log_inverse)


def fit_temperature_and_shift(
    predicted: Callable[[Tensor, Tensor], SecondOrder],
    total: Float[Tensor, " N"],
    knowledge: Float[Tensor, " N"],
    auxiliary: Bool[Tensor, " N"] | None = None,
) -> tuple[float, float]:
    """(T, b) for which total and knowledge of predicted(T, b) are together nearest to the ensemble's."""
    if not enough(knowledge):
        return 1.0, 0.0

    def away(numbers: Tensor) -> Tensor:
        said = predicted((-numbers[0]).exp(), numbers[1])
        return deviance(said.total, total, auxiliary) + deviance(said.knowledge, knowledge, auxiliary)

    (log_inverse, shift), _ = minimum(away, [0.0, 0.0])
    return math.exp(-log_inverse), shift


def require_map(temperature: float, offset: float, slope: float, shift: float) -> None:
    """Refuses settings of `mapped` that mean nothing."""
    require_positive("mean_temperature", temperature)
    require_positive("precision_slope", slope)
    if not 0 <= offset < math.inf:
        raise ValueError(f"mean_offset must be 0 or more, got {offset}: 0 leaves the mean as it is")
    if not math.isfinite(shift):
        raise ValueError(f"precision_shift must be finite, got {shift}: 0 leaves the precision as it is")


def mapped(
    logits: Float[Tensor, "*batch K"], temperature: float, offset: float, slope: float, shift: float
) -> Dirichlet:
    """mean ∝ e^{z/T} + d, precision e^{a·lse(z) + b}; (1, 0, 1, 0) is Dir(e^z)."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    mean = logits if temperature == 1 else logits / temperature
    if offset:
        mean = torch.logaddexp(mean, mean.new_tensor(offset).log())
    return Dirichlet.from_mean(mean, slope * Categorical(logits).log_sum + shift)
