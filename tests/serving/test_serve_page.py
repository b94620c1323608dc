"""The page at /, as a person uses it, in a real Chromium."""

from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from solera import Student
from solera.serving import Settings
from solera.serving.app import make_app
from solera.serving.served import read_graph
from tests.browser import start
from tests.serving.service import HOSTILE, digits, rows, running

NUMBERS = "return Object.fromEntries([...document.querySelectorAll('.key span:not(.note):not(.dot)')].map(e => "
NUMBERS += "[e.firstChild.nextSibling.textContent.trim(), Number(e.querySelector('b').textContent)]))"
MOVE = "const e = document.getElementById('slider'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))"
VERDICT = "return document.getElementById('verdict').textContent"
ANSWERED = "return !document.getElementById('said').hidden"
LOADED = "return document.querySelector('#measures input') !== null"


@pytest.fixture(scope="module")
def browser():
    running = start()
    yield running
    running.close()


def nothing_from_elsewhere(browser, url):
    assert browser.errors() == []
    asked = browser.requests()
    assert asked
    assert all(address.startswith(url) for address in asked), asked


def picture(path, scale=1, rgb=False):
    """A digit as a PNG file, and what the student should make of it."""
    grey = (digits()[0][10, 0].numpy() * 255).astype(np.uint8)
    large = Image.fromarray(np.kron(grey, np.ones((scale, scale), np.uint8)))
    (large.convert("RGB") if rgb else large).save(path)
    return torch.tensor(grey / 255, dtype=torch.float32).reshape(1, 1, 8, 8)


def bars(browser):
    script = "return [...document.querySelectorAll('#mean .bar')].map(e => [e.querySelector('.name').textContent, "
    return browser.run(script + "parseFloat(e.querySelector('.value').textContent)])")


@pytest.mark.parametrize(("width", "scale", "dark"), [(1280, 1, False), (390, 16, True)])
def test_an_image_is_uploaded_seen_and_judged(browser, digits_service, digits_folder, tmp_path, width, scale, dark):
    browser.open(digits_service.url + "/", width, 900, dark)
    browser.until(LOADED)
    pixels = picture(tmp_path / "digit.png", scale, rgb=scale > 1)
    browser.driver.find_element("id", "file").send_keys(str(tmp_path / "digit.png"))
    browser.until(ANSWERED)
    student = Student.load(digits_folder)
    said = student.predict(pixels)
    shown = dict(bars(browser))
    assert shown.keys() == set(student.class_names)
    for name, value in zip(student.class_names, said.mean[0].tolist(), strict=True):
        assert shown[name] == pytest.approx(100 * value, abs=0.51)
    numbers = browser.run(NUMBERS)
    for name in ("total", "data", "knowledge"):
        assert numbers[name] == pytest.approx(float(getattr(said, name)), rel=1e-3)
    widths = "return [...document.querySelectorAll('.stack div')].map(e => parseFloat(e.style.width))"
    data, knowledge = browser.run(widths)
    assert knowledge / data == pytest.approx(float(said.knowledge / said.data), rel=1e-3)

    known = next(iter(student.notes.thresholds.values()))
    assert float(browser.run("return document.getElementById('threshold').value")) == pytest.approx(known, rel=1e-4)
    assert browser.run(VERDICT) == ("Accept." if float(said.knowledge) <= known else "Reject.")
    browser.run(MOVE, 0)
    assert browser.run(VERDICT) == "Reject."
    browser.run(MOVE, 1000)
    assert browser.run(VERDICT) == "Accept."
    browser.driver.find_element("css selector", "#measures input[value=total]").click()
    browser.run(MOVE, 0)
    assert browser.run(VERDICT) == "Reject."
    assert browser.run("return document.documentElement.scrollWidth") <= width  # nothing sticks out
    assert browser.run("return document.title") == "Try the student"
    assert browser.run("return document.querySelectorAll('main img').length") == 0
    assert HOSTILE in shown
    nothing_from_elsewhere(browser, digits_service.url)


def test_a_file_that_is_no_image_is_refused_in_words(browser, digits_service, tmp_path):
    (tmp_path / "words.png").write_text("no picture")
    browser.open(digits_service.url + "/")
    browser.until(LOADED)
    browser.driver.find_element("id", "file").send_keys(str(tmp_path / "words.png"))
    browser.until("return !document.getElementById('problem').hidden")
    assert "words.png is no image" in browser.run("return document.getElementById('problem').textContent")


def test_a_row_is_filled_in_or_pasted(browser, rows_service, rows_graph):
    browser.open(rows_service.url + "/")
    browser.until(LOADED)
    student, row = Student.load(rows_graph.parent), rows()[5].tolist()
    said = student.predict(torch.tensor([row]))
    fields = browser.driver.find_elements("css selector", "#fields input")
    labels = browser.run("return [...document.querySelectorAll('#fields label')].map(e => e.textContent)")
    assert labels == ["age in years", "body mass index in kg/m²", "blood pressure in mmHg"]
    for field, value in zip(fields, row, strict=True):
        field.clear()
        field.send_keys(repr(value))
    browser.driver.find_element("css selector", "#row button").click()
    browser.until(ANSWERED)
    mean, spread = float(said.mean), 1.645 * float(said.total) ** 0.5
    assert float(browser.run("return document.querySelector('.big').textContent")) == pytest.approx(mean, rel=1e-3)
    ends = browser.run("return [...document.querySelectorAll('.ends span')].map(e => e.textContent)")
    assert float(ends[0]) == pytest.approx(mean - spread, rel=1e-3)
    assert float(ends[2]) == pytest.approx(mean + spread, rel=1e-3)
    assert browser.run(NUMBERS)["total"] == pytest.approx(float(said.total), rel=1e-3)
    browser.run(MOVE, 0)
    assert browser.run(VERDICT) == "Reject."

    browser.run("document.getElementById('other').open = true")
    browser.driver.find_element("id", "numbers").send_keys("30, 20; 80")
    browser.driver.find_element("css selector", "#paste button").click()
    other = float(student.predict(torch.tensor([[30.0, 20.0, 80.0]])).mean)
    browser.until(f"return Math.abs(Number(document.querySelector('.big').textContent) / {other} - 1) < 1e-3")
    browser.driver.find_element("id", "numbers").send_keys(", 7")
    browser.driver.find_element("css selector", "#paste button").click()
    browser.until("return !document.getElementById('problem').hidden")
    assert "There are 4 numbers, the student takes 3" in browser.run(
        "return document.getElementById('problem').textContent"
    )
    nothing_from_elsewhere(browser, rows_service.url)


def test_the_api_page_works_without_a_network(browser, rows_service):
    browser.open(rows_service.url + "/docs", 390)
    browser.until("return document.querySelectorAll('.call').length === 4")
    text = browser.run("return document.body.textContent")
    for words in ("/predict", "/metrics", "application/x-npy", "Retry-After", "blood pressure"):
        assert words in text
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    nothing_from_elsewhere(browser, rows_service.url)


def test_the_pages_allow_no_script_from_elsewhere(rows_service):
    for path in ("/", "/docs"):
        policy = httpx.get(rows_service.url + path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


HOSTILE_NAMES = (
    HOSTILE,
    "<a href='javascript:alert(1)'>x</a>",
    "\u202e</script><script>document.title='owned'</script>",
)


def test_the_pages_stay_inert_whatever_the_model_and_its_columns_are_called(browser, rows_graph):
    served = replace(
        read_graph(rows_graph, 1),
        features=HOSTILE_NAMES,
        units=dict.fromkeys(HOSTILE_NAMES, HOSTILE),
        class_names=(HOSTILE,),
        method=HOSTILE,
        fingerprint=HOSTILE,
        thresholds={HOSTILE: 0.5},
    )
    with running(make_app(served, Settings())) as url:
        for page, loaded in (("/", LOADED), ("/docs", "return document.querySelectorAll('.call').length === 4")):
            browser.open(url + page)
            browser.until(loaded)
            if page == "/":
                browser.driver.find_element("css selector", "#row button").click()
                browser.until(ANSWERED)
            assert "owned" not in browser.run("return document.title")
            assert browser.run("return document.querySelectorAll('img[src=x], a[href^=javascript]').length") == 0
            assert HOSTILE in browser.run("return document.body.textContent")
            assert browser.run(
                "return document.scripts.length === document.head.querySelectorAll('script[src]').length"
            )
