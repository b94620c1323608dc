"""Two small students that were really distilled, and a service for each: one from its folder, one from its graph."""

import signal

import pytest

from solera.serving import export
from tests.serving.service import digits_student, rows, rows_student, service


@pytest.fixture(scope="session")
def digits_folder(tmp_path_factory):
    return digits_student().save(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def rows_graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    student = rows_student()
    student.save(folder)
    export(student, folder / "student.onnx", rows())
    return folder / "student.onnx"


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
