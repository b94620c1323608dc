"""Two small students that were really distilled, and a service for each: one from its folder, one from its graph."""

import os
import signal

import pytest
from filelock import FileLock

from solera.serving import export
from tests.serving.service import digits_student, rows, rows_student, service


def made_once(tmp_path_factory, name, make):
    """A folder that the first process of the tests which needs it makes, for all of them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            unfinished = folder.with_name(f"{name}-unfinished")
            make(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def digits_folder(tmp_path_factory):
    return made_once(tmp_path_factory, "digits-student", lambda folder: digits_student().save(folder))


@pytest.fixture(scope="session")
def rows_graph(tmp_path_factory):
    def make(folder):
        student = rows_student()
        student.save(folder)
        export(student, folder / "student.onnx", rows())

    return made_once(tmp_path_factory, "rows-student", make) / "student.onnx"


@pytest.fixture(scope="session")
def digits_service(digits_folder):
    with service(digits_folder, "--max-bytes", "200kB") as running:
        yield running
        log = running.stop(signal.SIGINT)  # Ctrl-C
    assert running.process.returncode == 0
    assert not [entry for entry in log if entry["level"] != "info" or entry.get("status", 200) >= 500]


@pytest.fixture(scope="session")
def rows_service(rows_graph):
    with service(rows_graph) as running:
        yield running
