import numpy as np
import pytest
import torch

from solera import EnD, ProxyDirichlet, Student, evaluate, metrics
from solera.data import Batch
from solera.distributions import Categorical
from solera.nn import MLP
from solera.tasks import Classification
from solera.training.card import Preprocessing
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
    assert all(row["µs/example"] > 0 for row in result.rows.values() if row["µs/example"] is not None)


def test_the_table_has_a_row_a_model_and_a_dash_for_what_is_not_there(evaluation):
    lines = evaluation[2].markdown().splitlines()
    assert len(lines) == 6  # the calibrated single, too
    assert len({line.count("|") for line in lines}) == 1
    assert "–" in lines[2]


def test_columns_of_sequences_keep_their_axes():
    prediction = ProxyDirichlet().predict(torch.randn(2, 5, 4))
    batch = Batch(torch.zeros(2, 5), torch.arange(2), torch.zeros(2, 5, dtype=torch.long))
    found = Classification().columns(prediction, batch)
    assert {c.shape for c in found.values()} == {(2, 5)}
    np.testing.assert_allclose(found["total"], found["data"] + found["knowledge"], rtol=1e-5)


def test_models_that_only_said_something(evaluation):
    models, data, result = evaluation
    said = {"test": models["ensemble"].predict(data.inputs)}
    again = evaluate({**models, "ensemble": said}, data.inputs, data.target, unfamiliar={"far": data.inputs * 10})
    assert again.rows["ensemble"]["NLL"] == pytest.approx(result.rows["ensemble"]["NLL"])
    assert again.rows["ensemble"]["µs/example"] is None
    assert "OOD far total" not in again.rows["ensemble"]
    assert again.rows["student"]["OOD far total"] == pytest.approx(result.rows["student"]["OOD far total"])
    assert again.students == ("student",)
    assert again.single == "single"


def test_names_come_from_the_models(evaluation):
    models, data, _ = evaluation
    models["student"].class_names = ["ant", "bee", "cat"]
    models["student"].preprocessing = Preprocessing.of(data.inputs, features=list("abcd"))
    result = evaluate(models, data.inputs, data.target)
    assert result.class_names == ["ant", "bee", "cat"]
    assert [name for name, _ in result.examples[0]["shown"]["row"]] == list("abcd")
    models["single"].class_names = ["bee", "ant", "cat"]
    with pytest.raises(ValueError, match="their columns must stand in one order"):
        evaluate(models, data.inputs, data.target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": torch.zeros(3, dtype=torch.long)}, "there are 200 inputs and 3 labels"),
        ({"unfamiliar": {"test": torch.zeros(2, 4)}}, "an unfamiliar set is called 'test'"),
        ({"unfamiliar": {"far": torch.zeros(0, 4)}}, "the set 'far' is empty"),
        ({"features": ["a"]}, "1 names of features for rows of 4"),
        ({"labels": torch.full((200,), 3)}, "labels must lie between 0 and 2 for 3 classes"),
        ({"models": {"said": {}}}, "what said said has no entry 'test'"),
        (
            {"models": {"said": {"test": Categorical(torch.zeros(3, 3))}}},
            "said answered for 3 inputs of the set 'test'",
        ),
    ],
)
def test_what_does_not_fit_is_named(evaluation, changes, message):
    models, data, _ = evaluation
    given = {"models": models, "data": data.inputs, "labels": data.target, **changes}
    with pytest.raises(ValueError, match=message):
        evaluate(**given)


def test_the_same_examples_are_resampled_whatever_other_sets_there_are(evaluation):
    models, data, _ = evaluation
    one = evaluate(models, data.inputs, data.target, resamples=5)
    two = evaluate(models, data.inputs, data.target, unfamiliar={"far": data.inputs[:50] * 10}, resamples=5)
    for name in models:
        assert np.array_equal(one.draws[name]["NLL"], two.draws[name]["NLL"])


def test_models_of_another_question_are_refused(evaluation):
    models, data, _ = evaluation
    with pytest.raises(ValueError, match="other answers for 5 classes, single for 3"):
        evaluate({**models, "other": {"test": Categorical(torch.zeros(200, 5))}}, data.inputs, data.target)
