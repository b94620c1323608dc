"""The benchmark harness: a ratio that got worse than recorded is noticed, noise is not, and the page is the record."""

import time
from datetime import date

import pytest

from benchmarks import __main__ as harness
from benchmarks import ratios, record
from benchmarks.ratios import Ratio, compare, declare
from benchmarks.timing import Samples


@pytest.fixture(autouse=True)
def _own_files(tmp_path, monkeypatch):
    """Tests neither read nor write what was recorded."""
    monkeypatch.setattr(record, "RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr(record, "PAGE", tmp_path / "benchmarks.md")
    ratios.take()


def run(value, *flags, monkeypatch, **goal):
    monkeypatch.setattr(harness, "available", lambda names: {"some": lambda: declare("a ÷ b", value, **goal)})
    harness.main(list(flags))


def test_worse_than_recorded_by_more_than_the_noise_ends_with_an_error(monkeypatch):
    run(1.0, "--record", monkeypatch=monkeypatch)
    run(1.09, monkeypatch=monkeypatch)  # twice 5 % of noise
    run(0.5, monkeypatch=monkeypatch)
    with pytest.raises(SystemExit, match=r"worse than recorded: a ÷ b 1\.11"):
        run(1.11, monkeypatch=monkeypatch)


def test_a_speed_is_worse_where_it_is_less(monkeypatch):
    run(1.0, "--record", at_least=0.9, monkeypatch=monkeypatch)
    run(2.0, at_least=0.9, monkeypatch=monkeypatch)
    with pytest.raises(SystemExit, match="worse than recorded"):
        run(0.89, at_least=0.9, monkeypatch=monkeypatch)


def test_noisy_rounds_widen_what_is_allowed():
    quiet, noisy = Ratio("r", 1.2, 0.05), Ratio("r", 1.2, 0.3)
    assert quiet.worse_than(Ratio("r", 1.0, 0.05))
    assert not noisy.worse_than(Ratio("r", 1.0, 0.05))


def test_compare_divides_the_times_and_at_least_the_speeds():
    def long():
        until = time.process_time() + 0.03
        while time.process_time() < until:
            pass

    def short():
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass

    slower, faster = (
        compare("time", long, short, at_most=4, rounds=3),
        compare("speed", short, long, at_least=2, rounds=3),
    )
    assert slower.value == pytest.approx(3, rel=0.2)
    assert faster.value == pytest.approx(3, rel=0.2)
    assert slower.reached
    assert faster.reached
    assert [one.name for one in ratios.take()] == ["time", "speed"]


def test_the_ratio_is_the_median_over_the_rounds_and_the_noise_its_middle_half():
    samples = Samples(["ours", "peer"])
    samples["ours"], samples["peer"] = [1.0, 2.0, 3.0, 40.0, 5.0], [1.0] * 5
    samples.wall |= {"ours": [2.0] * 5, "peer": [1.0] * 5}
    found = ratios.compare_samples("r", samples, "ours", "peer", at_most=2.0)
    assert (found.value, found.wall, found.reached) == (3.0, 2.0, False)
    assert found.noise > 0.5


def test_the_record_comes_back_as_it_was_written(tmp_path):
    known = {"losses": {"a": Ratio("a", 1.5, 0.07, at_most=2.0, wall=1.25, ours=0.5, peer=0.25)}}
    record.write(known, tmp_path / "r.json")
    assert record.read(tmp_path / "r.json") == known
    assert "| a | 1.5 | 1.25 | 7 | ≤ 2 | yes |" in record.page(tmp_path / "r.json")


def test_recording_one_benchmark_keeps_the_others(monkeypatch):
    record.write({"other": {"x": Ratio("x", 1.0, 0.05, day="2026-01-02", where="another machine")}})
    run(1.0, "--record", monkeypatch=monkeypatch)
    assert set(record.read()) == {"other", "some"}
    assert "a ÷ b" in record.PAGE.read_text()
    assert "## other\n\nRecorded on 2026-01-02: another machine." in record.PAGE.read_text()
    assert f"## some\n\nRecorded on {date.today().isoformat()}: {ratios.machine()}." in record.PAGE.read_text()


def test_an_unknown_benchmark_or_option_is_named():
    with pytest.raises(SystemExit, match=r"no benchmark called nothing: choose from .*losses"):
        harness.main(["nothing"])
    with pytest.raises(SystemExit, match="there is no option --fast"):
        harness.main(["--fast"])


def test_the_committed_page_shows_the_committed_record(monkeypatch):
    monkeypatch.undo()
    assert record.PAGE.read_text() == record.page(), "run python -m benchmarks --page"


def test_the_page_says_why_a_goal_was_not_reached(monkeypatch):
    monkeypatch.setattr(
        record, "WHY", [("some", "a ÷ c", "another"), ("some", "a", "it cannot be"), ("some", "a", "x")]
    )
    run(2.0, "--record", at_most=2.5, monkeypatch=monkeypatch)
    assert "Why not" not in record.PAGE.read_text()
    run(2.0, "--record", at_most=1.5, monkeypatch=monkeypatch)
    assert "\n- Why not, a: it cannot be.\n" in record.PAGE.read_text()
    assert "too late" not in record.PAGE.read_text()


def test_every_goal_that_was_not_reached_has_a_reason(monkeypatch):
    monkeypatch.undo()
    every = record.read()
    missed = [(group, one.name) for group, some in every.items() for one in some.values() if one.reached is False]
    assert [where for where in missed if record.why(*where) is None] == []
