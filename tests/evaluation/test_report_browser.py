"""The report's page in a real Chromium: charts, switches, colours, printing, phones."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from solera.evaluation.report_html import page
from tests.evaluation.contents import MODELS, hostile, least, made_up, threshold

CONTENTS = {"classification": made_up, "regression": lambda: made_up("regression"), "least": least}


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of a content and waits for its charts."""

    def opened(content: dict, width: int = 1280, dark: bool = False):
        file = tmp_path / "report.html"
        file.write_text(page(content), encoding="utf-8")
        browser.open(file, width, dark=dark)
        browser.until("return document.documentElement.dataset.ready")
        return browser

    return opened


def drawn(browser, chart: str) -> list[dict]:
    """Plotly's own data of a chart: the names, points and colours of its traces."""
    return browser.run(
        "return (document.getElementById(arguments[0]).data || []).map(t => ({name: t.name, x: [...t.x], y: [...t.y],"
        " colour: (t.line || t.marker).color, width: (t.line || {}).width}))",
        chart,
    )


def choose(browser, place: str, title: str, option: str) -> None:
    """Clicks an option, as a person would."""
    for group in browser.driver.find_elements(By.CSS_SELECTOR, f"#{place} fieldset"):
        if group.find_element(By.TAG_NAME, "legend").text == title:
            for label in group.find_elements(By.TAG_NAME, "label"):
                if label.text == option:
                    browser.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", label)
                    return label.click()
    raise AssertionError(f"there is no {option} in {title} of {place}")


def quiet(browser) -> bool:
    """No error in the console, and no request but the page itself."""
    requests = browser.requests()
    return browser.errors() == [] and len(requests) == 1 and requests[0].startswith("file:")


@pytest.mark.parametrize("kind", CONTENTS)
def test_loads_without_network_or_errors_and_fits_a_phone(show, kind):
    browser = show(CONTENTS[kind](), width=360)
    charts = browser.run("return [...document.querySelectorAll('.chart')].map(c => [c.id, (c.data || []).length])")
    assert charts
    assert all(traces for _, traces in charts), charts
    assert browser.run("return document.documentElement.scrollWidth") == 360
    sideways = browser.run("window.scrollTo(200, 0); return window.scrollX")
    assert sideways == 0
    table = browser.driver.find_element(By.CSS_SELECTOR, "#comparison .scroll")
    at = "return arguments[0].querySelector('tbody th').getBoundingClientRect().left"
    before = browser.run(at, table)
    browser.run("arguments[0].scrollLeft = 150", table)
    assert browser.run("return arguments[0].scrollLeft", table) > 0
    assert browser.run(at, table) == before  # the names of the models stay
    assert quiet(browser)


SWITCHES = [
    ("classification", "calibration-controls", "Model", "ensemble", ["figure-reliability"]),
    ("regression", "calibration-controls", "Model", "ensemble", ["figure-coverage", "figure-pit", "figure-truth"]),
    ("classification", "rejection-controls", "Measure", "knowledge", ["rejection"]),
    ("classification", "rejection-controls", "Model", "EnD", ["rejection"]),
    ("classification", "unfamiliar-controls", "Set", "noise", ["roc", "histogram"]),
    ("classification", "unfamiliar-controls", "Measure", "data", ["roc", "histogram"]),
    ("classification", "unfamiliar-controls", "Model", "Hydra", ["roc", "histogram"]),
    ("classification", "scatter-controls", "Model", "Hydra", ["scatter"]),
    ("classification", "scatter-controls", "Measure", "data", ["scatter"]),
]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_each_switch_changes_its_charts(show, kind):
    browser = show(CONTENTS[kind]())
    for own, place, title, option, charts in SWITCHES:
        if own == kind:
            before = {chart: drawn(browser, chart) for chart in charts}
            choose(browser, place, title, option)
            for chart in charts:
                assert drawn(browser, chart) != before[chart], (place, title, option, chart)
    assert quiet(browser)


def test_charts_show_what_was_chosen(show):
    content = made_up()
    browser = show(content)
    choose(browser, "rejection-controls", "Measure", "data")
    choose(browser, "rejection-controls", "Model", "EnD²")
    curves = {trace["name"]: trace for trace in drawn(browser, "rejection")}
    for name in ("ensemble", "EnD²", "Hydra"):
        assert curves[name]["y"] == pytest.approx(content["curves"][name]["rejection"]["data"]["error"])
    assert "EnD" not in curves  # it has no data uncertainty
    assert curves["EnD²"]["width"] > curves["Hydra"]["width"]
    assert curves["oracle"]["y"] == pytest.approx(content["curves"]["EnD²"]["oracle"]["error"])
    choose(browser, "unfamiliar-controls", "Set", "noise")
    choose(browser, "unfamiliar-controls", "Measure", "total")
    choose(browser, "unfamiliar-controls", "Model", "EnD")
    area = content["curves"]["EnD"]["roc"]["noise"]["total"]["auroc"]
    assert f"EnD · AUROC {100 * area:.1f} %" in browser.run(
        "return document.querySelector('#roc').parentElement.innerText"
    )
    shapes = {trace["name"]: trace["y"] for trace in drawn(browser, "histogram")}
    shares = content["curves"]["EnD"]["histogram"]["total"]["sets"]
    assert {name: pytest.approx(y[:-1]) for name, y in shapes.items()} == {
        name: shares[name] for name in ("test", "noise")
    }
    choose(browser, "unfamiliar-controls", "Measure", "knowledge")
    assert "EnD has no knowledge uncertainty" in browser.run("return document.querySelector('#histogram').innerText")
    choose(browser, "unfamiliar-controls", "Measure", "total")
    assert [trace["name"] for trace in drawn(browser, "histogram")] == ["test", "noise"]
    points = [
        y for trace in drawn(browser, "scatter") if trace["name"] in ("test", "letters", "noise") for y in trace["y"]
    ]
    assert sorted(points) == pytest.approx(sorted(content["scatter"]["EnD²"]["knowledge"]["model"]))
    assert quiet(browser)


def test_one_colour_for_each_model_in_all_charts(show):
    browser = show(made_up())
    seen = {name: set() for name in MODELS}
    for chart in ("figure-reliability", "rejection", "roc"):
        for trace in drawn(browser, chart):
            if trace["name"] in seen:
                seen[trace["name"]].add(trace["colour"])
    dots = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('#comparison tbody .model')].map(m =>"
        " [m.textContent, getComputedStyle(m.querySelector('.dot')).backgroundColor]))"
    )
    assert seen == {name: {colour} for name, colour in dots.items()}
    assert len(set(dots.values())) == len(MODELS)


def test_dark_and_light(show):
    ink = "return document.querySelector('#rejection').layout.font.color"
    paper = "return getComputedStyle(document.body).backgroundColor"
    browser = show(made_up(), dark=True)
    dark = browser.run(ink), browser.run(paper)
    browser.driver.find_element(By.ID, "theme").click()
    light = browser.run(ink), browser.run(paper)
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    browser = show(made_up(), dark=False)
    assert (browser.run(ink), browser.run(paper)) == light
    browser.driver.find_element(By.ID, "theme").click()
    assert (browser.run(ink), browser.run(paper)) == dark
    assert quiet(browser)


def test_printing_is_light_and_fits_the_paper(show):
    browser = show(made_up(), dark=True)
    browser.run(
        "addEventListener('beforeprint', () => { const chart = document.querySelector('#rejection');"
        " window.printed = [chart.layout.width, chart.layout.font.color, document.querySelector('details').open]; })"
    )
    dark = browser.run("return document.querySelector('#rejection').layout.font.color")
    browser.driver.execute_cdp_cmd("Page.printToPDF", {})
    width, ink, opened = browser.run("return window.printed")
    assert width < 700  # of a sheet of A4, in pixels
    assert ink != dark
    assert opened
    assert browser.until("return document.querySelector('#rejection').layout.font.color") == dark
    assert not browser.run("return document.querySelector('details').open")
    assert quiet(browser)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_an_example_shows_its_decomposition(show, kind):
    content = CONTENTS[kind]()
    browser = show(content)
    buttons = browser.driver.find_elements(By.CSS_SELECTOR, "#gallery button")
    assert len(buttons) == len(content["examples"])
    buttons[4].click()
    answers = content["examples"][4]["answers"]
    for name in MODELS:
        card = browser.run(
            "return [...document.querySelectorAll('.answer')].find(a => a.dataset.model === arguments[0])", name
        )
        said = answers[name]
        written = float(card.text.split("total ")[1].split()[0])
        assert written == pytest.approx(said["total"], rel=0.006)
        if said["data"] is None:
            assert "not split" in card.text
            continue
        parts = [
            browser.run("return arguments[0].querySelector('.split .' + arguments[1]).offsetWidth", card, part)
            for part in ("data", "knowledge")
        ]
        assert parts[0] / sum(parts) == pytest.approx(said["data"] / said["total"], abs=0.02)
        if said["top"]:
            assert f"{100 * said['top'][0][1]:.1f} %" in card.text
    choose(browser, "examples-controls", "Chosen as", "typical")
    typical = [e for e in content["examples"] if e["why"] == "typical"]
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, "#gallery button")) == len(typical)
    assert quiet(browser)


def test_thresholds_of_the_chosen_model_can_be_copied(show):
    browser = show(made_up())
    choose(browser, "thresholds-controls", "Model", "EnD²")
    choose(browser, "thresholds-controls", "Measure", "knowledge")
    codes = [c for c in browser.driver.find_elements(By.CSS_SELECTOR, ".block[data-measure] code") if c.is_displayed()]
    assert {code.text for code in codes} == {str(threshold("EnD²", "knowledge"))}
    browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    button = codes[0].find_element(By.XPATH, "following-sibling::button")
    browser.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    assert browser.until("return window.copied") == codes[0].text


def test_the_keyboard_is_enough(show):
    browser = show(made_up())
    radio = browser.driver.find_element(By.CSS_SELECTOR, "#rejection-controls input:checked")
    before = drawn(browser, "rejection")
    browser.run("arguments[0].focus()", radio)
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert drawn(browser, "rejection") != before
    second = browser.driver.find_elements(By.CSS_SELECTOR, "#gallery button")[1]
    browser.run("arguments[0].focus()", second)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert second.get_attribute("aria-pressed") == "true"
    unnamed = browser.run(
        "return [...document.querySelectorAll('input, button, [tabindex]')].filter(e => !(e.ariaLabel || e.innerText"
        " || e.labels?.[0]?.innerText || e.offsetParent === null)).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_hostile_names_do_nothing(show):
    browser = show(hostile())
    assert browser.run("return document.querySelectorAll('[onerror]').length") == 0
    for button in browser.driver.find_elements(By.CSS_SELECTOR, "#gallery button")[:2]:
        button.click()
        assert browser.run("return document.querySelectorAll('[onerror]').length") == 0
        assert "<img src=x onerror=alert(1)>" in browser.driver.find_element(By.ID, "example").text
    assert "<img src=x onerror=alert(1)>" in browser.driver.find_element(By.TAG_NAME, "h1").text
    browser.run("document.querySelectorAll('.controls input').forEach(input => input.click())")
    assert browser.run("return document.querySelectorAll('[onerror]').length") == 0
    assert quiet(browser)


def test_reads_without_javascript(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(made_up()), encoding="utf-8")
    try:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.open(file)
        text = browser.driver.find_element(By.TAG_NAME, "body").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "need JavaScript" in text
    assert "Rejecting the uncertain" not in text
    for words in (
        "Do not deploy",
        "What was kept",
        "Speed and size",
        "Provenance",
        str(threshold("Hydra", "knowledge")),
    ):
        assert words in text


def test_a_browser_that_cannot_unpack_says_so(browser, tmp_path):
    file = tmp_path / "report.html"
    text = page(made_up()).replace("<head>", "<head><script>delete window.DecompressionStream</script>", 1)
    file.write_text(text, encoding="utf-8")
    browser.open(file)
    assert browser.driver.find_element(By.ID, "old-browser").is_displayed()
    assert not any(f.is_displayed() for f in browser.driver.find_elements(By.TAG_NAME, "figure"))
    assert quiet(browser)


def test_a_picture_from_elsewhere_is_not_fetched_and_a_link_is_text(show):
    content = made_up()
    content["examples"][0]["shown"] = {"image": "https://example.org/seen.png"}
    content["reference"] = "<a href='https://example.org'>here</a>"
    content["models"][0]["name"] = content["reference"]
    browser = show(content)
    assert browser.run("return [...document.querySelectorAll('img')].every(i => i.src.startsWith('data:'))")
    assert browser.run("return [...document.querySelectorAll('a')].every(a => a.hash)")
    assert browser.run("return document.querySelectorAll('svg a').length") == 0
    assert len(browser.requests()) == 1
