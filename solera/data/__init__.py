"""What flows through the training loop, however people hold it."""

from solera.data.batch import UNLABELLED, Batch, ManyBatches, in_order, map_tensors, tensors_in
from solera.data.memory import Batches
from solera.data.views import Augment, Augmented, Views

__all__ = [
    "UNLABELLED",
    "Augment",
    "Augmented",
    "Batch",
    "Batches",
    "ManyBatches",
    "Views",
    "in_order",
    "map_tensors",
    "tensors_in",
]
