"""Prior network: reverse KL to a sharp Dirichlet at the label, and to a flat one elsewhere (Malinin & Gales, 2019)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.checks import require_labels, require_positive
from solera.data import UNLABELLED
from solera.distributions.base import Targets
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.mixture import Labelled
from solera.methods.base import Method


def _reverse_kl(logits: Tensor, mean: Tensor, precision: Tensor) -> Float[Tensor, "*batch"]:
    """KL[Dir(e^z + 1) ‖ Dir(β·p̄ + 1)], in float64 inside."""
    target = Dirichlet(precision.double().unsqueeze(-1) * mean.double() + 1)
    loss = Dirichlet.from_logits(logits.double(), offset=1.0).kl(target)
    return loss.to(logits.dtype if logits.dtype == torch.float64 else torch.float32)


def prior_network_loss(
    logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"], precision: float = 100.0
) -> Float[Tensor, "*batch"]:
    """KL[Dir(e^z + 1) ‖ Dir(β·e_y + 1)]; where there is no label (−100: an auxiliary input), KL[Dir(e^z + 1) ‖ Dir(1)].

    Zero where the logits say as much: z_y = ln β and −∞ elsewhere, or −∞ everywhere.
    """
    require_positive("precision", precision)
    known = labels != UNLABELLED
    require_labels("labels", labels[known], logits.shape[-1])
    mean = torch.nn.functional.one_hot(labels.masked_fill(~known, 0), logits.shape[-1])
    return _reverse_kl(logits, mean, precision * known)


@dataclass(frozen=True)
class PriorNetwork(Method):
    """Learns the decomposition from labels and auxiliary inputs alone, from `Labels`: the baseline of EnD².

    `precision` is the β of the target Dir(β·p̄ + 1), p̄ the label, or what an ensemble says in its place. Where there is
    no label the target is flat, Dir(1), and counts `auxiliary_weight` times.
    """

    precision: float = 100.0
    auxiliary_weight: float = 1.0

    def __post_init__(self) -> None:
        require_positive("precision", self.precision)
        require_positive("auxiliary_weight", self.auxiliary_weight)

    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        mean = targets.mean
        known = targets.known if isinstance(targets, Labelled) else torch.ones_like(mean[..., 0], dtype=torch.bool)
        loss = _reverse_kl(output, mean, self.precision * known)
        return torch.where(known, loss, self.auxiliary_weight * loss)

    def predict(self, output: Tensor) -> Dirichlet:
        return Dirichlet.from_logits(output, offset=1.0)
