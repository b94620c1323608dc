"""The tabular study: its verdicts, its split, and all of it at a tiny scale, stopped and gone on with."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from solera import Batches, Training
from solera.recipes import tabular
from solera.recipes.base import Workspace, settings_of
from solera.recipes.tabular import Tabular, gaps, latency, split
from solera.recipes.tabular_page import LABELS, PAIRS, PLAIN, claims
from solera.teachers.labels import Labels

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
TINY = {"sets": ("satellite",), "folds": 2, "trees": 5, "rows": 3000, "steps": 20, "repeats": 2, "hidden": (16,)}


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def test_a_claim_holds_surely_by_the_mean_or_not():
    """NLL is better when it is lower; a slack of a point makes a small loss of accuracy hold."""
    gap = {"accuracy": [-0.008, -0.003, 0.002], "NLL": [-0.03, -0.02, -0.01]}
    one = {"gaps": {f"{a} − {b}": gap for a, b in PAIRS}, "speed": {"EnD, in sample": [2.0, 3.0]}}
    rows = {row.split(" | ")[0][2:]: row.split(" | ")[1] for row in claims({"set": one}).splitlines()}
    assert rows["EnD: at most a point less accurate than the ensemble"].startswith("**Held** -0.3 (-0.8 to +0.2)")
    assert rows["EnD: more accurate than one LightGBM on all rows"].startswith("**Not held** -0.3")
    assert rows["EnD: lower NLL than one LightGBM on all rows"].startswith("**Held** +0.020 (+0.010 to +0.030)")
    gap["accuracy"] = [-0.001, 0.003, 0.007]
    assert "| **Held by the mean, not surely** +0.3 (-0.1 to +0.7) |" in claims({"set": one})


def test_gaps_are_of_means_over_repeats():
    draws = {"ensemble": [0.5, 0.7], "EnD, in sample 0": [0.6, 0.9], "EnD, in sample 1": [0.8, 0.7]}
    others = {name for pair in PAIRS for name in pair} - {"ensemble", "EnD, in sample"}
    draws |= {f"{name} {r}": [0.0, 0.0] for name in others for r in (0, 1)}
    result = SimpleNamespace(
        rows={name: {"accuracy": np.mean(d), "NLL": np.mean(d)} for name, d in draws.items()},
        draws={name: {"accuracy": np.array(d), "NLL": np.array(d)} for name, d in draws.items()},
    )
    low, value, high = gaps(result, {"ensemble": None}, 2)["EnD, in sample − ensemble"]["accuracy"]
    assert value == pytest.approx(0.15)
    assert (low, high) == pytest.approx((0.1 + 0.025 * 0.1, 0.2 - 0.025 * 0.1))


def test_settings_are_chosen_on_training_rows_alone():
    x, y = torch.arange(100.0)[:, None], torch.arange(100) % 3
    whole = (x, y, torch.full((7, 1), -1.0), torch.zeros(7, dtype=torch.long))
    assert split(whole, 0.0, 0) is whole
    a, y_a, b, y_b = split(whole, 0.2, 0)
    assert len(b) == 20
    assert torch.equal(torch.cat([a, b]).sort(0).values, x)
    assert torch.equal(torch.cat([y_a, y_b]), torch.cat([a, b]).squeeze(1).long() % 3)


def test_latency_measures_one_row_at_a_time():
    seen = []
    found = latency({"model": lambda rows: seen.append(rows.shape)}, torch.zeros(3, 4), calls=10)  # type: ignore[arg-type]
    assert set(seen) == {(1, 4)}
    assert 0 < found["model"][0] <= found["model"][1] < 100


def test_networks_and_students_have_weight_decay(tmp_path, monkeypatch):
    batches, seen = Batches(torch.randn(40, 3), torch.arange(40) % 2), []

    def stop(*arguments, **options):
        seen.extend(argument for argument in arguments if isinstance(argument, Training))
        raise KeyboardInterrupt

    for name, teacher in (("fit", None), ("distill", Labels(classes=2))):
        monkeypatch.setattr(tabular, name, stop)
        with pytest.raises(KeyboardInterrupt):
            Tabular(**TINY)._network(name, 0, batches, tmp_path, teacher)
    assert [(training.weight_decay, training.lr) for training in seen] == [(1e-3, 4e-3)] * 2


@pytest.mark.parametrize(("settings", "message"), [({"repeats": 0}, "repeats must be"), ({"held": 1.5}, "held must")])
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        Tabular(**settings)


@pytest.mark.data
@needs_data
def test_end_to_end_stopped_and_gone_on_with(tmp_path, monkeypatch):
    """Stopped among the students, the same call trains the same trees again and goes on with the students."""
    pytest.importorskip("lightgbm")
    import solera.recipes.tabular as module

    recipe, real, calls = Tabular(data=str(DATA), **TINY), module.distill, []

    def stops_at_the_third(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "distill", stops_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, recipe)
    networks = sorted((tmp_path / "satellite" / "networks").rglob("*.safetensors"))
    assert len(networks) == 4  # two on labels, two students
    before = [file.read_bytes() for file in networks]
    page = run(tmp_path, recipe)
    assert [file.read_bytes() for file in networks] == before
    assert run(tmp_path, recipe) == page
    assert (tmp_path / "tabular.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "satellite.json").read_text())
    assert {known: len(rows) for known, rows in found["scores"].items() if "," in known or known == LABELS} == {
        LABELS: 2,
        PLAIN: 2,
        **{f"{name}, {kind}": 2 for name in ("EnD", "Proxy") for kind in ("in sample", "out of fold")},
    }
    assert re.search(r"\| ensemble \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| 1.000 \|", page)
    assert "solera run tabular sets=satellite folds=2 trees=5 hidden=16 steps=20 rows=3000" in page
