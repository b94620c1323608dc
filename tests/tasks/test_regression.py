"""What is measured of predictions of continuous targets."""

import numpy as np
import pytest
import scipy.stats
import torch

from solera.data import Batch
from solera.distributions import Gaussian, Mixture, NormalWishart
from solera.evaluation import evaluate
from solera.tasks import Classification, Regression, task_of
from tests.helpers import as_columns


def labelled(y):
    return Batch(torch.zeros(len(y), 1), torch.arange(len(y)), y)


def some_predictions(size):
    torch.manual_seed(size)
    mean, log_variance = torch.randn(400, 3, size), torch.randn(400, 3, size)
    return [
        Gaussian(mean[:, 0], log_variance[:, 0]),
        Mixture(Gaussian(mean, log_variance)),
        Mixture(Gaussian(mean, log_variance), torch.tensor([0.5, 0.5, 0.0]).expand(400, 3)),
        NormalWishart(mean[:, 0], log_variance[:, 0], torch.full((400,), 2.0), torch.full((400,), size + 4.0)),
    ]


def drawn_from(prediction):
    """Targets that the prediction is right about."""
    if isinstance(prediction, NormalWishart):
        size = prediction.mean.shape[-1]
        n = prediction.freedom - size + 1
        scale = ((1 + 1 / prediction.belief) * (n - 2) / n).sqrt().unsqueeze(-1) * (0.5 * prediction.log_variance).exp()
        chi = torch.distributions.Chi2(n).sample().unsqueeze(-1)
        return prediction.mean + scale * torch.randn_like(prediction.mean) * (n.unsqueeze(-1) / chi).sqrt()
    if isinstance(prediction, Gaussian):
        return prediction.mean + prediction.variance.sqrt() * torch.randn_like(prediction.mean)
    weights = torch.full((400, 3), 1 / 3) if prediction.weights is None else prediction.weights
    chosen = torch.multinomial(weights, 1).squeeze(-1)
    members, row = prediction.members, torch.arange(400)
    return members.mean[row, chosen] + members.variance[row, chosen].sqrt() * torch.randn(400, members.mean.shape[-1])


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("number", range(4))
def test_a_prediction_that_is_right_is_calibrated(size, number):
    torch.manual_seed(0)
    prediction = some_predictions(size)[number]
    y = drawn_from(prediction)
    columns = as_columns(Regression().columns(prediction, labelled(y)))
    scores = Regression().scores(columns)
    assert scipy.stats.kstest(columns["pit"].ravel(), "uniform").pvalue > 1e-3
    assert abs(scores["coverage 90 %"] - 0.9) < 0.05
    assert scores["coverage error"] < 0.05
    np.testing.assert_allclose(scores["RMSE"], (y - prediction.mean).square().mean().sqrt(), rtol=1e-5)
    np.testing.assert_allclose(scores["NLL"], -prediction.log_prob(y).mean(), rtol=1e-5)
    wrong = Regression().scores(as_columns(Regression().columns(prediction, labelled(y + 3))))
    assert wrong["CRPS"] > scores["CRPS"]
    assert wrong["coverage error"] > scores["coverage error"]


def test_evaluate_makes_one_table_of_regressors():
    torch.manual_seed(0)
    mean = torch.randn(300, 5, 1) * torch.linspace(0, 2, 300)[:, None, None]
    ensemble = Mixture(Gaussian(mean, torch.full_like(mean, -2.0)))
    y = ensemble.mean.squeeze(-1) + ensemble.total.sqrt() * torch.randn(300)
    models = {"ensemble": {"test": ensemble}, "one Gaussian": {"test": ensemble.averaged}}
    table = evaluate(models, torch.zeros(300, 1), y)
    assert table.rows["ensemble"]["ρ error"] > 0.3
    assert table.rows["ensemble"]["PRR"] > 0.2
    assert table.rows["one Gaussian"]["ρ knowledge"] is None
    assert table.rows["ensemble"]["ρ knowledge"] == pytest.approx(1)
    assert "RMSE" in table.markdown()
    assert "accuracy" not in table.markdown()
    with pytest.raises(ValueError, match="'test' has no element that counts: all are padding or unlabelled"):
        evaluate(models, torch.zeros(300, 1), torch.full((300,), float("nan")))


def test_the_kind_of_number_tells_the_task():
    assert isinstance(task_of(torch.zeros(3)), Regression)
    assert isinstance(task_of(torch.zeros(3, dtype=torch.long)), Classification)


def test_unlabelled_targets():
    task, target = Regression(), torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    assert task.labelled(labelled(target)).tolist() == [False, True]
    assert task.labelled(labelled(target[:, 1])).tolist() == [False, True]
    assert task.labelled(labelled(target), 2).tolist() == [[True, False], [True, True]]
    assert task.filled(target)[0, 1] == 0
    with pytest.raises(ValueError, match="targets hold inf"):
        task.check(labelled(torch.tensor([1.0, float("inf")])), 1)
