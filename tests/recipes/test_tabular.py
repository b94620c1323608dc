"""The tabular study: its verdicts, its split, and all of it at a tiny scale, stopped and gone on with."""

import json
import re
from pathlib import Path

import pytest
import torch

from solera import Batches, Training
from solera.recipes import tabular
from solera.recipes.base import Workspace, settings_of
from solera.recipes.tabular import Tabular, latency, split
from solera.recipes.tabular_page import LABELS, beats
from solera.teachers.labels import Labels

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
TINY = {"sets": ("satellite",), "folds": 2, "trees": 5, "rows": 3000, "steps": 20, "repeats": 2, "hidden": (16,)}


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def table(**accuracies):
    """A set on which models have these accuracies, each in two repeats."""
    return {"scores": {known: [{"accuracy": a - 0.01}, {"accuracy": a + 0.01}] for known, a in accuracies.items()}}


def test_a_claim_holds_only_if_it_holds_on_every_set():
    found = {"one": table(student=0.9, refit=0.8), "two": table(student=0.7, refit=0.75)}
    text = beats(found, "better", "accuracy", "student", "refit")
    assert text == "- **Not held**: better: one 90.0 and 80.0, two 70.0 and 75.0"
    assert beats(found, "near", "accuracy", "student", "refit", slack=5.5).startswith("- **Held**")


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
        **{f"{name}, {kind}": 2 for name in ("EnD", "Proxy") for kind in ("in sample", "out of fold")},
    }
    assert re.search(r"\| ensemble \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| 1.000 \|", page)
    assert "solera run tabular sets=satellite folds=2 trees=5 hidden=16 steps=20 rows=3000" in page
