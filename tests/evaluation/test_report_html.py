"""The report's page as a text: numbers, tables, names, size."""

import copy
import json
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.evaluation.report_html import (
    column,
    digits_for,
    embedded,
    judged,
    mark_best,
    number,
    page,
    share,
    size,
    times,
)
from tests.evaluation.contents import MODELS, hostile, least, made_up, threshold


class Elements(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.text += data


# numbers and cells


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e5, 1e5), st.integers(0, 6), st.booleans())
def test_a_number_says_what_it_is(value, digits, signed):
    text = number(value, digits, signed).replace("−", "-").replace(",", "")
    assert float(text) == pytest.approx(value, abs=0.5001 * 10**-digits)
    assert not text.startswith("-") or float(text) < 0


def test_numbers_for_people():
    assert number(None, 2) == "–"
    assert number(-0.0001, 2, signed=True) == "0.00"
    assert number(-1234.5, 1) == "−1,234.5"
    assert number(0.25, 1, signed=True) == "+0.2"
    assert share(0.123) == "12.3"
    assert share(0.0001) == "0.0100"
    assert [size(x) for x in (None, 0, 999, 52_000, 1.5e9)] == ["–", "0 bytes", "999 bytes", "52 kB", "1.5 GB"]
    assert times({"p50": 0.5, "throughput": 20_000.0}, 5.0) == {
        "p50": "0.500",
        "throughput": "20,000",
        "faster": "10.0×",
    }
    assert times(None, 5.0) == {}


def test_a_column_has_as_many_digits_as_its_intervals_deserve():
    narrow = [{"value": 0.98, "low": 0.979, "high": 0.981}, None]
    wide = [{"value": 0.98, "low": 0.95, "high": 0.99}, {"value": None, "low": None, "high": None}]
    assert column(narrow, "%", digits_for(narrow, "%"))[0] == {
        "value": 0.98,
        "text": "98.00",
        "interval": "97.90 to 98.10",
    }
    cells = column(wide, "%", digits_for(wide, "%"))
    assert cells[0] is not None
    assert cells[0]["text"] == "98.0"
    assert cells[1] is None
    small = [{"value": 0.0585, "low": None, "high": None}, {"value": 0.0587, "low": None, "high": None}]
    assert [c["text"] for c in column(small, "", digits_for(small, "")) if c] == ["0.0585", "0.0587"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.sampled_from([-1, 0, 1]))
def test_the_best_are_marked_and_no_others(values, better):
    cells = column([{"value": v} for v in values], "", 2)
    mark_best(cells, better)
    marked = [v for v, cell in zip(values, cells, strict=True) if cell and cell.get("best")]
    if better == 0 or len({f"{v:.2f}" for v in values}) == 1:
        assert not marked
    else:
        extreme = max(values) if better == 1 else min(values)
        assert extreme in marked
        assert all(abs(v - extreme) <= 0.0101 for v in marked)


def test_a_difference_is_sure_only_if_its_interval_leaves_zero_out():
    up, down, across = ({"value": x, "low": x - 1, "high": x + 1} for x in (2.0, -2.0, 0.5))
    assert [judged(v, 1) for v in (up, down, across)] == ["better", "worse", ""]
    assert [judged(v, -1) for v in (up, down, across)] == ["worse", "better", ""]
    assert judged(up, 0) == judged(None, 1) == judged({"value": 1.0, "low": None, "high": None}, 1) == ""


# the text


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda s: st.lists(s, max_size=3)))
def test_data_survive_a_script_element(value):
    text = embedded({"value": value})
    assert json.loads(text) == {"value": value}
    assert not set("<>&\u2028\u2029") & set(text)


def test_tables_are_in_the_text():
    content = made_up()
    found = Elements(page(content))
    for name in MODELS:
        assert name in found.text
    for words in ("Do not deploy", "calibration", "What was kept", "ρ knowledge", "no threshold reaches it", "520 kB"):
        assert words in found.text
    for about in content["metrics"].values():
        assert about["help"] in found.text
    accuracy = content["models"][0]["metrics"]["accuracy"]
    assert f"{100 * accuracy['value']:.1f}" in found.text
    assert f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}" in found.text
    assert str(threshold("Hydra", "knowledge")) in found.text
    loaded = [
        a for tag, a in found.tags if tag in ("script", "link", "img", "iframe") and (a.get("src") or a.get("href"))
    ]
    assert loaded == [{"rel": "icon", "href": "data:,"}]


def test_hostile_names_are_text():
    found = Elements(page(hostile()))
    assert "<img src=x onerror=alert(1)>" in found.text
    assert not [tag for tag, attributes in found.tags if tag == "img" or "onerror" in attributes]


def test_content_is_not_changed():
    content = made_up()
    before = copy.deepcopy(content)
    page(content)
    assert content == before


def test_a_large_report_stays_small():
    """Points and examples are bounded, so this is what 10,000 examples and three students come to."""
    content = made_up(points=1500, examples=42)
    assert len(page(content).encode()) < 3_000_000


@pytest.mark.parametrize("package", ["jinja2", "plotly"])
def test_missing_packages_are_named_with_the_remedy(monkeypatch, package):
    from solera.evaluation.report_html import plotly

    plotly.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install 'solera\[report\]'"):
        page(least())
    plotly.cache_clear()
