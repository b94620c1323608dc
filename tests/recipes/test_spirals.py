"""The spirals study: its data, and all of it at a tiny scale, stopped and gone on with."""

import re

import pytest
import torch

from solera.recipes import find
from solera.recipes.base import Workspace, settings_of
from solera.recipes.spirals import Spirals, ring, spirals
from solera.recipes.spirals_page import RING

TINY = {"members": 3, "subset": 2, "points": 40, "epochs": 1, "student_epochs": 2, "repeats": 2}


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def test_arms_and_noise_widen_outward():
    x, y = spirals(2000, 0.55, 0, "train")
    assert torch.bincount(y).tolist() == [2000] * 3
    clean, _ = spirals(2000, 1e-9, 0, "train")
    radius, off = clean.norm(dim=1), (x - clean).norm(dim=1)
    inner, outer = radius < radius.median(), radius >= radius.median()
    assert off[outer].mean() > 1.5 * off[inner].mean()
    # along one direction, the gaps between successive windings of the arms grow
    t = torch.arange(0.0, 6.0) / 6
    assert (5 * t**1.5).diff().diff().gt(0).all()


def test_streams_differ_and_repeat():
    first, again, test = (spirals(10, 0.5, 0, name)[0] for name in ("train", "train", "test"))
    assert torch.equal(first, again)
    assert not torch.equal(first, test)
    assert not torch.equal(ring(10, 0, "auxiliary"), ring(10, 0, "test"))


def test_the_ring_is_far_from_the_data_and_even():
    points, (inner, outer) = ring(20_000, 0, "auxiliary"), RING
    radius = points.norm(dim=1)
    assert inner <= radius.min() <= radius.max() <= outer + 1e-4
    assert spirals(1000, 0.55, 0, "train")[0].norm(dim=1).max() < inner - 1
    # even over the area: half the points lie within the radius that halves the area
    assert (radius < ((inner**2 + outer**2) / 2) ** 0.5).float().mean() == pytest.approx(0.5, abs=0.02)


def test_end_to_end_and_nothing_is_done_twice(tmp_path):
    recipe = Spirals(**TINY)
    page = run(tmp_path, recipe)
    made = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")} | {
        p: p.stat().st_mtime_ns for p in (tmp_path / "metrics.json", tmp_path / "versions.json")
    }
    # 1 ensemble, 3 transfer sets, 3 groups × 3 methods × 2 repeats of students
    assert len(made) == 1 + 3 + 18 + 2
    assert run(tmp_path, recipe) == page
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert (tmp_path / "spirals.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"\| 2, ours \| [\d.]+ ± [\d.]+ \| [\d.]+ \|", page)
    assert "| 100, paper | 13.21 | 12.37 | 12.39 | 12.47 | – |" in page
    assert "solera run spirals members=3 subset=2 points=40" in page


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    """Stopped in the middle of the students, the same call ends in the same page as a run nobody stopped."""
    recipe = Spirals(**TINY)
    import solera.recipes.spirals as module

    real, calls = module.distill, []

    def stops_at_the_fifth(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "distill", stops_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", recipe)
    monkeypatch.setattr(module, "distill", real)
    finished = sorted((tmp_path / "stopped" / "students").rglob("*.safetensors"))
    assert len(finished) == 4
    before = [p.stat().st_mtime_ns for p in finished]
    page = run(tmp_path / "stopped", recipe)
    assert [p.stat().st_mtime_ns for p in finished] == before
    assert page == run(tmp_path / "straight", recipe)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"repeats": 0}, "repeats must be positive"), ({"noise": -1.0}, "noise must"), ({"subset": 100}, "lower subset")],
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        Spirals(**settings)


def test_the_command_line_finds_it():
    assert find("spirals") is Spirals
