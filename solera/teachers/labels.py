"""The labels as a teacher: for training without an ensemble."""

from dataclasses import dataclass

import torch

from solera.core.checks import require_labels
from solera.data import UNLABELLED, Batch
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Labelled


@dataclass(frozen=True)
class Labels:
    """A teacher of one member who knows the labels: for training without an ensemble.

    `distill(Labels(classes=10), network, Batches(x, y, auxiliary=elsewhere), PriorNetwork())`.
    """

    classes: int
    members: int = 1
    live: bool = True  # a label stays what it is when its input is changed

    @property
    def fingerprints(self) -> list[str]:
        """The labels themselves are part of the batches."""
        return [f"labels of {self.classes} classes"]

    def check(self, batch: Batch) -> None:
        """Refuses batches without classes, or with others."""
        if batch.target is None:
            raise ValueError("these batches carry no labels to learn from: pass target, Batches(inputs, target)")
        require_labels("labels", batch.target[batch.target != UNLABELLED], self.classes)

    def __call__(self, batch: Batch) -> Labelled:
        self.check(batch)
        assert batch.target is not None
        known = batch.target != UNLABELLED
        label = torch.nn.functional.one_hot(batch.target.masked_fill(~known, 0), self.classes)
        ruled_out = known.unsqueeze(-1) & (label == 0)
        logits = torch.zeros(label.shape, device=label.device).masked_fill(ruled_out, -torch.inf)
        return Labelled(Categorical(logits.unsqueeze(-2)), known=known)
