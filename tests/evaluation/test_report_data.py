"""What a report says: the whole contract, for both tasks, and several evaluations as one."""

import json
import math

import numpy as np
import pytest

from solera import report
from solera.evaluation import compare, verdict
from solera.evaluation.glossary import help_for
from solera.evaluation.report_data import content
from solera.tasks import Classification
from tests.evaluation.made_up import class_answers, evaluated, real_answers

KEYS = {
    "schema", "title", "made", "task", "question", "error", "reference", "labels", "verdicts", "metrics", "models",
    "sets", "curves", "scatter", "examples", "thresholds", "wanted",
}  # fmt: skip


@pytest.fixture(scope="module")
def classes():
    return evaluated(class_answers(), resamples=30)


@pytest.fixture(scope="module")
def reals():
    return evaluated(real_answers(), resamples=10)


@pytest.mark.parametrize("task", ["classes", "reals"])
def test_the_contract(task, request):
    result = request.getfixturevalue(task)
    found = content(result, "A title")
    assert set(found) == KEYS
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [s["name"] for s in found["sets"]] == list(result.columns["ensemble"])
    assert [s["labelled"] for s in found["sets"]] == [True, False]
    assert {v["student"] for v in found["verdicts"]} == set(result.students)
    for model in found["models"]:
        assert model["role"] == result.role(model["name"])
        assert set(model["metrics"]) | set(model["fidelity"]) <= set(found["metrics"])
        assert bool(model["difference"]) == (model["name"] != "ensemble")
        for entry in (*model["metrics"].values(), *model["difference"].values()):
            if entry["low"] is not None:
                assert entry["low"] <= entry["high"]
    for about in found["metrics"].values():
        assert about["better"] in (-1, 0, 1)
        assert about["help"].endswith(".")
    assert set(found["curves"]) == set(found["thresholds"]) == set(found["wanted"]) == set(result.columns)
    assert len(found["examples"]) <= 40


def test_verdicts_are_those_of_the_rules(classes):
    for entry in content(classes)["verdicts"]:
        judged = verdict(classes, entry["student"], single="single")
        assert entry["sentences"] == judged.sentences
        assert entry["deploy"] == judged.deploy_student
        assert entry["use"] == judged.deploy
        assert entry["states"] == judged.states


def test_no_verdict_without_intervals_or_reference():
    assert content(evaluated(class_answers()))["verdicts"] == []
    alone = content(evaluated(class_answers(), resamples=3, reference=None))
    assert alone["verdicts"] == []
    assert alone["scatter"] == {}


def test_thresholds_and_wanted_errors_are_what_counting_gives(classes):
    found = content(classes)
    test, far = classes.columns["Dirichlet"].values()
    for row in found["thresholds"]["Dirichlet"]["knowledge"]:
        kept = test["knowledge"] <= row["threshold"] * (1 + 1e-4)
        assert kept.mean() == pytest.approx(row["coverage"], abs=0.01)
        assert row["coverage"] >= 1 - row["rejected"] - 1e-9
    wanted = found["wanted"]["Dirichlet"]
    assert {row["wanted"] for row in wanted["error"]} == {0.01, 0.02, 0.05, 0.1}
    assert all(row["error"] is None or row["error"] <= row["wanted"] for row in wanted["error"])
    for row in wanted["false alarms"]:
        assert row["alarms"] <= row["wanted"]
        assert row["caught"] == pytest.approx((far[row["measure"]] > row["threshold"]).mean(), abs=0.02)


def test_wanted_errors_of_real_targets_are_shares_of_the_whole(reals):
    whole = reals.rows["Wishart"]["RMSE"] ** 2
    wanted = [r["wanted"] / whole for r in content(reals)["wanted"]["Wishart"]["error"] if r["measure"] == "total"]
    assert wanted == pytest.approx([0.9, 0.75, 0.5], rel=1e-3)


def test_names_made_of_others_are_explained():
    task = Classification()
    told = help_for("OOD my set knowledge", task)
    assert told.startswith("How well knowledge uncertainty tells my set from the test inputs")
    assert "telling my set by total uncertainty that is left" in help_for("OOD my set total kept", task)
    assert "mean data uncertainty" in help_for("data kept", task)
    assert help_for("accuracy on night", task).endswith("right one. Measured on night.")
    assert help_for("Δ ECE", task) == "By how much its ECE is larger than the ensemble's."
    assert help_for("Δ data", task).startswith("How far its data uncertainty")


def test_fidelity_says_what_was_kept(classes):
    kept, rows = classes.fidelity["Dirichlet"], classes.rows
    assert kept["PRR kept"] == pytest.approx(rows["Dirichlet"]["PRR"] / rows["ensemble"]["PRR"])
    name = 'OOD far, "away" knowledge'
    gain = (rows["Dirichlet"][name] - 0.5) / (rows["ensemble"][name] - 0.5)
    assert kept[f"{name} kept"] == pytest.approx(gain)
    assert kept["Δ ECE"] == pytest.approx(rows["Dirichlet"]["ECE"] - rows["ensemble"]["ECE"])
    assert classes.fidelity["EnD²"][f"{name} kept"] is None


def test_a_report_is_a_page_and_json(classes, tmp_path):
    path = report(classes, tmp_path / "deep" / "report.html")
    assert path.read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads(path.with_suffix(".json").read_text()) == content(classes)
    with pytest.raises(ValueError, match=r"name it report\.html, not report\.pdf"):
        report(classes, tmp_path / "report.pdf")


def test_compare_puts_models_side_by_side(classes):
    models, inputs, labels = class_answers()
    other = evaluated((models | {"Dirichlet": class_answers(seed=3)[0]["Dirichlet"]}, inputs, labels), resamples=30)
    both = compare({"A": classes, "B": other})
    assert list(both.rows) == ["single", "single, calibrated", "ensemble", "A: Dirichlet", "EnD²", "B: Dirichlet"]
    assert (both.reference, both.single, both.baseline) == ("ensemble", "single", None)
    assert both.students == ("A: Dirichlet", "EnD²", "B: Dirichlet")
    for name, one in (("A", classes), ("B", other)):
        joined = both.difference(f"{name}: Dirichlet", "ensemble", "NLL")
        assert joined == one.difference("Dirichlet", "ensemble", "NLL")  # the same resampled examples
        assert both.fidelity[f"{name}: Dirichlet"] == one.fidelity["Dirichlet"]
    assert len(content(both)["verdicts"]) == 3


def test_compare_with_another_reference_says_only_what_is_known(classes):
    models, inputs, labels = class_answers()
    other = evaluated((models | {"ensemble": class_answers(seed=4)[0]["ensemble"]}, inputs, labels))
    both = compare({"A": classes, "B": other})
    assert both.reference == "A: ensemble"
    assert both.role("B: ensemble") == "other"
    assert "agreement" not in both.fidelity["B: ensemble"]
    assert math.isfinite(both.fidelity["B: ensemble"]["ρ total"])
    assert "agreement" in both.fidelity["Dirichlet"]


def test_compare_refuses_other_examples(classes, reals):
    models, inputs, labels = class_answers()
    shifted = evaluated((models, inputs, (labels + 1) % 4))
    with pytest.raises(ValueError, match="A and B are not evaluations of the same test set"):
        compare({"A": classes, "B": shifted})
    with pytest.raises(ValueError, match="not evaluations of the same test set"):
        compare({"A": classes, "B": reals})
    with pytest.raises(ValueError, match="nothing to compare A with"):
        compare({"A": classes})
    named = evaluated(class_answers(), class_names=list("abcd"))
    with pytest.raises(ValueError, match="name their classes differently"):
        compare({"A": named, "B": evaluated(class_answers(), class_names=list("abce"))})


def test_a_reference_that_does_not_know_a_set_is_left_out_there():
    models, inputs, labels = class_answers()
    models["ensemble"] = {"test": models["ensemble"]["test"]}
    result = evaluated((models, inputs, labels), resamples=10)
    assert "ρ knowledge, all" not in result.rows["Dirichlet"]
    assert 'OOD far, "away" knowledge' not in result.rows["ensemble"]
    assert result.rows["Dirichlet"]['OOD far, "away" knowledge'] > 0.5
    found = content(result)
    assert found["curves"]["ensemble"]["roc"] == {}
    assert found["verdicts"][0]["states"]["knowledge"] in ("kept", "unclear", "lost")
    assert not np.isnan(result.fidelity["Dirichlet"]["PRR kept"])
