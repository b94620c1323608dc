"""Active learning: its paired differences, its verdicts, and all of it at a tiny scale, stopped and gone on with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from solera.recipes import committee, find
from solera.recipes.base import Workspace, settings_of
from solera.recipes.committee import STRATEGIES, STUDENTS, Committee, paired, verdicts

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
TINY: dict[str, Any] = {"members": 2, "start": 10, "batch": 5, "rounds": 2, "repeats": 3, "epochs": 1}


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def made_up(levels, seed=0):
    """Curves of these mean errors, with a level of their own in every repeat."""
    random = np.random.default_rng(seed)
    repeats = random.normal(0, 5, (6, 1))
    noise = {name: random.normal(0, 0.01, (6, 4)) for name in levels}
    return {
        name: [[{"rows": 0, "RMSE": v} for v in curve] for curve in 20 + level + repeats + noise[name]]
        for name, level in levels.items()
    }


def test_differences_are_paired():
    """Against scipy's paired t-test: the level of a split, much larger than the difference, drops out."""
    curves = made_up({"random": 0.0, "committee": -0.5})
    low, gap, high = paired(curves, "RMSE", "committee", "random")
    one, other = ([np.mean([r["RMSE"] for r in c[1:]]) for c in curves[name]] for name in ("committee", "random"))
    expected = stats.ttest_rel(one, other)
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()))
    assert gap == pytest.approx(-0.5, abs=0.02)
    assert high - low < 0.1


def test_members_have_weight_decay(monkeypatch):
    seen = []

    def stop(make, data, members, training):
        seen.append(training)
        raise KeyboardInterrupt

    monkeypatch.setattr(committee, "train_ensemble", stop)
    with pytest.raises(KeyboardInterrupt):
        Committee(**TINY)._committee(torch.randn(30, 3), torch.randn(30), torch.arange(10), 0)
    assert [training.weight_decay for training in seen] == [1.0]


def test_a_claim_that_fails_is_said_to_fail():
    times = {"committee": [10.0, 100.0], **{name: [1.0, 10.0] for name in STUDENTS}}
    good = {"random": 0.0, "committee": -1.0, "Normal-Wishart": -1.0, "Hydra": -1.0}
    assert all(line.startswith("- **Held**") for line in verdicts(Committee(), made_up(good), times))
    poor = {**good, "Hydra": 1.5}  # 2.5 of 19 worse than the committee, worse than chance, and slow
    lines = verdicts(Committee(), made_up(poor), {**times, "Hydra": [1.0, 30.0]})
    failed = [line for line in lines if line.startswith("- **Not held**")]
    assert len(failed) == 3
    assert all("Hydra" in line for line in failed)


@pytest.mark.data
@needs_data
def test_end_to_end_stopped_and_gone_on_with(tmp_path, monkeypatch):
    """Every strategy starts from the same rows and the same committee; a stopped run ends as one nobody stopped."""
    monkeypatch.setattr("solera.recipes.committee.MANY", 500)
    recipe = Committee(data=str(DATA), student_epochs=1, **TINY)
    real, calls = Committee._curve, []

    def stops_at_the_fourth(self, *arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Committee, "_curve", stops_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, recipe)
    monkeypatch.setattr(Committee, "_curve", real)
    finished = {p: p.read_bytes() for p in tmp_path.glob("0-*.json")}
    assert len(finished) == 3
    page = run(tmp_path, recipe)
    assert {p: p.read_bytes() for p in finished} == finished
    assert run(tmp_path, recipe) == page
    curves = {name: json.loads((tmp_path / f"0-{name}.json").read_text()) for name in STRATEGIES}
    assert [r["rows"] for r in curves["Hydra"]] == [10, 15, 20]
    assert len({curve[0]["RMSE"] for curve in curves.values()}) == 1
    assert len({curve[-1]["RMSE"] for curve in curves.values()}) > 1
    assert all(-1 <= r["ρ"] <= 1 for name in STUDENTS for r in curves[name][:-1])
    assert (tmp_path / "committee.png").read_bytes().startswith(b"\x89PNG")
    assert "solera run committee members=2 start=10 batch=5 rounds=2 repeats=3 epochs=1" in page


@pytest.mark.data
@needs_data
def test_more_rows_than_there_are(tmp_path):
    with pytest.raises(ValueError, match="yacht has 277 rows, too few to label 1020: lower start"):
        run(tmp_path, Committee(data=str(DATA), rounds=100))


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/regression/yacht.npz: pass .* --data"):
        run(tmp_path, Committee(data="nowhere"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"batch": 0}, "batch must be positive"), ({"repeats": 2}, "at least 3"), ({"name": "moon"}, "choose among")],
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        Committee(**settings)


def test_the_command_line_finds_it():
    assert find("committee") is Committee
