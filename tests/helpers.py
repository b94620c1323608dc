"""Small real things that several tests need."""

import numpy as np
import pytest
import torch

from solera import Batches, Ensemble
from solera.nn import MLP
from solera.training import checkpoint

PEAK = """
def peak():  # megabytes of this process alone: what getrusage says begins with the parent's peak
    lines = open("/proc/self/status").read().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
"""


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


def assert_stopped_is_whole(run, folder, stops):
    """`run(folder)` trains a student; stopped after so many checkpoints and gone on with, it must be the same one."""
    whole = run(folder / "whole").model.state_dict()
    real = checkpoint.save
    for stop in stops:
        left = iter(range(stop))

        def save(*arguments, left=left):
            real(*arguments)
            if next(left, None) is None:
                raise KeyboardInterrupt

        checkpoint.save = save
        try:
            with pytest.raises(KeyboardInterrupt):
                run(folder / "stopped")
        finally:
            checkpoint.save = real
    again = run(folder / "stopped").model.state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in whole.items())
