"""Taggers taken away: a graph for any number of tokens, a service that answers entities, a page that colours them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from solera.data.sequences import padded
from solera.data.words import words_of
from solera.serving import Settings, random_inputs
from solera.serving.app import make_app
from solera.serving.served import read_student
from tests.browser import start
from tests.serving.service import CLIENT, NPY, packed, post
from tests.serving.service import running as started
from tests.words import SENTENCES, TAGS, tagger_student

TEXT = "Angela Merkel visited Paris. Paris!"


@pytest.fixture(scope="module")
def student():
    return tagger_student()


@pytest.fixture(scope="module")
def served(student):
    return read_student(student, threads=1)


@pytest.fixture(scope="module")
def running(served):
    """The service on a free port, in a thread of this process."""
    with started(make_app(served, Settings(max_tokens=2000, max_rows=50))) as url:
        yield SimpleNamespace(url=url)


def test_a_graph_takes_any_number_of_tokens(student, served):
    graph = served.graph
    assert graph.inputs["inputs"][:2] == ("batch", "tokens")
    assert graph.class_names == TAGS
    words = ["Angela", "Merkel", "é", "😀", "visited"]
    for sizes in ([1], [2, 7], [40, 3, 1], [700]):
        rows = [[words[n % 5] for n in range(size)] for size in sizes]
        inputs, mask = padded(student.model.words(rows), 0)
        said, expected = graph(inputs), student.predict(inputs)
        assert said["mean"].shape == (len(sizes), max(sizes), len(TAGS))
        for name in ("mean", "total", "data", "knowledge"):
            there = getattr(expected, name)[mask].float().numpy()
            np.testing.assert_allclose(said[name][mask.numpy()], there, atol=1e-5, rtol=1e-4)


def test_text_and_tokens_get_the_students_entities(running, student):
    expected = [entity.entry() for entity in student.entities(TEXT)]
    assert {(e["text"], e["type"]) for e in expected} >= {("Angela Merkel", "PER"), ("Paris", "LOC")}
    said = post(running, {"text": TEXT}, path="/entities").json()
    assert said["types"] == ["PER", "LOC"]
    (answer,) = said["answers"]
    assert answer["text"] == TEXT
    for got, want in zip(answer["entities"], expected, strict=True):
        assert got == pytest.approx(want, abs=1e-4)
        assert TEXT[got["start"] : got["end"]] == got["text"]
    tokens = [word.text for word in words_of(TEXT)]
    both = post(running, {"tokens": [tokens, ["Paris"]]}, path="/entities").json()["answers"]
    again = [(e["type"], round(e["confidence"], 4)) for e in both[0]["entities"]]
    assert again == [(e["type"], round(e["confidence"], 4)) for e in expected]
    assert len(both) == 2


def test_a_long_text_loses_nothing_at_the_seams(running, student):
    text = " ".join(["Angela Merkel visited Paris ."] * 300)  # 1,500 words: several windows
    found = post(running, {"text": text}, path="/entities").json()["answers"][0]["entities"]
    expected = student.entities(text)
    assert [(e["start"], e["end"], e["type"]) for e in found] == [(e.start, e.end, e.type) for e in expected]
    assert [e["confidence"] for e in found] == pytest.approx([e.confidence for e in expected], abs=1e-4)
    assert len(found) >= 600


def test_an_empty_text_has_no_entities(running):
    assert post(running, {"text": ["", " \n", "\u0301"]}, path="/entities").json()["answers"][:2] == [
        {"text": "", "entities": []},
        {"text": " \n", "entities": []},
    ]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, "body"),
        ({}, 422, "body"),
        ({"text": "a", "tokens": ["a"]}, 422, "body"),
        ({"text": 3}, 422, "text"),
        ({"text": []}, 422, "text"),
        ({"tokens": "a"}, 422, "tokens"),
        ({"tokens": ["a", ""]}, 422, "tokens[1]"),
        ({"tokens": [["a"], []]}, 422, "tokens[1]"),
        ({"tokens": [["a"], [3]]}, 422, "tokens[1][0]"),
    ],
)
def test_what_is_no_text_is_refused_in_words(running, body, status, field):
    answer = post(running, body, path="/entities")
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert '"text": "Angela Merkel visited Paris."' in answer.json()["reason"]
    assert post(running, b"x", kind="text/plain", path="/entities").status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        {"text": "word " * 2001},
        {"text": "x" * 200_000},
        {"text": ["word"] * 51},
        {"tokens": ["word"] * 2001},
        {"tokens": [["word"]] * 51},
        {"tokens": [["word"] * 50] * 50},
    ],
)
def test_more_texts_and_tokens_than_one_request_may_have_are_413(running, body):
    answer = post(running, body, path="/entities")
    assert answer.status_code == 413, answer.text
    assert "at a time" in answer.json()["reason"]
    assert post(running, {"text": TEXT}, path="/entities").status_code == 200


def test_tokens_of_arrays_are_counted_too(running):
    answer = post(running, packed(np.zeros((1, 2001, 4), np.int32)), NPY)
    assert (answer.status_code, "tokens" in answer.json()["reason"]) == (413, True)


def test_it_describes_itself(running):
    facts = CLIENT.get(running.url + "/model").json()
    assert (facts["task"], facts["types"], facts["labels"]) == ("tagging", ["PER", "LOC"], TAGS)
    described = CLIENT.get(running.url + "/openapi.json").json()["paths"]["/entities"]["post"]
    assert "knowledge" in str(described["responses"]["200"])


@pytest.mark.browser
def test_the_page_colours_entities_and_masks_below_the_threshold(running, student, tmp_path):
    browser = start()
    try:
        browser.open(running.url + "/", 1280, 900)
        browser.until("return !document.getElementById('sentence').hidden")
        text = f"😀 {TEXT}"  # JavaScript counts the emoji as two
        browser.run("document.getElementById('text').value = arguments[0]", text)
        browser.driver.find_element("css selector", "#sentence button").click()
        browser.until("return document.querySelectorAll('#marked mark').length")
        shown = browser.run("return [...document.querySelectorAll('#marked mark')].map(e => e.dataset.text)")
        assert shown == [entity.text for entity in student.entities(text)]
        parts = "[...document.getElementById('marked').childNodes].map(e => e.dataset ? e.dataset.text : e.textContent)"
        assert browser.run(f"return {parts}.join('')") == text
        colours = "return [...document.querySelectorAll('#marked mark')].map(e => e.style.backgroundColor)"
        by_confidence = browser.run(colours)
        browser.driver.find_element("css selector", "#colours input[value=knowledge]").click()
        assert browser.run(colours) != by_confidence
        move = "const e = document.getElementById('least'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))"
        for value, kept in ((0, len(shown)), (1000, 0)):
            browser.run(move, value)
            masked = browser.run("return document.querySelectorAll('#marked mark.masked').length")
            assert len(shown) - masked == kept or value == 1000
        assert browser.run("return document.querySelectorAll('#marked mark.masked').length") >= 1
        browser.run(move, 500)
        assert browser.run("return document.documentElement.scrollWidth") <= 1280
        assert browser.errors() == []
        browser.screenshot(tmp_path / "page.png")
        browser.open(running.url + "/", 390, 900, dark=True)
        browser.until("return !document.getElementById('sentence').hidden")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.close()


def test_made_up_words_are_such_as_it_takes(student):
    inputs = random_inputs(student, 30)
    assert inputs.shape[0] == 30
    assert inputs.dtype == torch.int32
    assert SENTENCES
