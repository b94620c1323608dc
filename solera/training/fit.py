"""Train one ordinary classifier on labels: how an ensemble's members are made."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from solera.core.batch import Batch, ManyBatches, tensors_in
from solera.core.checks import require_finite, require_labels
from solera.distributions.categorical import Categorical
from solera.training.loop import train
from solera.training.settings import Training


def label_loss(output: Any, batch: Batch, progress: float) -> Tensor:
    """−ln p(y)."""
    assert batch.target is not None
    return -Categorical(output).log_prob(batch.target)


def check_labelled(batches: Iterable[Batch], classes: int) -> None:
    """Finite inputs and labels in range, before any work starts."""
    for batch in batches:
        for tensor in tensors_in(batch.inputs):
            require_finite("inputs", tensor)
        if batch.target is None:
            raise ValueError("a classifier learns from labels, but the batches carry none: pass target")
        require_labels("labels", batch.target, classes)


def fit(
    model: nn.Module,
    batches: ManyBatches,
    training: Training,
    *,
    validation: Iterable[Batch] | None = None,
    folder: Path | None = None,
    title: str = "fit",
) -> nn.Module:
    """Maximum likelihood of the labels; resumable like every training."""
    return train(model, batches, label_loss, training, validation=validation, folder=folder, title=title)
