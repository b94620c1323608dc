"""The members of scikit-learn's ensembles: their mean is the ensemble's own answer."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from solera import Ensemble, committee
from solera.teachers.adapters.sklearn_ensembles import (
    as_stack_classifier,
    is_ensemble,
    panel_of_ensemble,
    panel_of_models,
)

NAMES = np.array(["barolo", "grignolino", "barbera"])
CLASSIFIERS = [("bayes", GaussianNB()), ("near", KNeighborsClassifier(15))]
REGRESSORS = [("line", LinearRegression()), ("ridge", Ridge(50.0)), ("tree", DecisionTreeRegressor(max_depth=3))]


def wine():
    x, y = load_wine(return_X_y=True)
    return x.astype(np.float32).astype(float), NAMES[y]


def diabetes():
    x, y = load_diabetes(return_X_y=True)
    return x.astype(np.float32).astype(float), y


def frozen():
    x, y = wine()
    return [(name, FrozenEstimator(model.fit(x, y))) for name, model in CLASSIFIERS]


ENSEMBLES = {
    "voting": lambda: VotingClassifier(CLASSIFIERS, voting="soft"),
    "voting, weighted": lambda: VotingClassifier(CLASSIFIERS, voting="soft", weights=[3, 1]),
    "voting, frozen": lambda: VotingClassifier(frozen(), voting="soft"),
    "bagging": lambda: BaggingClassifier(GaussianNB(), 4, max_features=0.5, random_state=0),
    "forest": lambda: RandomForestClassifier(4, max_depth=3, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(4, max_depth=3, random_state=0),
    "stacking": lambda: StackingClassifier(CLASSIFIERS, LogisticRegression(max_iter=2000)),
    "stacking, prefit": lambda: StackingClassifier(frozen(), LogisticRegression(max_iter=2000), cv="prefit"),
    "pipeline": lambda: make_pipeline(StandardScaler(), VotingClassifier(CLASSIFIERS, voting="soft")),
    "pipeline of one": lambda: make_pipeline(VotingClassifier(CLASSIFIERS, voting="soft")),
}


@pytest.mark.parametrize("make", ENSEMBLES.values(), ids=ENSEMBLES)
def test_the_mean_of_the_members_is_the_classifiers_own(make):
    x, y = wine()
    ensemble = make().fit(x, y)
    assert is_ensemble(ensemble)
    panel = panel_of_ensemble(ensemble, lambda rows: rows.astype(float), True)
    said = Ensemble(panel.members, class_names=list(ensemble.classes_)).predict(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(said.mean.numpy(), ensemble.predict_proba(x), atol=2e-4)  # rows with a 0 are smoothed
    assert said.knowledge.mean() > 1e-3


@pytest.mark.parametrize(
    "ensemble",
    [
        VotingRegressor(REGRESSORS),
        VotingRegressor(REGRESSORS, weights=[1, 2, 3]),
        BaggingRegressor(LinearRegression(), 4, max_features=0.5, random_state=0),
        RandomForestRegressor(4, max_depth=3, random_state=0),
        ExtraTreesRegressor(4, max_depth=3, random_state=0),
        StackingRegressor(REGRESSORS, Ridge()),
    ],
    ids=lambda ensemble: type(ensemble).__name__,
)
def test_the_mean_of_the_members_is_the_regressors_own(ensemble):
    x, y = diabetes()
    ensemble.fit(x, y)
    panel = panel_of_ensemble(ensemble, lambda rows: rows.astype(float), False)
    rows = torch.tensor(x, dtype=torch.float32)
    said = committee(panel.members, rows, torch.tensor(y)).predict(rows)
    np.testing.assert_allclose(said.mean[:, 0].numpy(), ensemble.predict(x), rtol=1e-5)
    assert said.knowledge.mean() > 1


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 4), st.booleans())
def test_a_stacks_members_are_probabilities_about_its_own_with_the_largest_spread(seed, count, classes, sure):
    random = np.random.default_rng(seed)
    members = random.dirichlet(np.full(classes, 0.5), (count, 6))
    stack = random.dirichlet(np.full(classes, 0.5), 6)
    if sure:
        stack[0] = np.eye(classes)[0]
    moved = as_stack_classifier(members, stack)
    np.testing.assert_allclose(moved.mean(0), stack, atol=1e-12)
    np.testing.assert_allclose(moved.sum(-1), 1, atol=1e-12)
    assert (moved >= 0).all()
    apart = members - members.mean(0)
    whole = np.abs(moved - stack - apart).max(axis=(0, 2)) < 1e-12
    assert (whole | (moved.min(axis=(0, 2)) < 1e-12)).all()  # λ = 1, or more would be negative


def test_members_are_asked_once_about_rows_that_are_decoded_once():
    x, y = wine()
    asked = []

    def decode(rows):
        asked.append(len(rows))
        return rows.astype(float)

    panel = panel_of_models([model.fit(x, y) for _, model in CLASSIFIERS], decode, True)
    Ensemble(panel.members).predict(torch.tensor(x, dtype=torch.float32), batch_size=100)
    assert asked == [100, 78]


def test_columns_of_a_bag_that_lacks_a_class_are_told_apart():
    x, y = wine()
    ensemble = BaggingClassifier(KNeighborsClassifier(1), 6, max_samples=4, random_state=0).fit(x, y)
    lacking = [set(range(3)) - set(model.classes_) for model in ensemble.estimators_]
    assert {0} in lacking
    panel = panel_of_ensemble(ensemble, lambda rows: rows.astype(float), True)
    said = Ensemble(panel.members, class_names=list(ensemble.classes_)).predict(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(said.mean.numpy(), ensemble.predict_proba(x), atol=2e-4)


def test_what_has_no_members_or_no_probabilities_is_refused():
    x, y = wine()
    single = GradientBoostingClassifier(n_estimators=2).fit(x, y)
    assert not is_ensemble(single)
    with pytest.raises(ValueError, match="a single fitted GradientBoostingClassifier is no ensemble: pass a list"):
        panel_of_ensemble(single, lambda rows: rows, True)
    hard = VotingClassifier([("svm", LinearSVC())]).fit(x, y)
    with pytest.raises(ValueError, match=r"member 0, a LinearSVC, gives no probabilities .*CalibratedClassifierCV"):
        panel_of_ensemble(hard, lambda rows: rows, True)
