"""The parts of the service by themselves: limits of line and time, unusual students, formats, settings."""

import asyncio
import io
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from solera import Student
from solera.methods import EnD, ProxyDirichlet
from solera.serving import Settings, export
from solera.serving.app import make_app
from solera.serving.counters import Histogram
from solera.serving.encode import answer_type
from solera.serving.npy import array_of
from solera.serving.refused import RefusedError
from solera.serving.schema import _largest
from solera.serving.served import Served, read_graph, read_student
from solera.serving.settings import bytes_of
from tests.serving.test_export import Tagger, TwoInputs


def called(served, settings=Settings()):  # noqa: B008  (frozen)
    return TestClient(make_app(served, settings), base_url="http://localhost")


class Slow(Served):
    """Takes its time."""

    def __call__(self, arrays):
        time.sleep(0.3)
        return super().__call__(arrays)


@pytest.fixture(scope="module")
def slow(rows_graph):
    return Slow(**vars(read_graph(rows_graph)))


def test_late_answers_are_504_and_a_full_line_503(slow):
    row = {"inputs": [[50.0, 25.0, 90.0]]}
    with called(slow, Settings(timeout=0.1, max_batch=1, max_queue=1)) as client:
        answer = client.post("/predict", json=row)
        assert answer.status_code == 504
        assert "not ready within 0.1 s" in answer.json()["reason"]
    with called(slow, Settings(max_batch=1, max_queue=1)) as client:
        statuses = []

        def ask():
            statuses.append(client.post("/predict", json=row))

        askers = [threading.Thread(target=ask) for _ in range(6)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    found = sorted(answer.status_code for answer in statuses)
    assert set(found) == {200, 503}
    refused = next(answer for answer in statuses if answer.status_code == 503)
    assert refused.headers["Retry-After"] == "1"
    assert "try again" in refused.json()["reason"]


def test_a_body_that_does_not_arrive_is_408(rows_graph):

    async def receive_slowly():
        app = make_app(read_graph(rows_graph), Settings(timeout=0.05))
        sent = []
        parts = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive():
            return parts.pop() if parts else await asyncio.sleep(30)

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": headers}
        await app({**scope, "app": app, "scheme": "http", "server": ("x", 80), "root_path": ""}, receive, send)
        return sent

    start, body = asyncio.run(receive_slowly())
    assert start["status"] == 408
    assert (b"connection", b"close") in start["headers"]
    assert b"did not arrive within 0.05 s" in body["body"]


def served_by(student, example, folder):
    return called(read_graph(export(student, folder / "s.onnx", example).path))


def test_a_tagger_answers_for_every_token_and_lengths_are_not_mixed(tmp_path):
    student = Student(Tagger(), EnD(), ["a", "b", "c"]).eval()
    example = torch.randint(20, (4, 6))
    with served_by(student, example, tmp_path) as client:
        for tokens in ([1, 2, 3], [[4, 5], [6.0, 7]]):
            content = client.post("/predict", json={"inputs": tokens, "threshold": 1.05}).json()
            want = student.predict(torch.tensor(tokens).reshape(-1, np.shape(tokens)[-1]).long())
            mean = [row["mean"] for row in content["predictions"]]
            np.testing.assert_allclose(mean, want.mean, rtol=1e-5, atol=1e-6)
            assert [row["accepted"] for row in content["predictions"]] == (want.total <= 1.05).tolist()
            chosen = [["abc"[k] for k in row] for row in want.mean.argmax(-1).tolist()]
            assert [row["label"] for row in content["predictions"]] == chosen
        for bad, reason in [([1.5], "dtype float64"), ([99], "cannot read these inputs"), ([2**64], "dtype")]:
            answer = client.post("/predict", json={"inputs": bad})
            assert answer.status_code == 422
            assert reason in answer.json()["reason"]


def test_a_student_with_two_inputs_takes_them_by_name(tmp_path):
    student = Student(TwoInputs(), EnD(), None).eval()
    example = {"row": torch.randn(4, 4), "kind": torch.randint(5, (4,))}
    want = student.predict(example)
    with served_by(student, example, tmp_path) as client:
        names = {name: tensor.tolist() for name, tensor in example.items()}
        content = client.post("/predict", json={"inputs": names}).json()
        np.testing.assert_allclose([row["mean"] for row in content["predictions"]], want.mean, rtol=1e-5, atol=1e-6)
        assert content["labels"] == ["0", "1", "2"]  # nobody named them
        assert set(content["predictions"][0]) == {"label", "mean", "total"}  # EnD keeps no split
        file = io.BytesIO()
        np.savez_compressed(file, **{name: tensor.numpy() for name, tensor in example.items()})
        header = {"Content-Type": "application/x-npz"}
        packed = client.post("/predict", content=file.getvalue(), headers=header)
        assert packed.json() == content
        for bad, reason in [
            ({"inputs": [[1, 2, 3, 4]]}, "an object with exactly ['row', 'kind']"),
            ({"inputs": {**names, "kind": [1]}}, "different numbers of rows"),
            ({"inputs": {"row": names["row"]}}, "['row', 'kind']"),
            ({"inputs": names, "measure": "knowledge"}, "choose one of total"),
        ]:
            answer = client.post("/predict", json=bad)
            assert answer.status_code == 422
            assert reason in answer.json()["reason"]
        bomb = io.BytesIO()
        np.savez_compressed(bomb, row=np.zeros((10**7, 4), np.float32))
        answer = client.post("/predict", content=bomb.getvalue(), headers=header)
        assert answer.status_code == 413
        assert "unpacks to" in answer.json()["reason"]


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_bytes_that_are_no_array_are_refused_and_nothing_else_happens(noise, cut):
    file = io.BytesIO()
    np.save(file, np.arange(12.0).reshape(3, 4))
    whole = file.getvalue()
    for content in (noise, whole[:cut] + noise, whole[:cut] + noise + whole[cut + len(noise) :]):
        try:
            array = array_of(content, "inputs")
        except RefusedError as refused:
            found = refused.status
        else:
            found = array.dtype.kind
        assert found in (400, 422, *"fiu")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/*;q=0.1", "json"),
        ("application/x-npy", "x-npy"),
        ("application/json;q=0.2, application/x-npz;q=0.9", "x-npz"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "json"),
        ("application/x-npy, application/json", "json"),
    ],
)
def test_the_format_of_an_answer_is_the_best_liked(accept, kind):
    assert answer_type(accept) == f"application/{kind}"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 100), max_size=30))
def test_a_histogram_counts_what_lies_at_or_below_each_edge(values):
    one_by_one, together = Histogram((0.5, 1, 10)), Histogram((0.5, 1, 10))
    for value in values:
        one_by_one.add(value)
    together.add_all(np.array(values))
    assert one_by_one.counts == together.counts
    assert [count for _, count in together.buckets] == [
        sum(value <= edge for value in values) for edge in (0.5, 1, 10, np.inf)
    ]


def test_sizes_are_read_as_people_write_them():
    assert [bytes_of(text) for text in ("16MB", "1 GiB", "512kb", "7")] == [16_000_000, 2**30, 512_000, 7]
    with pytest.raises(ValueError, match="'16 apples' is no size: write bytes such as 16MB"):
        bytes_of("16 apples")


@pytest.mark.parametrize("wrong", [{"max_batch": 0}, {"timeout": -1.0}, {"max_wait_ms": -1.0}, {"port": 70000}])
def test_settings_that_make_no_sense_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(Settings(), **wrong)


def test_a_network_of_ones_own_class_is_served_by_its_graph(tmp_path):
    Student(Tagger(), ProxyDirichlet(), None).save(tmp_path)
    with pytest.raises(ValueError, match=re.escape("then solera.serving.serve(student), or export it")):
        read_student(tmp_path)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_the_schema_admits_every_number_that_stays_finite(kind):
    largest = _largest(np.dtype(kind))
    with np.errstate(over="ignore"):
        assert np.isfinite(np.float64(largest).astype(kind))
        assert np.isinf(np.nextafter(largest, np.inf).astype(kind))
