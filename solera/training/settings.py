"""How long, how fast, how often: the settings every training shares."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from solera.core.checks import require_fraction, require_positive
from solera.core.schedule import Schedule, constant, cosine, one_cycle


@dataclass(frozen=True)
class Training:
    """Settings of one training; the same for a member and for a student."""

    epochs: int = 30
    lr: float = 1e-3
    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
    warm_up: float = 0.3  # one_cycle: the share of the training in which the rate rises
    optimizer: Literal["adamw", "sgd"] = "adamw"  # sgd: with Nesterov momentum of 0.9
    weight_decay: float = 0.0
    label_weight: float = 0.0  # distillation: the share of the loss that comes from true labels
    patience: int | None = None  # stop after this many epochs without a better validation loss
    seed: int = 0
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"] = "auto"
    compile: bool = False  # compile the Dirichlet losses: ~10 s once, worth it for long runs or many classes
    checkpoint_seconds: float = 60.0  # how much work a kill may cost at most, within an epoch

    def __post_init__(self) -> None:
        require_positive("epochs", self.epochs)
        require_positive("lr", self.lr)
        require_fraction("label_weight", self.label_weight)
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        if self.patience is not None:
            require_positive("patience", self.patience)
        if self.schedule not in ("one_cycle", "cosine", "constant"):
            raise ValueError(f"schedule must be 'one_cycle', 'cosine' or 'constant', got {self.schedule!r}")
        if self.optimizer not in ("adamw", "sgd"):
            raise ValueError(f"optimizer must be 'adamw' or 'sgd', got {self.optimizer!r}")
        self.rate()

    def rate(self) -> Schedule:
        """The learning rate, as a factor of `lr`."""
        if self.schedule == "one_cycle":
            return one_cycle(1.0, self.warm_up)
        return {"cosine": cosine, "constant": constant}[self.schedule](1.0)

    def steps(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """What takes the steps, for these groups of parameters."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self.lr, momentum=0.9, nesterov=True)
        return torch.optim.AdamW(groups, lr=self.lr)
