"""How long, how fast, how often: the settings every training shares."""

from dataclasses import dataclass
from typing import Literal

from solera.core.checks import require_fraction, require_positive
from solera.core.schedule import Schedule, constant, cosine, one_cycle


@dataclass(frozen=True)
class Training:
    """Settings of one training; the same for a member and for a student."""

    epochs: int = 30
    lr: float = 1e-3
    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
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

    def rate(self) -> Schedule:
        """The learning rate, as a factor of `lr`."""
        return {"one_cycle": one_cycle, "cosine": cosine, "constant": constant}[self.schedule](1.0)
