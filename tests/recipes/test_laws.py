"""The study of laws: its paired intervals, its verdicts, its samples, and a tiny run, stopped and gone on with."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from solera.core.seeds import generator
from solera.distributions import Dirichlet, DirichletMixture, LogisticNormal
from solera.recipes import find, laws, names
from solera.recipes.base import Workspace, settings_of
from solera.recipes.laws import LAWS, SETS, Laws, annotated
from solera.recipes.laws_page import answer, claims, paired, samples

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
TINY = {"members": 1, "repeats": 3, "steps": 1, "rows": 60, "trees": 3}


def made_up(gaps, repeats=6):
    """Rows in which each law is better than EnD² by so much in everything, about levels that differ between repeats."""
    random = np.random.default_rng(0)
    level, found = random.normal(0, 5, repeats), {"ensemble": [{"OOD AUROC": 0.9}] * repeats}
    for law, gap in zip(LAWS, gaps, strict=True):
        values = level + gap + random.normal(0, 0.01, repeats)
        found[law] = [
            {"log-likelihood": v, "accuracy": v, "NLL": -v, "OOD AUROC": v, "knowledge kept": 1.0} for v in values
        ]
    return found


def test_differences_are_paired():
    found = made_up((0.0, 0.5, 0.0))
    plain, mixture, _ = LAWS
    low, middle, high = paired(found, mixture, plain, "NLL")
    one, other = ([row["NLL"] for row in found[law]] for law in (mixture, plain))
    wanted = stats.ttest_rel(other, one).confidence_interval(0.95)
    assert (low, high) == pytest.approx((wanted.low, wanted.high))
    assert middle == pytest.approx(0.5, abs=0.02)


def test_a_law_that_loses_loses_on_the_page():
    found = {"annotators": made_up((0.0, 0.5, -0.5))}
    mixture, normal = (line.split(" | ")[1:] for line in claims(found).splitlines()[2:])
    assert all(cell.startswith("**Held** ") for cell in mixture)
    assert all(cell.startswith("**Not held** ") for cell in normal)
    nats, _, points, _ = (float(cell.split()[1]) for cell in mixture)
    assert (nats, points) == pytest.approx((0.5, 50), rel=0.03)
    every = "the members' log-likelihood, NLL, accuracy, telling unfamiliar inputs"
    assert answer(found) == (
        f"On annotators, beside EnD²'s Dirichlet, the mixture of Dirichlets is surely better in {every}, surely worse "
        f"in nothing; the logistic-normal is surely better in nothing, surely worse in {every}."
    )
    for row in found["annotators"]["ensemble"]:
        row["OOD AUROC"] = 0.55
    assert "telling" not in answer(found), "an ensemble without skill has none to keep"


def test_samples_have_the_mean_of_their_law():
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    some = [
        Dirichlet.from_logits(logits),
        DirichletMixture.from_output(torch.tensor([[2.0, 0.0, 1.0, 0.3, -1.0, 2.0, 0.0, -0.3]]), 2),
        LogisticNormal(logits, torch.ones(1, 3), torch.randn(1, 2, 3, generator=generator(0)), 4096),
    ]
    for law in some:
        drawn = samples(law, generator(0), 40_000)
        assert float(law.mean[0, 0]) == pytest.approx(np.mean(drawn), abs=0.02)


def test_the_annotators_differ_in_the_middle_alone():
    x, (first, second) = annotated(4000, generator(0))
    differ = (first != second).float()
    middle = x.norm(dim=1) < 1
    assert differ[middle].mean() > 0.5
    assert differ[x[:, 1] > 2].mean() < 0.3


@pytest.mark.data
@needs_data
def test_end_to_end_stopped_and_gone_on_with(tmp_path, monkeypatch):
    whole = laws.load_npz
    monkeypatch.setattr(laws, "load_npz", lambda *where: {key: rows[::5] for key, rows in whole(*where).items()})
    recipe = Laws(data=str(DATA), **TINY)
    real, calls = Laws._repeat, []

    def stops_at_the_second(self, *arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Laws, "_repeat", stops_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        recipe.run(Workspace(tmp_path, settings_of(recipe)))
    finished = (tmp_path / "annotators-0.json").read_bytes()
    page = recipe.run(Workspace(tmp_path, settings_of(recipe)))
    assert (tmp_path / "annotators-0.json").read_bytes() == finished
    assert len(calls) == 2 + 2 * 3 - 1
    rows = json.loads((tmp_path / "satellite-1.json").read_text())
    assert set(rows) == {"ensemble", *LAWS}
    assert rows["ensemble"]["knowledge kept"] == pytest.approx(1)
    assert all(np.isfinite(value) for row in rows.values() for value in row.values())
    assert (tmp_path / "laws.png").read_bytes().startswith(b"\x89PNG")
    assert "solera run laws members=1 repeats=3 steps=1 rows=60 trees=3 --data ../shared/data" in page
    assert all(name in page.lower() for name in SETS)


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/tabular/satellite.npz: pass .* --data"):
        Laws(data="nowhere").run(Workspace(tmp_path, {}))


def test_two_repeats_have_no_interval():
    with pytest.raises(ValueError, match="repeats must be at least 3 to have a paired interval, got 2"):
        Laws(repeats=2)


def test_the_command_line_finds_it():
    assert find("laws") is laws.Laws
    assert "laws" in names()
    assert "laws-page" not in names()
