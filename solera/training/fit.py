"""Train one ordinary classifier or regressor on labels: how an ensemble's members are made."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from solera.core.checks import require_finite, require_labels
from solera.data import Batch, ManyBatches, tensors_in
from solera.distributions.families import family_named
from solera.tasks import task_of
from solera.training.loop import train
from solera.training.settings import Training


def label_loss(output: Any, batch: Batch, progress: float) -> Tensor:
    """−ln p(y): of a class by logits, of a real target by mean and log-variance."""
    assert batch.target is not None
    family = family_named(task_of(batch.target).family)
    return -family.from_output(output).log_prob(batch.target)


def check_labelled(batches: Iterable[Batch], outputs: int) -> None:
    """Finite inputs, labels in range and a network that fits them, before any work starts."""
    for batch in batches:
        for tensor in tensors_in(batch.inputs):
            require_finite("inputs", tensor)
        if batch.target is None:
            raise ValueError("a model learns from labels, but the batches carry none: pass target")
        require_finite("targets", batch.target)
        if not batch.target.is_floating_point():
            require_labels("labels", batch.target, outputs)
        elif outputs != 2 * (size := batch.target[:1].numel() if batch.target.ndim > 1 else 1):
            raise ValueError(
                f"a real target of {size} dimensions takes {2 * size} outputs, means and then log-variances; this "
                f"network gives {outputs}"
            )


def fit(
    model: nn.Module,
    batches: ManyBatches,
    training: Training,
    *,
    validation: Iterable[Batch] | None = None,
    folder: Path | None = None,
    title: str = "fit",
) -> nn.Module:
    """Maximum likelihood of the labels, classes or (floating-point) real targets; resumable like every training."""
    return train(model, batches, label_loss, training, validation=validation, folder=folder, title=title)
