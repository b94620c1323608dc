"""The recipe `unfamiliar` on a small problem: its Dirichlets, its gaps, its page, and a run that goes on."""

import pytest
import torch

from solera.metrics import rank_correlation
from solera.recipes import find, problems, unfamiliar
from solera.recipes.base import Workspace, settings_of
from solera.recipes.unfamiliar import FITTED, HEADS, PLAIN, SHOWN, STEPS, Unfamiliar, answer, fitted, gap
from solera.teachers import Ensemble
from tests.recipes.test_headline import toy


def study(ensemble, law, plain, shown=0.7, heads=0.8):
    scores = {"ensemble": ensemble, FITTED: law, PLAIN: plain, SHOWN: shown, HEADS: heads}
    return {model: {"AUROC, knowledge": score} for model, score in scores.items()}


def test_the_steps_add_up_to_the_whole_gap():
    studies = [study(0.80, 0.77, 0.70), study(0.82, 0.78, 0.72), study(0.81, 0.79, 0.74)]
    law, learning, *_ = (gap(studies, step) for step in STEPS)
    assert law[1] + learning[1] == pytest.approx((0.70 + 0.72 + 0.74 - 0.80 - 0.82 - 0.81) / 3)
    assert law[0] < law[1] < law[2]
    said = answer("letter", studies)
    assert "On letter" in said
    assert "is 9.0 points below its ensemble's: -3.0 from the Dirichlets" in said
    assert "-6.0 from how it learns them" in said
    assert (
        "changes by -2.0 (not surely); a head for each member in the law's place, a Hydra student, is 1.0 points below"
        in said
    )


def test_the_fitted_dirichlets_have_the_members_mean_and_rank():
    members = torch.randn(5, 40, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
    ensemble = Ensemble([lambda rows, p=p: p[rows[:, 0].long()].log() for p in members])
    rows = torch.arange(40.0)[:, None]
    law = fitted(ensemble, rows)
    torch.testing.assert_close(law.mean, members.mean(0).double(), rtol=1e-5, atol=1e-6)
    assert rank_correlation(ensemble.predict(rows).knowledge, law.knowledge) > 0.9


def test_it_is_made_once_and_goes_on(tmp_path, monkeypatch, short_rounds):
    rows = toy("").x
    elsewhere = torch.cat([rows, rows[:30] + 20]), torch.cat([torch.zeros(len(rows)), torch.full((30,), 3)]).long()
    monkeypatch.setattr(unfamiliar.tabular, "load", lambda data, name: (*elsewhere, *elsewhere))
    for name in unfamiliar.SETS:
        monkeypatch.setitem(problems.PROBLEMS, name, toy)
    monkeypatch.setattr(unfamiliar, "require_files", lambda *_: None)
    recipe, asked, real = Unfamiliar(studies=1), [], unfamiliar.distilled

    def stops_once(problem, ensemble, seed, place, **given):
        asked.append((place.name, given))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(problem, ensemble, seed, place, **given)

    monkeypatch.setattr(unfamiliar, "distilled", stops_once)
    with pytest.raises(KeyboardInterrupt):
        recipe.run(Workspace(tmp_path, settings_of(recipe)))
    first = (tmp_path / "satellite-0" / PLAIN / "student" / "config.json").stat().st_mtime_ns
    page = recipe.run(Workspace(tmp_path, settings_of(recipe)))
    assert (tmp_path / "satellite-0" / PLAIN / "student" / "config.json").stat().st_mtime_ns == first
    shown = [given["auxiliary"] for name, given in asked if name == SHOWN]
    assert all(len(some) == 30 for some in shown)  # the unfamiliar rows alone
    assert (tmp_path / "unfamiliar.png").read_bytes().startswith(b"\x89PNG")
    for text in (FITTED, SHOWN, HEADS, "solera run unfamiliar studies=1 --data ../shared/data", *STEPS):
        assert text in page


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/tabular/letter.npz: pass .* --data"):
        Unfamiliar(data="nowhere").run(Workspace(tmp_path, {}))


def test_the_command_line_finds_it():
    assert find("unfamiliar") is Unfamiliar
