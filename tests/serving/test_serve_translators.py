"""A translator that is served: text in, words with their uncertainty out, and a page that colours them."""

import asyncio

import httpx
import pytest
import torch

from solera import ProxyDirichlet, Student
from solera.data import train_bpe
from solera.nn import Translator
from solera.serving import Settings
from solera.serving.translating import make_translating_app
from solera.serving.writers import writer_of
from tests.browser import start
from tests.serving.service import CLIENT, running

TEXT = ["ein Hund läuft", "zwei Männer singen laut", "ein Mann"]


@pytest.fixture(scope="module")
def student():
    torch.manual_seed(0)
    network = Translator(270, width=16, encoder=1, decoder=1, heads=2).eval()
    return Student(network, ProxyDirichlet(), tokenizer=train_bpe(TEXT, 270))


@pytest.fixture(scope="module")
def url(student):
    with running(make_translating_app(student, Settings(max_tokens=20_000, max_rows=50))) as address:
        yield address


def test_it_translates_as_the_student_does(student, url):
    given = {"text": [TEXT[0], ""], "beams": 2, "threshold": 0.0, "measure": "knowledge"}
    said = CLIENT.post(f"{url}/translate", json=given).json()
    expected = student.translate([TEXT[0], ""], beams=2)
    assert [one["text"] for one in said["answers"]] == [one.text for one in expected]
    assert said["answers"][0]["knowledge"] == expected[0].knowledge
    assert [one["accepted"] for one in said["answers"]] == [False, True]
    assert [w["text"] for w in said["answers"][0]["words"]] == [w.text for w in expected[0].words]
    assert CLIENT.get(f"{url}/model").json()["task"] == "translation"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("no JSON", 400, "body"),
        ({"tokens": ["a"]}, 422, "body"),
        ({"text": 3}, 422, "text"),
        ({"text": "a", "beams": 0}, 422, "beams"),
        ({"text": "a", "threshold": "low"}, 422, "threshold"),
        ({"text": "a", "measure": "doubt"}, 422, "measure"),
        ({"text": "wort " * 10_000}, 422, "text"),
        ({"text": "wort " * 30_000}, 413, "text"),
        ({"text": ["wort"] * 51}, 413, "text"),
        ({"text": "x" * 2_000_000}, 413, "text"),
        ({"text": "a", "measure": ["total"]}, 422, "measure"),
    ],
)
def test_bad_requests_are_refused_by_their_field(url, body, status, field):
    answer = CLIENT.post(f"{url}/translate", **({"content": body} if isinstance(body, str) else {"json": body}))
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert answer.json()["reason"]


def test_requests_take_turns_and_nobody_gets_the_answer_of_another(url):
    async def ask():
        async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as client:
            asked = [[text] * count for text, count in zip(TEXT, (20, 1, 2), strict=True)]
            said = await asyncio.gather(*(client.post("/translate", json={"text": t, "beams": 1}) for t in asked))
            return [[one["source"] for one in answer.json()["answers"]] for answer in said], asked

    said, asked = asyncio.run(ask())
    assert said == asked


def test_a_folder_tells_that_it_translates(student, tmp_path):
    found = writer_of(student.save(tmp_path))
    assert found is not None
    assert found.fingerprint == student.fingerprint
    assert writer_of(tmp_path / "nothing") is None


def test_the_page_colours_words(url, tmp_path):
    browser = start()
    try:
        browser.open(url + "/")
        browser.until("return document.querySelectorAll('#colours input').length == 2")
        browser.run("document.getElementById('text').value = arguments[0]", "\n".join(TEXT[:2]))
        browser.driver.find_element("css selector", "#sentence button").click()
        browser.until("return document.querySelectorAll('#said .translated').length == 2")
        colours = "return [...document.querySelectorAll('#said mark')].map(e => e.style.backgroundColor)"
        by_knowledge = browser.run(colours)
        assert by_knowledge
        browser.driver.find_element("css selector", "#colours input[value=total]").click()
        assert browser.run(colours) != by_knowledge
        move = "const s = document.getElementById('most'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
        for value, kept in ((0, "false"), (1000, "true")):
            browser.run(move.replace("s.value", "page.top = 100; s.value"), value)
            assert browser.run("return document.querySelector('#said [data-kept]').dataset.kept") == kept
        assert browser.run("return document.documentElement.scrollWidth") <= 1280
        assert browser.errors() == []
        browser.screenshot(tmp_path / "page.png")
    finally:
        browser.close()
