"""A student of a table with words and gaps: the folder, the graph and the service give the same answers."""

import json

import jsonschema_rs
import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from solera import DistilledClassifier, Student, Training
from solera.serving import Graph, Settings, export
from solera.serving.app import make_app
from solera.serving.served import read_graph, read_student
from tests.training.test_estimators import people


@pytest.fixture(scope="module")
def model():
    x, score = people(120)
    short = Training(epochs=3, lr=1e-2)
    return DistilledClassifier(training=short, hidden=(8,), random_state=0).fit(x, score > np.median(score))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    return export(model.student_, tmp_path_factory.mktemp("table") / "student.onnx", people(120)[0]).path


@pytest.fixture(scope="module")
def client(exported):
    with TestClient(make_app(read_graph(exported), Settings()), base_url="http://localhost") as found:
        yield found


def test_truth_values_are_described_as_they_are_taken(client):
    row = {"age": 40.0, "income": None, "job": "pilot", "married": True, "town": None}
    content = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]
    for married, fine in ((True, True), ("True", True), (None, True), (1, False), ([], False)):
        body = {"inputs": [row | {"married": married}]}
        assert jsonschema_rs.validator_for(schema).is_valid(body) == fine, married
        assert (client.post("/predict", json=body).status_code == 200) == fine, married


def cells(frame: pd.DataFrame) -> list[dict]:
    """As a program that has JSON writes them."""
    return json.loads(frame.to_json(orient="records"))


def test_estimator_folder_graph_and_service_agree(model, exported, client, tmp_path):
    x = people(150)[0][100:]
    want, said = model.predict_proba(x), model.predict_uncertainty(x)
    loaded = Student.load(model.student_.save(tmp_path / "student"))
    np.testing.assert_allclose(loaded.predict(x).mean.numpy(), want, atol=1e-5)
    graph = Graph(exported)
    answers = graph(loaded.encode(x))
    np.testing.assert_allclose(answers["mean"], want, atol=1e-5)
    np.testing.assert_allclose(answers["knowledge"], said.knowledge, atol=1e-5)
    known = json.loads(graph.metadata["preprocessing"])
    assert known["categories"]["job"] == ["cook", "nurse", "pilot"]
    assert known["missing"] == -(2.0**100)
    rows = cells(x)
    for inputs in (rows, [list(row.values()) for row in rows]):
        answer = client.post("/predict", json={"inputs": inputs})
        assert answer.status_code == 200, answer.text
        content = answer.json()
        np.testing.assert_allclose([row["mean"] for row in content["predictions"]], want, atol=1e-5)
        assert [row["label"] for row in content["predictions"]] == [str(label) for label in model.predict(x)]
    assert any(None in row.values() for row in rows)
    facts = client.get("/model").json()
    assert facts["categories"]["married"] == ["False", "True"]
    assert facts["missing"] is True


def test_a_folder_is_served_as_it_is(model, tmp_path):
    x = people(20)[0]
    served = read_student(model.student_.save(tmp_path / "student"))
    with TestClient(make_app(served, Settings()), base_url="http://localhost") as client:
        content = client.post("/predict", json={"inputs": cells(x)}).json()
    np.testing.assert_allclose([row["mean"] for row in content["predictions"]], model.predict_proba(x), atol=1e-5)


def test_unknown_words_are_missing_ones_and_anything_else_is_refused_where_it_stands(client):
    row = {"age": 40, "income": 3.0, "job": "cook", "married": True, "town": "Oslo"}

    def said(**changes):
        return client.post("/predict", json={"inputs": [{**row, **changes}]})

    assert said(job="spy").json()["predictions"] == said(job=None).json()["predictions"]
    assert said(married="True").json() == said().json()
    for changes, field, reason in [
        ({"age": "forty"}, "inputs[0].age", "'forty', not a number: send a number, or null"),
        ({"age": True}, "inputs[0].age", "not a number"),
        ({"job": 2}, "inputs[0].job", "2, none of its words ['cook', 'nurse', 'pilot']: send one, or null"),
        ({"job": ["cook"]}, "inputs[0].job", "none of its words"),
        ({"town": {}}, "inputs[0].town", "none of its words"),
    ]:
        answer = said(**changes)
        assert answer.status_code == 422
        assert answer.json()["field"] == field
        assert reason in answer.json()["reason"]
    for inputs, reason in [
        ([[40, 3.0, "cook", True]], "not a number"),
        ([[40, 3.0, 0, 1, 2]], "inputs[0][2] is 0, none of its words"),
        ([[[40, 3.0, "cook", True, "Oslo"], [1]]], "ragged"),
        ("cook", "not a number"),
    ]:
        answer = client.post("/predict", json={"inputs": inputs})
        assert answer.status_code == 422
        assert reason in answer.json()["reason"]


def test_the_schema_describes_words_and_gaps(client):
    body = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    _, one, named, _ = body["schema"]["properties"]["inputs"]["anyOf"]
    assert named["properties"]["job"]["anyOf"][0] == {"type": "string", "examples": ["cook", "nurse", "pilot"]}
    assert {"type": "null"} in named["properties"]["age"]["anyOf"]
    assert len(one["prefixItems"]) == 5
    assert client.post("/predict", json=body["example"]).status_code == 200


def test_a_student_without_words_and_gaps_takes_none(rows_graph):
    with TestClient(make_app(read_graph(rows_graph), Settings()), base_url="http://localhost") as client:
        for inputs in ([[50.0, None, 90.0]], [[50.0, "high", 90.0]]):
            answer = client.post("/predict", json={"inputs": inputs})
            assert answer.status_code == 422
            assert "not a number" in answer.json()["reason"]
