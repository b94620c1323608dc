"""The scikit-learn face: its own checks, pipelines, searches, every kind of teacher, tables with words and gaps."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import solera
from solera import DistilledClassifier, DistilledRegressor, Training
from solera.methods import EnD, Hydra
from solera.nn import MLP
from solera.training.sklearn_teachers import bag, held_out

SHORT = Training(epochs=12, lr=3e-2)
FAST = {"training": SHORT, "hidden": (32,), "batch_size": 32, "random_state": 0}


QUICK = {"hidden": (16,), "batch_size": 32}


@parametrize_with_checks(
    [
        DistilledClassifier(RandomForestClassifier(5, max_depth=4), training=Training(epochs=8, lr=5e-2), **QUICK),
        DistilledRegressor(RandomForestRegressor(5, max_depth=4), training=Training(epochs=15, lr=5e-2), **QUICK),
    ]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def cancer():
    data = load_breast_cancer(as_frame=True)
    return data.data.iloc[:, :8], data.target_names[data.target]


def diabetes():
    x, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    return x, y.to_numpy()


NEAR = make_pipeline(StandardScaler(), KNeighborsClassifier(20))
VOTES = [("near", NEAR), ("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=4, min_samples_leaf=10))]
TEACHERS = {
    "default": lambda x, y: None,
    "voting": lambda x, y: VotingClassifier(VOTES, voting="soft"),
    "weighted voting": lambda x, y: VotingClassifier(VOTES, voting="soft", weights=[2, 1, 1]),
    "stacking": lambda x, y: StackingClassifier(VOTES[:2], LogisticRegression()),
    "bagging": lambda x, y: BaggingClassifier(GaussianNB(), 5),
    "forest": lambda x, y: RandomForestClassifier(10, min_samples_leaf=5),
    "list": lambda x, y: [model for _, model in VOTES],
    "one model": lambda x, y: DecisionTreeClassifier(min_samples_leaf=10),
    "pipeline that ends in a forest": lambda x, y: make_pipeline(
        StandardScaler(), RandomForestClassifier(5, max_depth=4)
    ),
    "fitted": lambda x, y: RandomForestClassifier(10, min_samples_leaf=5, random_state=0).fit(x, y),
    "fitted list": lambda x, y: [clone(model).fit(x, y) for _, model in VOTES],
    "frozen": lambda x, y: FrozenEstimator(VotingClassifier(VOTES, voting="soft").fit(x, y)),
    "ensemble of ours": lambda x, y: solera.Ensemble([clone(model).fit(x, y) for _, model in VOTES[:2]]),
}


@pytest.mark.parametrize("make", TEACHERS.values(), ids=TEACHERS)
def test_every_kind_of_teacher_of_classes(make):
    x, y = cancer()
    teacher = make(x[::2], y[::2])
    before = repr(teacher)
    model = DistilledClassifier(teacher, **FAST).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.87
    assert repr(teacher) == before
    proba = model.predict_proba(x[1::2])
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-6)
    assert (model.classes_[proba.argmax(1)] == model.predict(x[1::2])).all()
    said = model.predict_uncertainty(x[1::2])
    np.testing.assert_allclose(said.total, said.data + said.knowledge, rtol=1e-4, atol=1e-6)
    assert (said.knowledge > 0).all()
    order = [list(model.classes_).index(name) for name in model.student_.class_names]
    np.testing.assert_allclose(model.student_.predict(x[1::2]).mean.numpy(), proba[:, order], atol=1e-5)


LINES = [("line", LinearRegression()), ("near", KNeighborsRegressor(15))]
REGRESSORS = {
    "default": lambda x, y: None,
    "voting": lambda x, y: VotingRegressor(LINES),
    "stacking": lambda x, y: StackingRegressor(LINES, Ridge()),
    "trees": lambda x, y: ExtraTreesRegressor(10, min_samples_leaf=5),
    "list": lambda x, y: [Ridge(), KNeighborsRegressor(15)],
    "one model": lambda x, y: Ridge(),
    "fitted": lambda x, y: [Ridge().fit(x[:100], y[:100]), Ridge().fit(x[100:], y[100:])],
}


@pytest.mark.parametrize("make", REGRESSORS.values(), ids=REGRESSORS)
def test_every_kind_of_teacher_of_numbers(make):
    x, y = diabetes()
    model = DistilledRegressor(make(x[::2], y[::2]), **FAST).fit(x[::2], y[::2])
    mean, std = model.predict(x[1::2], return_std=True)
    assert (mean == model.predict(x[1::2])).all()
    assert model.score(x[1::2], y[1::2]) > 0.3
    said = model.predict_uncertainty(x[1::2])
    np.testing.assert_allclose(std**2, said.total, rtol=1e-6)
    np.testing.assert_allclose(said.total, said.data + said.knowledge, rtol=1e-4)
    assert (np.abs(y[1::2] - mean) < 2 * std).mean() > 0.5  # a predictive deviation, not the members' alone


def test_torch_members_and_arrays_of_predictions():
    x, y = load_wine(return_X_y=True)
    rows = torch.tensor(x, dtype=torch.float32)
    batches = solera.Batches(rows, torch.tensor(y))
    members = solera.train_ensemble(lambda: MLP.for_inputs(rows, 3, (16,)), batches, 3, SHORT)
    live = DistilledClassifier(members, **FAST).fit(x, y)
    said = members.predict(rows).members.logits.softmax(-1).numpy()
    remembered = DistilledClassifier(said, **FAST).fit(x, y)
    for model in (live, remembered):
        assert model.score(x, y) > 0.9
        assert (model.classes_ == [0, 1, 2]).all()


def test_in_a_pipeline_and_in_a_search():
    x, y = cancer()
    forest = RandomForestClassifier(5, min_samples_leaf=5)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), DistilledClassifier(forest, **FAST)),
        {"distilledclassifier__teacher__n_estimators": [3, 6], "distilledclassifier__method": [None, EnD()]},
        cv=2,
        error_score="raise",
    )
    search.fit(x[:100], y[:100])
    best = search.best_estimator_[-1]
    assert len(best.teacher_.estimators_) == search.best_params_["distilledclassifier__teacher__n_estimators"]
    assert search.score(x[200:], y[200:]) > 0.85
    assert cross_val_score(DistilledRegressor(Ridge(), **FAST), *diabetes(), cv=2).mean() > 0.3


def test_a_search_refits_models_inside_but_not_frozen_ones():
    x, y = cancer()
    forest = RandomForestClassifier(5, min_samples_leaf=5, random_state=0).fit(x[:100], y[:100])
    assert clone(DistilledClassifier(forest, **FAST)).fit(x[200:], y[200:]).teacher_ is not forest
    assert clone(DistilledClassifier(FrozenEstimator(forest), **FAST)).fit(x[200:], y[200:]).teacher_ is forest
    assert DistilledClassifier(forest, **FAST).fit(x[200:], y[200:]).teacher_ is forest


def test_rows_are_kept_from_the_teacher_and_seeds_decide():
    class Remembers(GaussianNB):
        def fit(self, x, y):
            self.seen_ = len(x)
            return super().fit(x, y)

    x, y = cancer()
    model = DistilledClassifier([Remembers(), Remembers()], **FAST).fit(x[:100], y[:100])
    assert {one.seen_ for one in model.teacher_} == {90}
    again = DistilledClassifier([Remembers(), Remembers()], **FAST).fit(x[:100], y[:100])
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    other = again.set_params(random_state=1).fit(x[:100], y[:100])
    assert (other.predict_proba(x) != model.predict_proba(x)).any()


def test_rows_held_out_and_bags_have_every_class():
    random = np.random.RandomState(0)
    groups = np.array([0] * 60 + [1] * 39 + [2])
    kept = held_out(groups, 100, 0.2, random)
    assert np.bincount(groups[kept], minlength=3).tolist() == [12, 8, 0]
    assert held_out(None, 12, 0.1, random).sum() == 3  # a quarter of a small table
    assert held_out(None, 50, 0.1, random).sum() == 10
    assert np.bincount(groups[bag(groups, random)]).tolist() == [60, 39, 1]


def test_methods_without_a_split_and_with_heads():
    x, y = cancer()
    teacher = VotingClassifier(VOTES[:2], voting="soft")
    x, y = x[:200], y[:200]
    said = DistilledClassifier(teacher, method=EnD(), **FAST).fit(x, y).predict_uncertainty(x)
    assert said.data is None
    assert said.knowledge is None
    heads = DistilledClassifier(teacher, method=Hydra(), **FAST).fit(x, y)
    assert heads.student_.predict(x).members.logits.shape[1] == 2
    assert heads.score(x, y) > 0.9


def people(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, words, true and false, with gaps; the target hangs on all of them."""
    random = np.random.default_rng(0)
    x = pd.DataFrame(
        {
            "age": random.integers(18, 80, rows),
            "income": random.normal(3, 1, rows),
            "job": random.choice(["cook", "nurse", "pilot"], rows),
            "married": random.random(rows) < 0.5,
            "town": pd.Categorical(random.choice(["Paris", "Rome", "Oslo"], rows)),
        }
    )
    score = x["age"] / 20 + x["income"] + 2 * (x["job"] == "pilot") + x["married"] + random.normal(0, 0.3, rows)
    x.loc[random.random(rows) < 0.2, "income"] = np.nan
    x.loc[random.random(rows) < 0.2, "job"] = None
    return x, score.to_numpy()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_words_and_gaps_reach_members_as_they_are_and_the_student_answers_by_them(tmp_path):
    x, score = people()
    y = np.where(score > np.median(score), "yes", "no")
    words = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "married", "town"]), (StandardScaler(), ["age"])
    )
    teacher = [make_pipeline(words, LogisticRegression(C=c)) for c in (0.01, 1.0)]
    for given in (teacher, None):
        model = DistilledClassifier(given, **FAST).fit(x[:100], y[:100])
        assert model.score(x[200:], y[200:]) > 0.7
    student = solera.Student.load(model.student_.save(tmp_path / "student"))
    assert student.preprocessing == model.student_.preprocessing
    assert student.preprocessing.categories["town"] == ["Oslo", "Paris", "Rome"]
    swapped = x.iloc[200:, ::-1]  # by the names of the columns
    np.testing.assert_allclose(student.predict(swapped).mean.numpy(), model.predict_proba(x[200:]), atol=1e-5)
    card = (tmp_path / "student" / "README.md").read_text()
    assert "words of job: cook, nurse, pilot" in card
    assert "a missing number is -1.2676506e+30" in card
    strange = x[:1].assign(job="spy", income=np.nan)
    unknown = x[:1].assign(job=None, income=np.nan)
    assert (model.predict_proba(strange) == model.predict_proba(unknown)).all()
    with pytest.raises(ValueError, match="column 'job' holds categories: pass a data frame"):
        model.predict(np.zeros((1, 5)))


def test_gaps_in_arrays_and_columns_that_had_none_before():
    x, y = load_wine(return_X_y=True)
    x = np.where(np.random.default_rng(0).random(x.shape) < 0.1, np.nan, x)
    x[:, 0] = np.nan_to_num(x[:, 0], nan=13.0)
    teacher = [HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=leaf) for leaf in (5, 10)]
    model = DistilledClassifier(teacher, **FAST).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.student_.model.settings["table"]["missing"] == list(range(1, 13))
    x[:, 0] = np.nan
    assert np.isfinite(model.predict_proba(x)).all()
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.full((1, 13), np.inf))
    with pytest.raises(ValueError, match="inputs hold nan"):
        model.student_.predict(x)  # a student goes on refusing NaN; a data frame is encoded
    assert model.student_.predict(pd.DataFrame(x)).mean.isfinite().all()


def test_what_cannot_be_distilled_is_told():
    x, y = cancer()
    with pytest.raises(ValueError, match="a single fitted GaussianNB is no ensemble"):
        DistilledClassifier(GaussianNB().fit(x, y)).fit(x, y)
    forest = RandomForestClassifier(2).fit(x, y)
    with pytest.raises(ValueError, match="y holds the class 'unheard', which the fitted teacher does not know"):
        DistilledClassifier(forest).fit(x, np.where(np.arange(len(y)) == 0, "unheard", y))
    with pytest.raises(ValueError, match="n_samples=3 is too few"):
        DistilledRegressor().fit(x[:3], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="only one class"):
        DistilledClassifier().fit(x, ["a"] * len(x))
    with pytest.raises(ValueError, match="0 rows"):
        DistilledClassifier([GaussianNB()], **FAST).fit(x[:60], y[:60]).predict(x[:0])


def test_a_fitted_teacher_may_know_classes_that_y_lacks():
    x, y = load_wine(return_X_y=True)
    forest = RandomForestClassifier(5, min_samples_leaf=3, random_state=0).fit(x, y)
    model = DistilledClassifier(forest, **FAST).fit(x[y < 2], y[y < 2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(x).shape == (len(x), 3)


def test_a_regressor_on_words_and_gaps_asks_its_members_off_the_range_only_in_numbers():
    x, score = people()
    model = DistilledRegressor(**FAST).fit(x[:200], score[:200])
    assert model.score(x[200:], score[200:]) > 0.4
    assert model.student_.model[1].mean.abs().max() < 100
    far = x[200:].assign(age=400)
    knowledge = model.predict_uncertainty(far).knowledge
    assert np.isfinite(knowledge).all()
