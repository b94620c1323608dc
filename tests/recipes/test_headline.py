"""The recipe `headline` on a small problem: its sets, its intervals, its page, and a run that goes on."""

import numpy as np
import pytest
import torch

from solera.recipes import headline, problems
from solera.recipes.base import Workspace, settings_of
from solera.recipes.headline import Headline
from solera.recipes.headline_page import CALIBRATED, RIVALS, better, compared, cost, gap, judged, less_sure, recovered
from tests.recipes.test_many_classes import DATA, needs_data


def study(single, ensemble, student, kept=1.0, draws=((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)), calibrated=None):
    """Made up: NLLs, accuracies of 0.9 / 0.95 / 0.95, and how resampling moves the NLL."""
    numbers = zip(("single", "ensemble", "student"), (single, ensemble, student), (0.9, 0.95, 0.95), draws, strict=True)
    rows, drawn = {}, {}
    for name, nll, accuracy, moved in numbers:
        rows[name] = {"NLL": nll, "accuracy": accuracy, "OOD far total": 0.8, "OOD far knowledge": accuracy}
        drawn[name] = {"NLL": [nll + by for by in moved], "accuracy": [accuracy, accuracy]}
    alone = single if calibrated is None else calibrated
    rows[CALIBRATED] = rows["single"] | {"NLL": alone}
    drawn[CALIBRATED] = drawn["single"] | {"NLL": [alone, alone]}
    return {"rows": rows, "draws": drawn, "kept": {"total on test": kept, "knowledge on test": kept}}


def test_a_gap_is_paired_and_a_mean_over_the_studies():
    first = study(0.5, 0.4, 0.42, draws=((0.1, -0.1), (0.0, 0.0), (0.1, -0.1)))  # both move alike: no width
    second = study(0.7, 0.4, 0.42, draws=((0.1, -0.1), (0.0, 0.0), (-0.1, 0.1)))
    assert gap([first], "student", "single", "NLL") == pytest.approx((-0.08,) * 3)
    low, value, high = gap([first, second], "student", "single", "NLL")
    assert value == pytest.approx((-0.08 - 0.28) / 2)
    assert (low, high) == pytest.approx((value - 0.095, value + 0.095))


def test_the_share_of_the_gain_has_an_interval_in_which_the_gain_moves_too():
    moved = study(0.5, 0.4, 0.42, draws=((0.1, -0.05), (0.0, 0.0), (0.0, 0.0)))
    low, value, high = recovered([moved])
    shares = [(0.6 - 0.42) / (0.6 - 0.4), (0.45 - 0.42) / (0.45 - 0.4)]
    assert value == pytest.approx(0.8)
    assert (low, high) == pytest.approx(np.percentile(shares, [2.5, 97.5]))


def test_bold_is_surely_better_than_one_member_as_it_is_and_calibrated():
    assert compared([study(0.5, 0.4, 0.42)], "NLL") == "0.500 (0.500) / 0.400 / **0.420**"
    assert compared([study(0.5, 0.4, 0.42, calibrated=0.41)], "NLL") == "0.500 (0.410) / 0.400 / 0.420"
    assert compared([study(0.5, 0.4, 0.42)], "accuracy") == "90.0 / 95.0 / **95.0**"
    found = {"over": [study(0.5, 0.4, 0.42)], "not": [study(0.5, 0.4, 0.42, calibrated=0.41)]}
    assert better(found, RIVALS) == ["over"]
    assert better(found, RIVALS[:1]) == ["over", "not"]


def test_the_claims_count_problems():
    found = {"good": [study(0.5, 0.4, 0.39)], "close": [study(0.5, 0.4, 0.42, kept=2.0)], "bad": [study(0.5, 0.4, 0.6)]}
    lines = judged(found)
    assert "**2 of 3** (good, close)" in lines[0]  # as accurate, and a lower NLL
    assert "**2 of 3** (good, close)" in lines[1]
    assert "**1 of 3** (good)" in lines[2]
    assert "**1 of 2** (close)" in lines[3]
    assert "**2 of 3** (good, bad)" in lines[4]
    assert "**3 of 3**" in lines[5]


def test_no_share_is_told_of_a_gain_that_is_not_sure():
    for unsure in (
        study(0.4, 0.41, 0.42),
        study(0.5, 0.5, 0.42),
        study(0.5, 0.4, 0.42, draws=((-0.2, 0.2), *2 * [(0, 0)])),
    ):
        assert recovered([unsure]) is None
    assert "**0 of 1**" in judged({"worse than both": [study(0.4, 0.41, 0.42)]})[3]


def test_the_cost_is_a_share_of_the_ensembles():
    def taking(student):
        return {"rows": {"student": {"µs/example": student}, "ensemble": {"µs/example": 10.0}}}

    assert cost([taking(2.0), taking(2.5), taking(30.0)]) == "1/4.0"
    assert cost([taking(14.0)]) == "1.4"


def test_a_student_less_sure_than_an_over_confident_ensemble_is_told():
    assert "(rightly)" in less_sure({"rightly": [study(0.5, 0.4, 0.3, kept=2.0)], "kept": [study(0.5, 0.4, 0.3)]})
    assert less_sure({"wrongly": [study(0.5, 0.4, 0.45, kept=2.0)]}) == ""


def toy(data):
    """Three clouds, and one elsewhere."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    x = torch.randn(240, 2, generator=draw) + 3 * torch.stack([(y == 1).float(), (y == 2).float()], 1)
    teach = problems.networks(3, 5, problems.wide)
    return problems.Problem(x[:120], y[:120], (x[120:], y[120:]), {"far": x[:60] + 20}, teach, None, x[:40])


def test_it_is_made_once_and_goes_on(tmp_path, monkeypatch, short_rounds):
    for module in (headline, problems):
        monkeypatch.setitem(module.PROBLEMS, "toy", toy)
        monkeypatch.setitem(module.FILES, "toy", [])
    recipe = Headline(sets=("toy",), studies=2, resamples=10, data=str(tmp_path))
    page = recipe.run(Workspace(tmp_path / "run", settings_of(recipe)))
    assert "| toy (" in page
    assert (tmp_path / "run" / "headline.png").stat().st_size > 10_000
    monkeypatch.setattr(headline, "evaluate", None)  # nothing is measured again
    assert recipe.run(Workspace(tmp_path / "run", settings_of(recipe))) == page


def test_what_is_held_out_is_not_learned_from():
    problem = toy("")
    held = problem.held_out()
    assert (len(held.x), len(held.test[0])) == (96, 24)
    seen = {tuple(row) for row in held.x.tolist()}
    assert not seen & {tuple(row) for row in held.test[0].tolist()}


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_every_problem_has_its_examples(name):
    problem = problems.PROBLEMS[name](str(DATA))
    assert len(problem.x) == len(problem.y)
    assert len(problem.test[0]) == len(problem.test[1]) > 100
    for part in (problem.x, problem.test[0], *problem.unfamiliar.values()):
        assert part.shape[1:] == problem.x.shape[1:]
        assert part.isfinite().all()
    if not problem.y.is_floating_point():
        assert np.unique(problem.y).tolist() == list(range(problem.classes)) == np.unique(problem.test[1]).tolist()
