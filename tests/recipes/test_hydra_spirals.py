"""Hydra's toy study: its points, its verdicts, and all of it at a tiny scale, stopped and gone on with."""

import re

import pytest
import torch

from solera.recipes import find
from solera.recipes.base import Workspace, settings_of
from solera.recipes.hydra_spirals import AUX, DEEP, METHODS, SHORT, SIDE, HydraSpirals, compare, grid, square, verdicts
from solera.recipes.spirals import spirals
from solera.teachers import Ensemble

TINY = {"members": 3, "points": 20, "epochs": 1, "steps": 2, "repeats": 2}


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def test_auxiliary_inputs_fill_the_plotted_square_and_are_not_the_grid():
    points = square(20_000, 0)
    assert points.abs().max() <= SIDE
    torch.testing.assert_close(points.mean(0), torch.zeros(2), rtol=0, atol=0.15)
    assert points.std(0).tolist() == pytest.approx([2 * SIDE / 12**0.5] * 2, rel=0.02)  # of a uniform distribution
    assert torch.equal(points, square(20_000, 0))
    assert spirals(1000, 0.55, 0, "train")[0].abs().max() < SIDE - 1
    assert grid(3).tolist() == [[a, b] for a in (-SIDE, 0, SIDE) for b in (-SIDE, 0, SIDE)]


def test_an_ensemble_agrees_with_itself():
    ensemble = Ensemble([torch.nn.Linear(2, 3) for _ in range(4)])
    x, y = spirals(20, 0.5, 0, "test")
    row = compare(ensemble, {"test": x}, y, {"test": ensemble.predict(x).knowledge})
    assert row["test difference"] == 0
    assert row["test ρ"] == pytest.approx(1)
    assert row["parameters"] == 4 * 9


def test_a_claim_that_fails_is_said_to_fail():
    good = {"accuracy": 0.8, "NLL": 0.5, "parameters": 100.0}
    good |= {f"{where} {key}": v for where in ("test", "grid") for key, v in (("mean", 0.1), ("difference", 0.01))}
    good |= {"test ρ": 0.95, "grid ρ": 0.95}
    proxy = {**good, "test difference": 0.02}
    aux = {**good, "grid difference": 0.001, "grid ρ": 0.99}
    found = {"ensemble": [good], SHORT: 3 * [good], DEEP: 3 * [good], "Proxy": 3 * [proxy]}
    found |= {SHORT + AUX: 3 * [aux], DEEP + AUX: 3 * [aux], "Proxy" + AUX: 3 * [proxy]}
    assert all(line.startswith("- **Held**") for name in (SHORT, DEEP) for line in verdicts(found, name))
    found[SHORT] = [{**good, "test ρ": rho, "test mean": 0.05} for rho in (0.88, 0.89, 0.9)]
    failed = [line for line in verdicts(found, SHORT) if line.startswith("- **Not held**")]
    assert len(failed) == 2
    assert failed[0].endswith("ρ at least 0.9: 0.890 (0.865 to 0.915)")
    assert failed[1].endswith("50 (50 to 50)")
    found[SHORT] = [{**good, "test ρ": rho} for rho in (0.85, 0.91, 0.97)]
    unsure = [line for line in verdicts(found, SHORT) if line.startswith("- **Held by the mean, not surely**")]
    assert len(unsure) == 2  # of ρ, and of what AUX costs of it


def test_end_to_end_and_nothing_is_done_twice(tmp_path):
    recipe = HydraSpirals(**TINY)
    page = run(tmp_path, recipe)
    made = {p: p.stat().st_mtime_ns for p in [*tmp_path.rglob("*.safetensors"), tmp_path / "metrics.json"]}
    # an ensemble, two transfer sets, every method's students with and without auxiliary inputs, and the numbers
    assert len(made) == 1 + 2 + 2 * 2 * len(METHODS) + 1
    assert run(tmp_path, recipe) == page
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert (tmp_path / "hydra-spirals.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(rf"\| {re.escape(DEEP + AUX)} \| [\d.]+ ± [\d.]+ \|", page)
    assert "31,509 (98 %)" in page  # 300 shared, and three heads of 10,403
    assert "solera run hydra-spirals members=3 points=20 epochs=1 steps=2 repeats=2" in page


@pytest.mark.parametrize(
    ("settings", "message"), [({"repeats": 0}, "repeats must be positive"), ({"members": 1}, "take 2 or more")]
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        HydraSpirals(**settings)


def test_the_command_line_finds_it():
    assert find("hydra-spirals") is HydraSpirals
