"""Seeds: the same numbers as torch's own, at a fraction of the cost."""

import random
import traceback

import numpy as np
import pytest
import torch

from solera.core.seeds import seed_everything


def test_one_number_seeds_python_numpy_and_torch():
    drawn = []
    for _ in range(2):
        seed_everything(5)
        drawn.append((random.random(), np.random.rand(), torch.rand(3).tolist()))
    assert drawn[0] == drawn[1]
    torch.manual_seed(5)
    assert torch.rand(3).tolist() == drawn[0][2]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator to be seeded")
def test_no_call_stack_is_written_down_for_an_accelerator_that_is_not_there(monkeypatch):
    """torch.manual_seed writes down three, each time: an ensemble of 100 members seeds 100 times."""
    monkeypatch.setattr(traceback, "format_stack", lambda *_, **__: pytest.fail("written down"))
    seed_everything(5)
