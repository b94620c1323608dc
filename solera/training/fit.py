"""Train one ordinary classifier on labels: how an ensemble's members are made."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
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
    identity: str = "",
    title: str = "fit",
) -> nn.Module:
    """Maximum likelihood of the labels; resumable like every training.

    It goes on from a checkpoint only if the network's class, the settings and `identity` (of the data, say) are alike.
    """
    settings = {k: v for k, v in asdict(training).items() if k != "checkpoint_seconds"}
    name = repr((type(model).__name__, settings)) + identity
    run = hashlib.sha256(name.encode()).hexdigest()
    return train(model, batches, label_loss, training, validation=validation, folder=folder, identity=run, title=title)
