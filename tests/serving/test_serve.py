"""The service as a process of its own, asked over HTTP: right answers, plain refusals, nobody lost or mixed up."""

import asyncio
import io
import json
import re
import signal
import socket
import time

import httpx
import numpy as np
import pytest
import torch

from solera import Student
from solera.serving import Settings, serve
from tests.serving.service import CLIENT, FEATURES, JSON, LABELS, NPY, NPZ, digits, packed, post, rows, service
from tests.test_docs import blocks

SPLIT = ("mean", "total", "data", "knowledge")


@pytest.fixture(scope="module")
def images():
    return digits()[0].numpy()


@pytest.fixture(scope="module")
def digits_student(digits_folder):
    return Student.load(digits_folder)


def wanted(student, inputs):
    said = student.predict(torch.as_tensor(inputs))
    return {name: getattr(said, name).numpy() for name in SPLIT}


def agree(said, want):
    for name in SPLIT:
        np.testing.assert_allclose(said[name], want[name], rtol=1e-5, atol=1e-5)


def columns(answer):
    """The rows of a JSON answer, by output."""
    assert answer.status_code == 200, answer.text
    return {name: np.array([row[name] for row in answer.json()["predictions"]]) for name in SPLIT}


def test_json_answers_are_the_students_own(digits_service, digits_student, images):
    want = wanted(digits_student, images[:70])  # more than are computed together
    answer = post(digits_service, {"inputs": images[:70].tolist()})
    agree(columns(answer), want)
    content = answer.json()
    assert content["labels"] == LABELS
    assert content["fingerprint"] == digits_student.fingerprint
    assert [row["label"] for row in content["predictions"]] == [LABELS[i] for i in want["mean"].argmax(-1)]
    assert "accepted" not in content["predictions"][0]
    alone = columns(post(digits_service, {"inputs": images[3].tolist()}))
    agree(alone, {name: value[3:4] for name, value in want.items()})


@pytest.mark.parametrize("accept", [NPY, NPZ, f"text/html, {NPZ};q=0.5, {JSON};q=0.1"])
@pytest.mark.parametrize("dtype", ["float32", "float64", ">f4"])
def test_numpy_bytes_in_and_out(digits_service, digits_student, images, accept, dtype):
    body = packed(np.asfortranarray(images[:5].astype(dtype)))
    answer = post(digits_service, body, NPY, accept, path="/predict?threshold=0.5&measure=data")
    assert answer.status_code == 200, answer.text
    said = np.load(io.BytesIO(answer.content), allow_pickle=False)
    want = wanted(digits_student, images[:5])
    agree(said, want)
    assert said["accepted"].tolist() == (want["data"] <= 0.5).tolist()


def test_rows_of_named_columns_go_in_any_order(rows_service, rows_graph):
    student = Student.load(rows_graph.parent)
    table = rows()[:6]
    want = wanted(student, table)
    named = [dict(reversed(list(zip(FEATURES, map(float, row), strict=True)))) for row in table]
    answer = post(rows_service, {"inputs": named})
    agree(columns(answer), want)
    assert answer.json()["labels"] == ["progression"]
    assert "label" not in answer.json()["predictions"][0]
    agree(columns(post(rows_service, {"inputs": named[2]})), {name: value[2:3] for name, value in want.items()})
    agree(columns(post(rows_service, {"inputs": table.astype(int).tolist()})), wanted(student, np.trunc(table)))


@pytest.mark.parametrize("where", ["query", "body"])
@pytest.mark.parametrize("measure", ["total", "data", "knowledge", None])
def test_accepts_what_is_at_most_the_threshold(digits_service, images, where, measure):
    first = columns(post(digits_service, {"inputs": images[:20].tolist()}))[measure or "total"]
    threshold = float(np.sort(first)[9])
    rule = {"threshold": threshold} | ({} if measure is None else {"measure": measure})
    if where == "body":
        answer = post(digits_service, {"inputs": images[:20].tolist(), **rule})
    else:
        query = httpx.QueryParams({k: repr(v) if k == "threshold" else v for k, v in rule.items()})
        answer = post(digits_service, {"inputs": images[:20].tolist()}, path=f"/predict?{query}")
    content = answer.json()
    assert [row["accepted"] for row in content["predictions"]] == (first <= threshold).tolist()
    assert sum(row["accepted"] for row in content["predictions"]) == 10
    assert (content["threshold"], content["measure"]) == (threshold, measure or "total")


async def _at_once(url, questions, limit=100):
    """Answers to all questions, sent as fast as 100 connections can."""
    limits = httpx.Limits(max_connections=limit)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120, verify=False) as client:

        async def one(content):
            return await client.post("/predict", json={"inputs": content})

        return await asyncio.gather(*(one(content) for content in questions), return_exceptions=True)


def test_nobody_gets_the_answer_of_another(rows_service, rows_graph):
    random = np.random.default_rng(0)
    sizes = random.choice([1, 1, 1, 2, 3, 7, 20, 70], 250)
    low, high = rows().min(0), rows().max(0)
    questions = [random.uniform(low, high, (size, 3)) for size in sizes]
    before = counted(rows_service)
    answers = asyncio.run(_at_once(rows_service.url, [q.tolist() for q in questions]))
    student = Student.load(rows_graph.parent)
    want = wanted(student, np.concatenate(questions).astype(np.float32))
    ends = np.cumsum(sizes)
    for answer, size, end in zip(answers, sizes, ends, strict=True):
        agree(columns(answer), {name: value[end - size : end] for name, value in want.items()})
    after = counted(rows_service)
    assert after["solera_rows_total"] - before["solera_rows_total"] == sizes.sum()
    runs = after["solera_batch_rows_count"] - before["solera_batch_rows_count"]
    assert runs < len(sizes)  # they were joined
    assert after["solera_batch_rows_sum"] - before["solera_batch_rows_sum"] == sizes.sum()
    assert after['solera_batch_rows_bucket{le="64"}'] == after["solera_batch_rows_count"]  # none larger
    assert after["solera_queue_rows"] == 0


def counted(running):
    """The samples of /metrics, each line of which must be one of Prometheus' text format."""
    answer = CLIENT.get(running.url + "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        if not re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line):
            found = re.fullmatch(r'([a-z_]+(?:\{[a-z]+="[^"\\]*"(?:,[a-z]+="[^"\\]*")*\})?) (\S+)', line)
            assert found, line
            samples[found[1]] = float(found[2])
    return samples


def test_metrics_add_up(digits_service, images):
    before = counted(digits_service)
    said = columns(post(digits_service, {"inputs": images[:30].tolist(), "threshold": 1.0}))
    CLIENT.get(digits_service.url + "/a/path/that/is/not/there")
    after = counted(digits_service)

    def more(name):
        return after[name] - before.get(name, 0)

    assert more('solera_requests_total{method="POST",path="/predict",status="200"}') == 1
    assert more('solera_requests_total{method="GET",path="other",status="404"}') == 1
    assert more("solera_rows_total") == 30
    assert more('solera_decisions_total{decision="accepted"}') == (said["total"] <= 1).sum()
    for measure in ("total", "data", "knowledge"):
        sums = more(f'solera_uncertainty_sum{{measure="{measure}"}}')
        np.testing.assert_allclose(sums, said[measure].sum(), rtol=1e-5)
        edges = [
            name for name in after if name.startswith("solera_uncertainty_bucket") and f'measure="{measure}"' in name
        ]
        for name in edges:
            edge = float(name.split('le="')[1].split('"')[0].replace("+Inf", "inf"))
            assert more(name) == (said[measure] <= edge).sum()


def test_health_and_model_say_what_is_served(rows_service, rows_graph):
    student = Student.load(rows_graph.parent)
    health = CLIENT.get(rows_service.url + "/health").json()
    assert health["ready"] is True
    assert health["fingerprint"] == student.fingerprint
    assert health["versions"]["onnxruntime"]
    model = CLIENT.get(rows_service.url + "/model").json()
    assert model["features"] == FEATURES
    assert model["units"]["age"] == "years"
    assert (model["task"], model["uncertainty"], model["labels"]) == ("regression", "variance", ["progression"])


def test_thresholds_of_the_card_are_known(digits_service, digits_student):
    assert CLIENT.get(digits_service.url + "/model").json()["thresholds"] == digits_student.notes.thresholds


def test_the_log_is_one_json_line_a_request_without_what_was_asked(digits_service):
    before = len(digits_service.lines)

    def asked():
        """Lines of predictions: that of an earlier question about the model may still be on its way."""
        return [line for line in digits_service.lines[before:] if json.loads(line)["path"].startswith("/predict")]

    post(digits_service, {"inputs": [[[0.123456] * 8] * 8]})
    post(digits_service, {"inputs": ["a secret"]}, path="/predict?threshold=0.654321")
    while len(lines := asked()) < 2:
        time.sleep(0.01)
    assert [json.loads(line)["status"] for line in lines] == [200, 422]
    assert [json.loads(line)["rows"] for line in lines] == [1, 0]
    assert not any(word in line for line in lines for word in ("123456", "secret", "654321"))


def _begun(running, body):
    """A connection on which the first half of a request was sent."""
    address = httpx.URL(running.url)
    line = socket.create_connection((address.host, address.port))
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    line.sendall(head.encode() + body[: len(body) // 2])
    return line


def test_what_was_accepted_is_answered_before_it_ends(rows_graph):
    body = json.dumps({"inputs": rows()[:40].tolist()}).encode()
    with service(rows_graph, "--timeout", "60") as running:
        line = _begun(running, body)
        while counted(running)["solera_open_requests"] < 2:  # this one, and the one that asks
            time.sleep(0.01)

        async def end_in_the_middle():
            questions = [[row] for row in rows()[:300].tolist()]
            asking = asyncio.create_task(_at_once(running.url, questions, 20))
            while sum('"/predict"' in text for text in running.lines) < 50:
                await asyncio.sleep(0.01)
            running.process.send_signal(signal.SIGTERM)
            while socket.socket().connect_ex(line.getpeername()) == 0:  # until it takes no more
                await asyncio.sleep(0.01)
            line.sendall(body[len(body) // 2 :])
            return await asking

        answers = asyncio.run(end_in_the_middle())
        said = b"".join(iter(lambda: line.recv(65536), b""))
        assert said.startswith(b"HTTP/1.1 200 ")
        assert len(json.loads(said.split(b"\r\n\r\n", 1)[1])["predictions"]) == 40
        running.process.wait(timeout=30)
        log = running.stop()
    assert running.process.returncode == 0
    assert log[-1]["event"] == "stopped"
    heard = [answer for answer in answers if isinstance(answer, httpx.Response)]
    done = [entry for entry in log if entry.get("path") == "/predict"]
    assert {entry["status"] for entry in done} == {200}
    assert len(heard) + 1 == len(done)  # whatever it took up was answered, and the answer arrived
    want = wanted(Student.load(rows_graph.parent), rows())
    for number, answer in enumerate(answers):
        if isinstance(answer, httpx.Response):
            agree(columns(answer), {name: value[number : number + 1] for name, value in want.items()})


def test_a_taken_port_is_refused(rows_service, rows_graph):
    with pytest.raises(OSError, match=r"cannot listen at 127.0.0.1:.*choose another --host or --port"):
        serve(rows_graph, Settings(port=httpx.URL(rows_service.url).port))


def test_a_graph_of_another_maker_is_refused(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    axes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in ("inputs", "mean")]
    graph = helper.make_graph([helper.make_node("Relu", ["inputs"], ["mean"])], "other", axes[:1], axes[1:])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "o.onnx")
    with pytest.raises(ValueError, match=r"is no graph of a student \(it carries no checksum\): solera"):
        serve(tmp_path / "o.onnx", Settings(port=0))


def test_it_is_asked_as_the_documentation_says(digits_service, capsys):
    ((_, code),) = blocks("serve.md")
    exec(compile(code.replace("http://127.0.0.1:8000", digits_service.url), "serve.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(100, 8) ")
