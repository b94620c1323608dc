"""Models of other kinds as members: they must say here what they say at home."""

import copy
import io
import pickle
import sys
import threading

import joblib
import numpy as np
import pandas
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from solera import Batch, Batches, Distiller, EnD, Ensemble, Training
from solera.nn import MLP
from solera.teachers.adapters import Estimator, Function, Predictions, SequenceClassifier, adapt
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.teachers.adapters.probabilities import SMOOTHING
from solera.teachers.ensemble import as_teacher
from solera.testing import check_teacher

X, Y = load_iris(return_X_y=True)
FLOWERS = np.array(["setosa", "versicolor", "virginica"])
INPUTS = torch.from_numpy(X).float()


def xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=5)


ESTIMATORS = {
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
    "histogram boosting": lambda: HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "lightgbm": lambda: LGBMClassifier(n_estimators=5, verbose=-1),
    "xgboost": xgboost,
}


def fitted(name="logistic regression", labels=Y):
    return ESTIMATORS[name]().fit(X.astype(np.float32), labels)


def batch(rows=20):
    return Batch(INPUTS[:rows], torch.arange(rows))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_says_what_its_predict_proba_says(name):
    model = fitted(name)
    said = Estimator(model)(INPUTS).double().exp().numpy()
    expected = model.predict_proba(X.astype(np.float32))
    smooth = (1 - SMOOTHING) * expected + SMOOTHING / expected.shape[1]
    expected = np.where((expected == 0).any(1, keepdims=True), smooth, expected)
    np.testing.assert_allclose(said, expected, rtol=1e-5)
    check_teacher(Ensemble([model, model]), batch())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_keeps_its_fingerprint_when_it_is_used_saved_and_loaded(name):
    model = fitted(name)
    first = Estimator(model).fingerprint
    model.predict_proba(X)
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for same in (model, pickle.loads(pickle.dumps(model)), joblib.load(file)):
        assert Estimator(same).fingerprint == first
    other = ESTIMATORS[name]().fit(X[1:].astype(np.float32), Y[1:])
    assert Estimator(other).fingerprint != first


def test_images_are_flattened_for_an_estimator():
    model = fitted()
    torch.testing.assert_close(Estimator(model)(INPUTS.view(-1, 2, 2)), Estimator(model)(INPUTS))


@pytest.mark.filterwarnings("error")
def test_an_estimator_fitted_on_a_data_frame_gets_one():
    frame = pandas.DataFrame(X.astype(np.float32), columns=["a", "b", "c", "d"])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, Y)
    torch.testing.assert_close(Estimator(model)(INPUTS), Estimator(fitted())(INPUTS), rtol=1e-4, atol=1e-5)


def test_what_is_no_classifier_is_refused():
    with pytest.raises(TypeError, match=r"member 1: a StandardScaler is not a model; .*\.onnx"):
        Ensemble([fitted(), StandardScaler().fit(X)])
    with pytest.raises(ValueError, match="regressors and noise belong to continuous targets: pass family='gaussian'"):
        Ensemble([fitted(), LinearRegression().fit(X, Y)])
    with pytest.raises(TypeError, match="LogisticRegression is a class, not a model: pass a fitted instance"):
        adapt(LogisticRegression)
    with pytest.raises(TypeError, match=r"'member.npy' is not a model.*Predictions"):
        adapt("member.npy")
    for alone in (fitted("forest"), MLP(4, 3), "model.onnx"):
        with pytest.raises(TypeError, match="an ensemble takes a list of models, got a"):
            Ensemble(alone)


def test_a_function_may_give_arrays_or_tensors_logits_or_probabilities():
    net, forest = MLP(4, 3), fitted("forest")
    functions = [
        lambda x: net(x),
        Function(lambda x: net(x).softmax(-1), probabilities=True),
        Function(nn.Sequential(net, nn.Softmax(-1)), probabilities=True),
        Function(lambda x: net(x).detach().numpy(), probabilities=False),
    ]
    ensemble = Ensemble([net, *functions, Function(lambda x: forest.predict_proba(x.numpy()), probabilities=True)])
    check_teacher(ensemble, batch())
    said = ensemble.predict(INPUTS).members.mean
    for number in range(1, 5):
        torch.testing.assert_close(said[:, number], said[:, 0])
    torch.testing.assert_close(said[:, 5], Estimator(forest)(INPUTS).softmax(-1))


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: lambda x: m(x)], ids=["module", "function"])
def test_probabilities_are_not_taken_for_logits(wrap):
    ensemble = Ensemble([MLP(4, 3), wrap(nn.Sequential(MLP(4, 3), nn.Softmax(-1)))])
    with pytest.raises(
        ValueError, match=r"member 1 .* should answer with logits, but every row sums to one .*Function"
    ):
        ensemble.predict(INPUTS)


def test_logits_are_not_taken_for_probabilities():
    class Fake:
        def __init__(self, answers):
            self.answers = np.array(answers)

        def predict_proba(self, x):
            return self.answers

    with pytest.raises(ValueError, match=r"Fake.predict_proba are not probabilities: row 1 is \[3, -1\]"):
        Estimator(Fake([[0.5, 0.5], [3, -1]]))(INPUTS[:2])
    with pytest.raises(ValueError, match=r"Fake.predict_proba must sum to one over the classes: row 0 sums to 5"):
        Estimator(Fake([[3, 2], [0.5, 0.5]]))(INPUTS[:2])
    with pytest.raises(ValueError, match=r"Fake.predict_proba hold NaN for row 1"):
        Estimator(Fake([[0.5, 0.5], [np.nan, 1]]))(INPUTS[:2])
    with pytest.raises(ValueError, match=r"must give \(examples, classes\), got \(3, 2\) for 2 examples"):
        Estimator(Fake([[0.5, 0.5]] * 3))(INPUTS[:2])
    with pytest.raises(ValueError, match=r"are not probabilities: row 0 is \[.*-"):
        Function(lambda x: x - 10, probabilities=True)(INPUTS)


def scaled(by):
    return lambda x: by * x


weights = torch.eye(4)


def multiplied(x):
    return x @ weights


def test_a_function_has_the_fingerprint_of_its_code_and_of_what_it_uses(monkeypatch):
    def of(function):
        return Function(function, probabilities=False).fingerprint

    assert of(scaled(2)) == of(scaled(2)) != of(scaled(3))
    assert of(scaled(2)) != of(lambda by: by)
    before = of(multiplied)
    monkeypatch.setattr(sys.modules[__name__], "weights", 2 * torch.eye(4))
    assert of(multiplied) != before
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"has no fingerprint \(cannot pickle .*version='1'"):
        of(lambda x: (x, lock))
    assert Function(lambda x: (x, lock), probabilities=False, version="1").fingerprint == "version 1"


def test_fingerprints_depend_on_what_is_there_not_on_where():
    """Not on the order of sets and dicts, on what is shared, or on the padding of records."""
    padded = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    dirty = padded.copy()
    dirty.view(np.uint8).reshape(3, -1)[:, 1:8] = 7
    assert padded.tobytes() != dirty.tobytes()
    part, itself = [1.0, "x"], []
    itself.append(itself)
    pairs = [
        ({"a": 1, "b": {2, 3}}, {"b": {3, 2}, "a": 1}),
        ([part, part], [[1.0, "x"], [1.0, "x"]]),
        (padded, dirty),
        (itself, copy.deepcopy(itself)),
    ]
    for one, same in pairs:
        assert object_fingerprint(one) == object_fingerprint(same)
    different = [1, 1.0, True, "1", b"1", [1], (1,), {1}, {1: 1}, np.ones(1), np.ones((1, 1)), torch.ones(1), None]
    assert len({object_fingerprint(value) for value in different}) == len(different)


def test_a_mixed_ensemble_is_distilled():
    torch.manual_seed(0)
    members = [MLP(4, 3), MLP(4, 3), fitted("lightgbm"), fitted("forest")]
    ensemble = Ensemble(members)
    check_teacher(ensemble, batch())
    assert len(set(ensemble.fingerprints)) == 4
    assert isinstance(as_teacher(members), Ensemble)
    distiller = Distiller(MLP(4, 3), EnD(), Training(epochs=40, lr=2e-2)).fit(ensemble, X)
    apart = np.abs(distiller.predict_proba(X) - ensemble.predict(INPUTS).mean.numpy()).sum(-1) / 2
    assert apart.mean() < 0.05


def test_what_a_teacher_is_made_of():
    values = np.full((5, 2, 3), 1 / 3)
    assert isinstance(as_teacher(values, 5), Predictions)
    assert as_teacher([values[:, 0], values[:, 1]], 5).members == 2
    ensemble = Ensemble([MLP(4, 3)])
    assert as_teacher(ensemble) is ensemble
    with pytest.raises(TypeError, match="a single RandomForestClassifier is no ensemble: pass a list"):
        as_teacher(fitted("forest"))
    with pytest.raises(TypeError, match="member 1: a ndarray is not a model"):
        as_teacher([MLP(4, 3), values])


# labels


class Renamed:
    """An estimator that lists its classes in another order, as other libraries do."""

    def __init__(self, model, order):
        self.model, self.order, self.classes_ = model, order, model.classes_[order]

    def predict_proba(self, x):
        return self.model.predict_proba(x)[:, self.order]


def test_columns_are_aligned_by_class_names():
    model = fitted("forest", FLOWERS[Y])
    straight = Ensemble([model, model]).predict(INPUTS)
    mixed = Ensemble([model, Renamed(model, [2, 0, 1])])
    assert mixed.class_names == FLOWERS.tolist()
    torch.testing.assert_close(mixed.predict(INPUTS).members.logits, straight.members.logits)
    assert mixed.predict(INPUTS).knowledge.max() < 1e-6
    first = Ensemble([Renamed(model, [2, 0, 1]), model])
    assert first.class_names == FLOWERS[[2, 0, 1]].tolist()
    torch.testing.assert_close(first.predict(INPUTS).mean, straight.mean[:, [2, 0, 1]])
    named = Ensemble([Renamed(model, [2, 0, 1]), model], class_names=FLOWERS)
    torch.testing.assert_close(named.predict(INPUTS).members.logits, straight.members.logits)
    assert named.fingerprints[1] == Ensemble([model]).fingerprints[0]
    assert first.fingerprints[1] != named.fingerprints[1]


def test_ten_string_labels_come_in_another_order_than_ten_numbers():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 4)).astype(np.float32), np.arange(200) % 12
    x[np.arange(200), y % 4] += y
    numbers, strings = (RandomForestClassifier(5, random_state=0).fit(x, labels) for labels in (y, y.astype(str)))
    assert strings.classes_.tolist() != [str(n) for n in numbers.classes_]
    said = Ensemble([numbers, strings]).predict(torch.from_numpy(x)).members.mean
    torch.testing.assert_close(said[:, 0], said[:, 1])


def test_a_torch_module_may_carry_class_names():
    net = MLP(4, 3)
    net.classes = ["virginica", "setosa", "versicolor"]
    ensemble = Ensemble([fitted(labels=FLOWERS[Y]), net])
    torch.testing.assert_close(ensemble.predict(INPUTS).members.logits[:, 1], net(INPUTS)[:, [1, 2, 0]].detach())


def test_other_class_names_are_an_error_that_shows_both():
    one, other = fitted(labels=FLOWERS[Y]), fitted(labels=np.array(["setosa", "rose", "virginica"])[Y])
    message = (
        r"the classes disagree: member 1 has \['rose', 'setosa', 'virginica'\], "
        r"member 0 has \['setosa', 'versicolor', 'virginica'\]"
    )
    with pytest.raises(ValueError, match=message):
        Ensemble([one, other])
    with pytest.raises(ValueError, match=r"member 0 has \['setosa', .*\], class_names has \['a', 'b'\]"):
        Ensemble([one], class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"class_names name a class twice: \['a', 'a', 'b'\]"):
        Ensemble([MLP(4, 3)], class_names=["a", "a", "b"])
    with pytest.raises(ValueError, match=r"member 0 \(MLP\) answers \(150, 3\), but there are 2 names"):
        Ensemble([MLP(4, 3)], class_names=["a", "b"]).predict(INPUTS)


# Hugging Face


def bert(**settings):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, **settings
    )
    return transformers.BertForSequenceClassification(config)


def tokens():
    torch.manual_seed(0)
    ids = torch.randint(1, 20, (6, 5))
    mask = torch.arange(5) < torch.tensor([5, 3, 4, 5, 2, 1])[:, None]
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


def test_hugging_face_classifiers_are_members():
    inputs, models = tokens(), [bert(num_labels=3) for _ in range(2)]
    ensemble = Ensemble(models)
    check_teacher(ensemble, Batch(inputs, torch.arange(6)))
    said = ensemble.predict(inputs, batch_size=4).members.logits
    with torch.no_grad():
        expected = torch.stack([m(**inputs).logits for m in models], 1)
    torch.testing.assert_close(said, expected)
    torch.testing.assert_close(ensemble.predict({**inputs, "labels": torch.zeros(6).long()}).members.logits, expected)
    assert ensemble.class_names is None
    before = ensemble.fingerprints
    assert Ensemble(copy.deepcopy(models)).fingerprints == before
    with torch.no_grad():
        models[1].classifier.bias[0] += 1
    assert [a == b for a, b in zip(before, ensemble.fingerprints, strict=True)] == [True, False]
    with pytest.raises(TypeError, match="BertForSequenceClassification needs a dict of tensors with input_ids"):
        ensemble.predict(inputs["input_ids"])


def test_hugging_face_names_are_class_names():
    names = {0: "positive", 1: "negative"}
    flipped = {0: "negative", 1: "positive"}
    one, other = bert(id2label=names), bert(id2label=flipped)
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        for parameter in other.classifier.parameters():
            parameter.copy_(parameter.flip(0))
    ensemble = Ensemble([one, other])
    assert ensemble.class_names == ["positive", "negative"]
    assert ensemble.predict(tokens()).knowledge.max() < 1e-6


def test_what_chooses_no_class_is_refused():
    for settings in ({"num_labels": 1}, {"num_labels": 3, "problem_type": "multi_label_classification"}):
        with pytest.raises(ValueError, match="does not choose one of several classes"):
            SequenceClassifier(bert(**settings))


def test_batches_of_dicts_are_distilled():
    from solera import distill

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.EmbeddingBag(20, 3)

        def forward(self, inputs):
            return self.embedding(inputs["input_ids"])

    student = distill(Ensemble([bert(num_labels=3)]), Bag(), Batches(tokens(), batch_size=4), EnD(), Training(epochs=1))
    assert student.predict(tokens()).mean.shape == (6, 3)
