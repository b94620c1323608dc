"""The pictures' points against scikit-learn and counting."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score, roc_curve

from solera import metrics
from solera.evaluation import curves
from solera.metrics.curves import coverage_curve, pit_histogram, reliability
from tests.evaluation.made_up import class_answers, evaluated, real_answers


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_reliability_is_scikit_learns_and_sums_to_the_ece(generator, kind):
    confidence = generator.random(2000).astype(kind)
    confidence[:4] = [0, 1, 0.2, 0.4]  # edges
    correct = generator.random(2000) < confidence**2
    found = reliability(confidence, correct)
    accuracy, mean = calibration_curve(correct[4:], confidence[4:], n_bins=15)
    assert reliability(confidence[4:], correct[4:])["accuracy"] == pytest.approx(accuracy)
    assert reliability(confidence[4:], correct[4:])["confidence"] == pytest.approx(mean)
    gap = found["share"] @ np.abs(found["accuracy"] - found["confidence"])
    assert gap == pytest.approx(metrics.confidence_ece(confidence, correct))


def test_empty_bins_are_left_out():
    found = reliability(np.array([0.95, 0.96, 0.5]), np.array([True, False, True]))
    assert found["share"].tolist() == pytest.approx([1 / 3, 2 / 3])


def test_coverage_and_pit_are_what_counting_gives(generator):
    pit = generator.beta(2, 2, 500)
    found = coverage_curve(pit)
    for level, covered in zip(found["level"], found["covered"], strict=True):
        assert covered == np.mean(np.abs(2 * pit - 1) <= level)
    shares = pit_histogram(pit)
    assert shares["share"].sum() == pytest.approx(1)
    assert shares["share"][0] == np.mean(pit < 0.05)


@pytest.mark.parametrize("ties", [False, True])
def test_rejection_is_what_rejecting_gives(generator, ties):
    uncertainty = generator.random(200)
    uncertainty = np.round(uncertainty, 1) if ties else uncertainty
    error = (generator.random(200) < uncertainty).astype(float)
    found = curves.rejection(uncertainty, error)
    assert len(found["rejected"]) == len(found["error"]) == 101
    assert np.isnan(found["error"][-1])
    for rejected, left in zip(found["rejected"][:-1], found["error"][:-1], strict=True):
        count, kept, sum_of_kept = round(200 * (1 - rejected)), 0, 0.0
        for value in np.unique(uncertainty):  # whole blocks, and of the last one its mean
            block = error[uncertainty == value]
            taken = min(len(block), count - kept)
            kept, sum_of_kept = kept + taken, sum_of_kept + taken * block.mean()
        assert left == pytest.approx(sum_of_kept / count)
    oracle = curves.rejection(error, error)["error"][:-1]
    assert (oracle <= found["error"][:-1] + 1e-12).all()


@pytest.mark.parametrize("decimals", [1, 8])
def test_roc_goes_through_scikit_learns_points(generator, decimals):
    familiar, other = generator.random(700).round(decimals), (generator.random(500) + 0.2).round(decimals)
    found = curves.roc(familiar, other)
    truth, scores = np.repeat([0, 1], [700, 500]), np.concatenate([familiar, other])
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    points = set(zip(false.round(12), true.round(12), strict=True))
    own = list(zip(found["false"].round(12), found["true"].round(12), strict=True))
    assert set(own) <= points
    assert own[0] == (0, 0)
    assert own[-1] == (1, 1)
    assert len(own) <= 200
    area = np.trapezoid(found["true"], found["false"])
    assert area == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)


def test_histograms_share_edges_and_lose_nobody():
    every = evaluated(class_answers()).columns
    for measure in ("total", "knowledge"):
        edges = curves.edges_for(every, measure)
        for sets in every.values():
            for columns in sets.values():
                if measure in columns:
                    shares = curves.histogram(columns[measure], edges)
                    assert shares.sum() == pytest.approx(1)
                    inside = np.mean(columns[measure] < edges[1])
                    assert shares[0] == pytest.approx(inside)


def test_scatter_pairs_the_same_rows(monkeypatch):
    monkeypatch.setattr(curves, "POINTS", 60)
    result = evaluated(class_answers())
    names = ["test", 'far, "away"']
    found = curves.scatter(result.columns, result.elements, "ensemble", names)
    assert set(found) == {"single", "single, calibrated", "Dirichlet", "EnD²"}
    assert set(found["EnD²"]) == {"total"}  # it has no other
    points = found["Dirichlet"]["knowledge"]
    assert 60 <= len(points["row"]) <= 62
    assert set(points["set"]) == {0, 1}
    for own, theirs, number, row in zip(*points.values(), strict=True):
        assert own == result.columns["Dirichlet"][names[number]]["knowledge"][row]
        assert theirs == result.columns["ensemble"][names[number]]["knowledge"][row]


@pytest.mark.parametrize("dimensions", [1, 2])
def test_real_targets_have_their_own_pictures(dimensions):
    result = evaluated(real_answers(dimensions))
    edges = {m: curves.edges_for(result.columns, m) for m in ("total", "data", "knowledge")}
    found = curves.model_curves(result.columns["Wishart"], result.target, result.task, edges)
    assert {"figures", "rejection", "oracle", "roc", "histogram"} == set(found)
    assert set(found["figures"]) == {"coverage", "pit"} | ({"truth"} if dimensions == 1 else set())
    assert found["roc"]["far"]["total"]["auroc"] == pytest.approx(result.rows["Wishart"]["OOD far total"])
