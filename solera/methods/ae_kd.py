"""AE-KD: teachers weighted so that their pulls on the student agree as far as they can (Du et al., 2020)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera.core.checks import require_members, require_positive
from solera.core.least_norm import least_norm_weights
from solera.data import Batch
from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.methods.base import Method

Per = Literal["batch", "example"]

_CHUNK = 1 << 20  # elements that are held in float64 at a time


def ae_kd_gradients(
    logits: Float[Tensor, "*batch K"], members: Float[Tensor, "*batch M K"], temperature: float = 1.0
) -> Float[Tensor, "*batch M K"]:
    """g_m = T·(softmax(z/T) − softmax(z_m/T)), the gradient of T²·KL[softmax(z_m/T) ‖ softmax(z/T)]; in float64."""
    student, teacher = (Categorical(z.detach().double()).tempered(temperature).mean for z in (logits, members))
    return temperature * (student.unsqueeze(-2) - teacher)


def _parts(
    logits: Tensor, members: Tensor, temperature: float, weights: Tensor | None
) -> Iterator[tuple[Float[Tensor, "N M K"], Bool[Tensor, "N M"]]]:
    """The gradients of a few rows at a time, and who speaks there; of those who do not, zeros."""
    require_positive("temperature", temperature)
    shape = members.shape[-2:]
    speaks = members.new_ones(members.shape[:-1]) if weights is None else weights
    rows = logits.reshape(-1, shape[1]), members.reshape(-1, *shape), (speaks > 0).reshape(-1, shape[0])
    for z, said, mine in zip(*(t.split(max(1, _CHUNK // shape.numel())) for t in rows), strict=True):
        gradients = ae_kd_gradients(z, Categorical(said).heard(mine.double()).logits, temperature)
        yield gradients * mine.unsqueeze(-1), mine


def _require_bound(bound: float, members: int) -> None:
    if not bound <= 1 or (members > 1 and bound * members < 1 - 1e-9):
        raise ValueError(
            f"bound must lie between 1/{members} and 1 for {members} members, got {bound}: weights below it cannot sum "
            f"to one; {1 / members:.4g} is the plain mean"
        )


def ae_kd_weights(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    bound: float = 0.6,
    weights: Float[Tensor, "*batch M"] | None = None,
    weight: Float[Tensor, "*batch"] | None = None,
) -> Float[Tensor, " M"]:
    """argmin ‖Σ_m w_m g_m‖², Σ w = 1, 0 ≤ w ≤ C, g_m the logit gradient of teacher m averaged over the batch.

    The average is weighted by `weight` (0: padding, not read) and runs over the rows where member m speaks (`weights`
    above 0); a member that never does gets nothing. Where fewer than 1/C speak, C is 1 over their number.
    """
    _require_bound(bound, members.shape[-2])
    if weight is not None:
        real = weight > 0
        logits, members, weight = logits[real], members[real], weight[real]
        weights = None if weights is None else weights[real]
    shares = (members.new_ones(members.shape[:-2]) if weight is None else weight).reshape(-1).double()
    total = members.new_zeros(members.shape[-2:], dtype=torch.float64)
    count = members.new_zeros(members.shape[-2], dtype=torch.float64)
    done = 0
    for gradients, speaks in _parts(logits, members, temperature, weights):
        share = shares[done : done + len(speaks)]
        total += torch.einsum("n,nmk->mk", share, gradients)
        count += share @ speaks.double()
        done += len(speaks)
    if not count.sum() > 0:
        count = torch.ones_like(count)  # nothing but padding: even shares
    average = total / torch.where(count > 0, count, 1.0).unsqueeze(-1)
    upper = bound * (count > 0).double()
    return least_norm_weights(average.unsqueeze(0), upper.unsqueeze(0)).squeeze(0).to(members.dtype)


def ae_kd_example_weights(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    bound: float = 0.6,
    weights: Float[Tensor, "*batch M"] | None = None,
) -> Float[Tensor, "*batch M"]:
    """The same for each batch element by itself (eq. 28 and 29 of Nam et al., 2022)."""
    _require_bound(bound, members.shape[-2])
    parts = _parts(logits, members, temperature, weights)
    found = [least_norm_weights(gradients, bound * speaks.double()) for gradients, speaks in parts]
    return torch.cat(found).reshape(members.shape[:-1]).to(members.dtype)


def _where_they_speak(shares: Float[Tensor, " M"], weights: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
    """One weight per member as weights of each row: those who speak share it as they do the batch."""
    heard = shares * (weights > 0)
    total = heard.sum(-1, keepdim=True)
    return torch.where(total > 0, heard / torch.where(total > 0, total, 1.0), weights)


def ae_kd_loss(
    logits: Float[Tensor, "*batch K"],
    members: Float[Tensor, "*batch M K"],
    temperature: float = 1.0,
    bound: float = 0.6,
    per: Per = "batch",
    weights: Float[Tensor, "*batch M"] | None = None,
    weight: Float[Tensor, "*batch"] | None = None,
) -> Float[Tensor, "*batch"]:
    """T²·KL[Σ_m w_m softmax(z_m/T) ‖ softmax(z/T)], the w_m held constant: the gradient of Σ_m w_m·T²·KL_m (eq. 27)."""
    require_members(logits, members)
    if per == "example":
        shares = ae_kd_example_weights(logits, members, temperature, bound, weights)
    else:
        together = ae_kd_weights(logits, members, temperature, bound, weights, weight)
        shares = together.expand(members.shape[:-1]) if weights is None else _where_they_speak(together, weights)
    teacher = Categorical(members).tempered(temperature).averaged(shares)
    return temperature**2 * teacher.kl(Categorical(logits).tempered(temperature))


@dataclass(frozen=True)
class AEKD(Method):
    """Like EnD, with a mean that gives more weight to teachers whose gradients agree; no weight exceeds `bound`.

    `bound` 1/M is EnD. Weights are computed for every batch, or for every example; in `distill` padding does not count.
    Of a member's own weight only counts whether it is 0. The gradient holds the weights constant, so
    it is not the slope of the loss as a function of the output.
    """

    adaptive: ClassVar[bool] = True  # part of the loss follows the output and is held constant in its gradient
    temperature: float = 1.0
    bound: float = 0.6
    per: Per = "batch"

    def __post_init__(self) -> None:
        require_positive("temperature", self.temperature)
        if not 0 < self.bound <= 1:
            raise ValueError(f"bound must lie above 0 and not above 1, got {self.bound}: 1/M is the plain mean")
        if self.per not in ("batch", "example"):
            raise ValueError(f"per must be 'batch' or 'example', got {self.per!r}")

    def _loss(self, output: Tensor, targets: Targets, weight: Tensor | None) -> Float[Tensor, "*batch"]:
        logits, weights = targets.members.logits, targets.weights
        return ae_kd_loss(output, logits, self.temperature, self.bound, self.per, weights, weight)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        return self._loss(output, targets, None)

    def batch_loss(self, output: Tensor, targets: Targets, batch: Batch, progress: float = 1.0) -> Tensor:
        """The same, for a batch some of which may be padding."""
        return self._loss(output, targets, batch.weight)

    def predict(self, output: Tensor) -> Categorical:
        return Categorical(output)
