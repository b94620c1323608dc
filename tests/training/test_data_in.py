"""Arrays, names and Hugging Face networks as a newcomer brings them."""

import numpy as np
import pandas
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from solera import Batches, Distiller, EnD, Ensemble, Student, Training, capture, distill, evaluate, train_ensemble
from solera.nn import MLP
from solera.nn.call import call

SHORT = Training(epochs=3)


@pytest.fixture(scope="module")
def flowers():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    return x, y, names


def forests(x, y):
    return [DecisionTreeClassifier(max_depth=d, random_state=d).fit(x, y) for d in (2, 3)]


def test_labels_by_name_and_numbers_that_do_not_start_at_0(flowers):
    x, y, names = flowers
    for labels, wanted in ((names, ["setosa", "versicolor", "virginica"]), (y + 5, ["5", "6", "7"])):
        ensemble = Ensemble(forests(x, labels))
        assert ensemble.class_names == wanted
        training = Training(epochs=30, lr=1e-2, label_weight=0.5)
        student = Distiller(method=EnD(), training=training).fit(ensemble, x, labels).student_
        assert student.class_names == wanted
        for inputs in (x, torch.tensor(x), pandas.DataFrame(x)):
            row = evaluate({"ensemble": ensemble, "student": student}, inputs, labels).rows["student"]
            assert row["accuracy"] > 0.9


def test_names_go_from_the_data_to_the_student(flowers, tmp_path):
    x, _, names = flowers
    order = np.random.default_rng(0).permutation(len(x))
    batches = Batches(x[order], names[order])
    ensemble = train_ensemble(lambda: MLP(4, 3, (8,)), batches, 2, SHORT)
    assert ensemble.class_names == ["setosa", "versicolor", "virginica"]
    kept = capture(ensemble, batches, tmp_path / "kept")
    assert distill(kept, MLP(4, 3, (8,)), batches, EnD(), SHORT).class_names == ensemble.class_names


def test_classes_are_renumbered_as_the_teacher_has_them(flowers):
    x, _, names = flowers
    ensemble = Ensemble(forests(x, names), class_names=["virginica", "setosa", "versicolor"])
    training = Training(epochs=40, lr=1e-2, label_weight=1.0)
    student = distill(ensemble, MLP(4, 3, (16,)), Batches(x, names), EnD(), training)
    predicted = np.array(student.class_names)[student.predict(x).mean.argmax(-1)]
    assert (predicted == names).mean() > 0.9


def test_a_class_that_one_member_never_saw_gets_no_probability(flowers):
    x, y, _ = flowers
    models = [LogisticRegression(max_iter=500).fit(x[y > 0], y[y > 0]), LogisticRegression(max_iter=500).fit(x, y)]
    ensemble = Ensemble(models)
    assert ensemble.class_names == ["0", "1", "2"]
    said = ensemble.predict(torch.tensor(x, dtype=torch.float32))
    wanted = np.stack([np.pad(models[0].predict_proba(x), ((0, 0), (1, 0))), models[1].predict_proba(x)]).mean(0)
    np.testing.assert_allclose(said.mean, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="classes disagree"):
        Ensemble([models[1], LogisticRegression().fit(x[y > 0], y[y > 0] + 7)])


def test_a_class_that_one_member_never_saw_does_not_stop_a_newcomer(flowers):
    x, y, _ = flowers
    models = [LogisticRegression(max_iter=500).fit(x[y > 0], y[y > 0]), LogisticRegression(max_iter=500).fit(x, y)]
    student = Distiller(training=Training(epochs=60, lr=1e-2)).fit(models, x).student_
    assert student.method.match == "mi"
    np.testing.assert_allclose(student.predict(x).mean, Ensemble(models).predict(x).mean, atol=0.15)


def test_the_columns_of_a_data_frame_are_named_on_the_card(flowers, tmp_path):
    x, y, _ = flowers
    frame = pandas.DataFrame(x, columns=["sepal length", "sepal width", "petal length", "petal width"])
    models = [DecisionTreeClassifier(max_depth=2, random_state=seed).fit(x, y) for seed in range(2)]
    student = Distiller(training=Training(epochs=1)).fit(models, frame, y).student_
    assert student.preprocessing.features == list(frame.columns)
    student.save(tmp_path)
    assert "features of a row: sepal length, sepal width" in (tmp_path / "README.md").read_text()
    assert Student.load(tmp_path).preprocessing.features == list(frame.columns)


@pytest.mark.parametrize("row", [7, 50, 149])
def test_a_number_that_is_none_is_named_by_its_row(flowers, row):
    x, y, _ = flowers
    ensemble = Ensemble(forests(x, y))
    spoilt = x.copy()
    spoilt[row, 2] = np.nan
    with pytest.raises(ValueError, match=rf"inputs hold nan in example {row}, at \[2\]"):
        Distiller(training=SHORT).fit(ensemble, spoilt)
    student = Student(MLP(4, 3), EnD())
    with pytest.raises(ValueError, match=rf"inputs hold nan in example {row}, at \[2\]"):
        student.predict(spoilt)


def test_rows_of_another_width_are_refused_in_plain_words():
    student = Student(MLP(4, 3), EnD())
    with pytest.raises(ValueError, match=r"takes inputs of shape \('examples', 4\), got \(2, 5\)"):
        student.predict(np.zeros((2, 5)))


def test_hugging_face_as_a_student(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    torch.manual_seed(0)
    members = [transformers.BertForSequenceClassification(config) for _ in range(2)]
    tokens = torch.randint(1, 20, (24, 6))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels_of_nobody": tokens}
    student = distill(
        Ensemble(members), transformers.BertForSequenceClassification(config), Batches(inputs), EnD(), SHORT
    )
    said = student.predict(inputs)
    assert said.mean.shape == (24, 3)
    again = Student.load(student.save(tmp_path), model=transformers.BertForSequenceClassification(config))
    assert torch.equal(again.predict(inputs).mean, said.mean)
    result = evaluate({"ensemble": Ensemble(members), "student": student}, inputs, torch.randint(3, (24,)))
    assert result.rows["student"]["accuracy"] <= 1


def test_a_dict_goes_in_by_keywords_where_the_network_has_them():
    class Keywords(torch.nn.Module):
        def forward(self, a, b=None):
            return a + (0 if b is None else b)

    class Whole(torch.nn.Module):
        def forward(self, inputs):
            return inputs["a"]

    class Named(torch.nn.Module):
        def forward(self, a):
            return {"logits": a}

    one = torch.ones(1)
    assert call(Keywords(), {"a": one, "b": one}).item() == 2
    assert call(Whole(), {"a": one}).item() == 1
    assert call(Named(), {"a": one}).item() == 1


def test_columns_of_a_data_frame_are_put_in_order_by_their_names():
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])
    members = [MLP(3, 2, (8,)), MLP(3, 2, (8,))]
    distiller = Distiller(training=Training(epochs=1)).fit(members, frame)
    wanted, moved = distiller.predict(frame).mean, frame[["c", "a", "b"]].assign(more=1.0)
    torch.testing.assert_close(distiller.predict(moved).mean, wanted)
    torch.testing.assert_close(distiller.student_.predict(moved).mean, wanted)
    with pytest.raises(ValueError, match="'b' is not among a, c"):
        distiller.predict(frame[["a", "c"]])


def test_names_travel_beside_bare_predictions_and_missing_labels_may_be_nan():
    said, x = np.random.default_rng(0).dirichlet([1, 1, 1], size=(30, 2)), np.random.default_rng(1).normal(size=(30, 4))
    named = np.array(["red", "green", "blue"])[np.arange(30) % 3]
    assert Distiller(training=Training(epochs=1)).fit(said, x, named).student_.class_names == ["blue", "green", "red"]
    numbers = (np.arange(30) % 3).astype(float)
    numbers[4] = np.nan
    training = Training(epochs=1, label_weight=0.5)
    assert Distiller(training=training).fit(said, x, numbers).student_.predict(x).mean.shape == (30, 3)
    with pytest.raises(ValueError, match=r"classes are whole numbers, the labels hold 0\.5"):
        Distiller(training=training).fit(said, x, numbers + 0.5)


def test_floating_point_labels_of_classifiers_are_told_before_work_starts():
    x, y = torch.randn(20, 4), torch.zeros(20)
    ensemble = Ensemble([MLP(4, 3), MLP(4, 3)])
    with pytest.raises(ValueError, match="pass whole numbers as classes"):
        distill(ensemble, MLP(4, 3), Batches(x, y), EnD(), Training(epochs=1))
    with pytest.raises(ValueError, match="pass whole numbers as classes"):
        evaluate({"ensemble": ensemble}, x, y)


def test_validation_data_are_inputs_or_inputs_with_labels():
    said, x = torch.rand(30, 2, 3), torch.randn(30, 4)
    words = np.array(["red", "green", "blue"] * 10)
    models = [LogisticRegression(C=c).fit(x.numpy(), words) for c in (0.1, 1.0)]
    distiller = Distiller(training=Training(epochs=1))
    for validation in (x, (x, words), (x.numpy(), list(words))):
        assert distiller.fit(models, x, words, validation=validation).student_.class_names == ["blue", "green", "red"]
    with pytest.raises(ValueError, match="'pink', which is none of the 3 classes"):
        distiller.fit(models, x, words, validation=(x, np.where(words == "red", "pink", words)))
    with pytest.raises(ValueError, match="cannot answer for validation inputs"):
        distiller.fit(said / said.sum(-1, keepdim=True), x, validation=x)


def test_noise_of_regressors_comes_from_rows_they_have_not_seen():
    x, noise = torch.randn(200, 3), torch.randn(200)
    trees = [ExtraTreesRegressor(5, random_state=seed).fit(x[:100].numpy(), noise[:100].numpy()) for seed in range(3)]
    distiller = Distiller(training=Training(epochs=20))
    with pytest.raises(ValueError, match="the residuals are all 0"):  # they know their own rows by heart
        distiller.fit(trees, x[:100], noise[:100])
    said = distiller.fit(trees, x[:100], noise[:100], validation=(x[100:], noise[100:])).predict(x[100:])
    assert 0.5 < said.total.mean() < 2
