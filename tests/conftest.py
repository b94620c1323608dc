"""Shapes are checked while the tests run; torch's threads must not spin beside each other."""

import os
import random

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist already uses the cores, and tests start processes

import numpy as np
import pytest
import torch
from hypothesis import settings

from tests import browser as chromium
from tests import typecheck

typecheck.install()

from solera.core.progress import quiet  # noqa: E402

torch.set_num_threads(1)
settings.register_profile("solera", deadline=None)  # a busy machine is not a failure
settings.load_profile("solera")


@pytest.fixture(autouse=True)
def _alike_in_any_order():
    """Silent, and from the same seeds, whichever tests ran before."""
    random.seed(0)
    np.random.seed(0)  # libraries draw from it
    torch.manual_seed(0)
    typecheck.check_again()
    with quiet():
        yield


@pytest.fixture(autouse=True)
def _models_are_timed_briefly(monkeypatch):
    """An evaluation times every model for up to a second; few tests look at that."""
    monkeypatch.setattr("solera.evaluation.latency.ROUNDS", 3)


@pytest.fixture
def short_rounds(monkeypatch):
    """A patient training has rounds of 12 and 24 epochs, whatever the number of steps."""
    monkeypatch.setattr("solera.training.patience.FIRST", 12)
    monkeypatch.setattr("solera.training.patience.LEAST_STEPS", 1)


@pytest.fixture(scope="session")
def browser():
    """A real Chromium, one for each process of the tests."""
    started = chromium.start()
    yield started
    started.close()


LONG = ("test_readme.py", "test_resume.py", "test_processes.py", "test_faults.py", "test_export.py", "/recipes/")


def pytest_collection_modifyitems(items):
    """Whatever opens a browser carries the marker: `-m browser` runs those, `-m "not browser"` the others.

    Files with tests of many seconds come first, so that no process is left alone with one at the end.
    """
    items.sort(key=lambda item: not any(name in str(item.path) for name in LONG))
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
