"""How long, how fast, how often: the settings every training shares."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from solera.core.checks import require_fraction, require_positive
from solera.core.schedule import Schedule, constant, cosine, one_cycle

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]  # parameter groups with lr and weight_decay


@dataclass(frozen=True)
class Training:
    """Settings of one training; the same for a member and for a student."""

    epochs: int | Literal["patient"] = 30  # "patient": distillation goes on while it helps, see docs/training.md
    lr: float = 1e-3
    schedule: Literal["one_cycle", "cosine", "constant"] | Schedule = "one_cycle"  # or progress in [0, 1] -> factor
    warm_up: float = 0.3  # one_cycle: the share of the training in which the rate rises
    optimizer: Literal["adamw", "sgd"] | MakeOptimizer = "adamw"  # sgd: with Nesterov momentum of 0.9
    weight_decay: float = 0.0
    clip: float | None = None  # the largest norm that the gradient of all weights may have
    accumulate: int = 1  # batches whose gradients are averaged for one step
    average: float = 0.0  # decay of a moving average of the weights, which is what is kept: 0.999, say; 0: none
    label_weight: float | Literal["auto"] = 0.0  # distillation: the share of the loss that comes from true labels
    label_smoothing: float = 0.0  # of labels: the share of the probability that is spread over all classes
    patience: int | None = None  # stop after this many epochs without a better validation loss
    most_rounds: int = 3  # "patient": the budget, in rounds of 30, 60, 120, … epochs (more where an epoch is short)
    seed: int = 0
    device: str = "auto"  # "auto": a GPU where there is one; or "cpu", "cuda:1"
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"] = "auto"
    compile: bool | Literal["auto"] = "auto"  # the losses of logits; "auto": where it saves more than it costs (~20 s)
    fused_head: bool | Literal["auto"] = "auto"  # a last linear layer inside the loss; "auto": where logits are many
    checkpoint_seconds: float = 60.0  # how much work a kill may cost at most, within an epoch

    def __post_init__(self) -> None:
        given = [name for name in ("patience", "clip") if getattr(self, name) is not None]
        for name in ("epochs", "most_rounds", "lr", "accumulate", *given):
            if (name, self.epochs) != ("epochs", "patient"):
                require_positive(name, getattr(self, name))
        if self.label_weight == "auto" and self.epochs != "patient":
            raise ValueError("label_weight='auto' is chosen between rounds of epochs='patient': pass that, or a share")
        require_fraction("label_weight", self.label_share)
        require_fraction("label_smoothing", self.label_smoothing)
        if not 0 <= self.average < 1:
            raise ValueError(f"average must lie between 0 (none) and below 1, got {self.average}")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds must be 0 or more, got {self.checkpoint_seconds}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must not be negative or infinite, got {self.weight_decay}")
        if not callable(self.schedule) and self.schedule not in ("one_cycle", "cosine", "constant"):
            raise ValueError(
                f"schedule must be 'one_cycle', 'cosine', 'constant' or a function of progress, got {self.schedule!r}"
            )
        if not callable(self.optimizer) and self.optimizer not in ("adamw", "sgd"):
            raise ValueError(
                f"optimizer must be 'adamw', 'sgd' or a function of parameter groups, got {self.optimizer!r}"
            )
        for name in ("compile", "fused_head"):
            if getattr(self, name) not in (True, False, "auto"):
                raise ValueError(f"{name} must be True, False or 'auto', got {getattr(self, name)!r}")
        self.rate()

    @property
    def fixed_epochs(self) -> int:
        """The number of epochs, where it is one."""
        if self.epochs == "patient":
            raise ValueError("epochs='patient' is for distillation, which knows when it has learned: pass a number")
        return self.epochs

    @property
    def label_share(self) -> float:
        """The share of the labels, 0 where it is yet to be chosen."""
        return 0.0 if self.label_weight == "auto" else self.label_weight

    def rate(self) -> Schedule:
        """The learning rate, as a factor of `lr`."""
        if callable(self.schedule):
            return self.schedule
        if self.schedule == "one_cycle":
            return one_cycle(1.0, self.warm_up)
        return {"cosine": cosine, "constant": constant}[self.schedule](1.0)

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser of these groups of parameters.

        AdamW takes a step in one kernel, several times faster, where that is safe: it reads memory as it lies, so all
        weights must be contiguous; and it undoes the scale of half precision's gradients itself, too late for `clip`.
        """
        if callable(self.optimizer):
            return self.optimizer(groups)
        if self.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self.lr, momentum=0.9, nesterov=True)
        plain = all(p.is_floating_point() and p.is_contiguous() for group in groups for p in group["params"])
        return torch.optim.AdamW(groups, lr=self.lr, fused=plain and self.precision != "16-mixed")


PATIENT = Training(epochs="patient", label_weight="auto")  # how a student is trained by default
