import numpy as np
import pytest
import torch

from solera import EnD, ProxyDirichlet, Student, evaluate, metrics
from solera.nn import MLP
from solera.tasks import Classification
from tests.helpers import small_batches, small_ensemble


@pytest.fixture
def evaluation():
    ensemble, data = small_ensemble(members=4), small_batches(examples=200).all
    torch.manual_seed(1)
    models = {
        "single": Student(ensemble.models[0], EnD()),
        "ensemble": ensemble,
        "student": Student(MLP(4, 3, (8,)), ProxyDirichlet()),
    }
    return models, data, evaluate(models, data.inputs, data.target, unfamiliar={"far": data.inputs * 10})


def test_every_number_is_what_the_metric_says(evaluation):
    models, data, result = evaluation
    for name, model in models.items():
        prediction, row = model.predict(data.inputs), result.rows[name]
        y = data.target.numpy()
        assert row["accuracy"] == pytest.approx((prediction.mean.argmax(-1).numpy() == y).mean())
        assert row["NLL"] == pytest.approx(-prediction.log_prob(data.target).mean().item(), rel=1e-5)
        far = model.predict(data.inputs * 10)
        scores, new = torch.cat([prediction.total, far.total]).numpy(), np.repeat([0, 1], 200)
        assert row["OOD far total"] == pytest.approx(metrics.auroc(scores, new))
    assert result.rows["single"]["OOD far knowledge"] is None
    assert result.rows["ensemble"]["ρ knowledge"] == pytest.approx(1)
    assert result.rows["ensemble"]["parameters"] == 4 * result.rows["single"]["parameters"]
    assert result.rows["single"]["µs/example"] < result.rows["ensemble"]["µs/example"]


def test_the_table_has_a_row_a_model_and_a_dash_for_what_is_not_there(evaluation):
    lines = evaluation[2].markdown().splitlines()
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1
    assert "–" in lines[2]


def test_columns_of_sequences_keep_their_axes():
    prediction = ProxyDirichlet().predict(torch.randn(2, 5, 4))
    found = Classification().columns(prediction, torch.zeros(2, 5, dtype=torch.long))
    assert {c.shape for c in found.values()} == {(2, 5)}
    np.testing.assert_allclose(found["total"], found["data"] + found["knowledge"], rtol=1e-5)
