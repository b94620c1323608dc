"""Shapes are checked while the tests run; torch's threads must not spin beside each other."""

import os
import random

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401  (the hook looks it up by name)

# Before anything imports solera: every annotated function checks its tensors from now on.
install_import_hook("solera", "tests.typecheck.checker")

from solera.core.progress import quiet  # noqa: E402

torch.set_num_threads(1)  # pytest-xdist already uses the cores


@pytest.fixture(autouse=True)
def _alike_in_any_order():
    """Silent, and from the same seeds, whichever tests ran before."""
    random.seed(0)
    np.random.seed(0)  # libraries draw from it
    torch.manual_seed(0)
    with quiet():
        yield
