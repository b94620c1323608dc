"""What a prediction says about each example, as plain columns: what metrics eat."""

import numpy as np
from jaxtyping import Int
from torch import Tensor

from solera.distributions.base import Prediction, SecondOrder

Columns = dict[str, np.ndarray]


def columns(prediction: Prediction, labels: Int[Tensor, "*batch"] | None = None) -> Columns:
    """`predicted`, `confidence`, `total`, where they exist `data` and `knowledge`; with labels `correct` and `nll`."""
    mean = prediction.mean
    confidence, predicted = mean.max(-1)
    found: dict[str, Tensor] = {"predicted": predicted, "confidence": confidence, "total": prediction.total}
    if isinstance(prediction, SecondOrder):
        found |= {"data": prediction.data, "knowledge": prediction.knowledge}
    if labels is not None:
        found |= {"correct": predicted == labels, "nll": -prediction.log_prob(labels)}
    return {name: column.detach().cpu().numpy() for name, column in found.items()}
