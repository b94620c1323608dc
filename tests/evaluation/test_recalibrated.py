"""The calibrated single member: fitted on one half, applied to the other."""

import numpy as np
import pytest
import torch

from solera import Ensemble
from solera.calibration import fit_temperature
from solera.distributions import Categorical, Dirichlet, Gaussian, Mixture, NormalWishart
from solera.evaluation import Evaluation, compare, evaluate
from solera.evaluation.recalibrated import SPREADS, best_spread, half_of
from solera.tasks import Classification, Regression
from tests.evaluation.made_up import class_answers, evaluated
from tests.helpers import small_batches, small_ensemble

N, K = 1200, 5


@pytest.fixture(scope="module")
def logits():
    random = torch.Generator().manual_seed(0)
    true = 1.5 * torch.randn(N, K, generator=random)
    labels = torch.multinomial(true.softmax(1), 1, generator=random).squeeze(1)
    return 3.0 * true, labels  # three times too sure


def test_the_temperature_of_each_half_is_the_other_halfs(logits):
    sharp, labels = logits
    half = half_of(torch.arange(N)).numpy()
    assert 0.45 < half.mean() < 0.55
    sharp = sharp * torch.from_numpy(np.where(half, 2, 1)).unsqueeze(1)  # one half needs 3, the other 6
    models = {"single": {"test": Categorical(sharp)}}
    result = evaluate(models, torch.zeros(N, 1), labels)
    found = result.columns["single, calibrated"]["test"]
    for which in (0, 1):
        others, own = half != which, half == which
        temperature = fit_temperature(sharp[others], labels[others])
        assert temperature == pytest.approx(3 if which else 6, rel=0.15)
        said = Categorical(sharp[own] / temperature)
        np.testing.assert_allclose(found["nll"][own], -said.log_prob(labels[own]), atol=0.005, rtol=0.01)
        np.testing.assert_allclose(found["confidence"][own], said.mean.max(1).values, atol=0.01)
    assert (found["predicted"] == result.columns["single"]["test"]["predicted"]).all()
    assert "knowledge" not in found


def test_a_calibrated_member_is_left_as_it_is(logits):
    sharp, labels = logits
    models = {"single": {"test": Categorical(sharp / 3)}}
    rows = evaluate(models, torch.zeros(N, 1), labels).rows
    assert rows["single, calibrated"]["NLL"] == pytest.approx(rows["single"]["NLL"], abs=0.003)


def test_batches_and_their_order_change_nothing(logits):
    sharp, labels = logits
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Identity()
    loader = DataLoader(TensorDataset(sharp, labels), batch_size=100)
    whole = evaluate({"single": Ensemble([model])}, sharp, labels).rows["single, calibrated"]
    parts = evaluate({"single": Ensemble([model])}, loader).rows["single, calibrated"]
    assert parts["NLL"] == pytest.approx(whole["NLL"], rel=1e-5)


def test_one_of_your_own_is_not_made_again(logits):
    sharp, labels = logits
    models = {"single": {"test": Categorical(sharp)}, "single, calibrated": {"test": Categorical(sharp / 2.5)}}
    result = evaluate(models, torch.zeros(N, 1), labels)
    np.testing.assert_allclose(
        result.columns["single, calibrated"]["test"]["nll"], -Categorical(sharp / 2.5).log_prob(labels), rtol=1e-5
    )
    assert result.students == ()
    assert result.role("single, calibrated") == "other"


def test_what_is_impossible_at_every_temperature_does_not_spoil_the_fit(logits):
    sharp, labels = logits
    spoilt = sharp.clone()
    spoilt[0, labels[0]] = -torch.inf
    rows = evaluate({"single": {"test": Categorical(spoilt)}}, torch.zeros(N, 1), labels)
    nll = rows.columns["single, calibrated"]["test"]["nll"]
    assert nll[0] == np.inf
    assert np.isfinite(nll[1:]).all()
    assert nll[1:].mean() < rows.columns["single"]["test"]["nll"][1:].mean() - 0.3


def test_every_kind_of_prediction_of_classes_has_a_temperature():
    random = torch.Generator().manual_seed(0)
    members = torch.randn(6, 3, K, generator=random)
    task, spread = Classification(), torch.linspace(0.5, 3, 6)
    for said in (Categorical(members[:, 0]), Mixture(Categorical(members)), Dirichlet(members[:, 0].exp())):
        found = task.recalibrated(said, spread)
        powers = said.mean ** (1 / spread.unsqueeze(1))
        torch.testing.assert_close(found.mean, powers / powers.sum(1, keepdim=True))
    tokens = Categorical(torch.randn(6, 4, K, generator=random))
    torch.testing.assert_close(task.recalibrated(tokens, spread).logits[2] * spread[2], tokens.log_probs[2])


def test_forecasts_have_a_factor_and_a_normal_wishart_has_none():
    random = torch.Generator().manual_seed(0)
    mean = torch.randn(2000, 2, generator=random)
    y = mean + 2.0 * torch.randn(2000, 2, generator=random)
    said = Gaussian(mean, torch.zeros(2000, 2))
    result = evaluate({"single": {"test": said}}, torch.zeros(2000, 1), y)
    total = result.columns["single, calibrated"]["test"]["total"]
    half = half_of(torch.arange(2000)).numpy()
    for which in (0, 1):
        away = ((y - mean)[half != which] ** 2).mean().item()  # the variance of the other half
        assert total[half == which] / 2 == pytest.approx(away, rel=0.03)
    wishart = NormalWishart(mean, torch.zeros(2000, 2), torch.ones(2000), torch.full((2000,), 8.0))
    assert Regression().recalibrated(wishart, torch.ones(2000)) is None
    assert list(evaluate({"single": {"test": wishart}}, torch.zeros(2000, 1), y).rows) == ["single"]


def test_the_best_spread_lies_between_those_that_were_tried():
    for best in (0.2, 0.7, 1.0, 2.3, 6.0):
        assert best_spread((np.log(SPREADS) - np.log(best)) ** 2) == pytest.approx(best, rel=1e-6)
    assert best_spread(-np.log(SPREADS)) == SPREADS[-1]
    assert best_spread(np.zeros(len(SPREADS))) == 1
    assert best_spread(np.full(len(SPREADS), np.inf)) == 1


def test_it_is_a_model_like_any_other(tmp_path):
    result = evaluated(class_answers(), resamples=10)
    assert list(result.rows)[:2] == ["single", "single, calibrated"]
    assert set(result.columns["single, calibrated"]) == set(result.columns["single"])
    assert "single, calibrated" in result.examples[0]["answers"]
    again = Evaluation.load(result.save(tmp_path))
    assert again.rows["single, calibrated"] == result.rows["single, calibrated"]
    both = compare({"A": result, "B": again})
    assert list(both.rows) == list(result.rows)


def test_its_cost_is_that_of_the_single_member():
    ensemble, data = small_ensemble(members=3), small_batches(examples=60).all
    models = {"single": Ensemble(ensemble.models[:1]), "ensemble": ensemble}
    result = evaluate(models, data.inputs, data.target)
    assert result.costs["single, calibrated"] == result.costs["single"]
    assert result.rows["single, calibrated"]["µs/example"] == result.rows["single"]["µs/example"]
