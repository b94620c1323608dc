"""Small real things that several tests need."""

import numpy as np
import torch

from solera import Batches, Ensemble
from solera.nn import MLP


def small_ensemble(members: int = 3, inputs: int = 4, classes: int = 3, seed: int = 0) -> Ensemble:
    torch.manual_seed(seed)
    return Ensemble([MLP(inputs, classes, (8,)) for _ in range(members)])


def small_batches(
    examples: int = 50, inputs: int = 4, classes: int = 3, seed: int = 0, batch_size: int = 16
) -> Batches:
    torch.manual_seed(seed)
    return Batches(torch.randn(examples, inputs), torch.randint(classes, (examples,)), batch_size=batch_size)


def as_columns(found):
    """What a task says of a prediction, as arrays."""
    return {name: np.asarray(column) for name, column in found.items()}
