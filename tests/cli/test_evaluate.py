"""`solera evaluate` and `solera report`, as a person runs them: real data, a real student, real files."""

import contextlib
import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from solera import Distiller, EnD, Student, Training
from solera.cli.main import app
from solera.evaluation import Evaluation
from solera.training.card import Preprocessing, record
from tests.cli.test_cli import solera as in_a_process

runner = CliRunner()


def solera(*arguments, cwd):
    """In this process, which has torch already."""
    with contextlib.chdir(cwd):
        return runner.invoke(app, arguments, catch_exceptions=False)


@pytest.fixture(scope="module")
def cancer(tmp_path_factory):
    """Forests on half of the patients, and two students of them; the other half is the test set."""
    folder = tmp_path_factory.mktemp("cancer")
    data = load_breast_cancer()
    x, y = data.data.astype(np.float32), data.target
    forests = [RandomForestClassifier(10, random_state=seed).fit(x[::2], y[::2]) for seed in range(4)]

    def said(inputs):
        return np.stack([forest.predict_proba(inputs) for forest in forests], axis=1)

    far = x[1::2] * np.random.default_rng(0).uniform(0.2, 4, (1, 30)).astype(np.float32)
    for name, method in {"proxy": None, "end": EnD()}.items():
        student = Distiller(method=method, training=Training(epochs=8)).fit(said(x[::2]), x[::2]).student_
        student.preprocessing = Preprocessing.of(torch.from_numpy(x), features=list(data.feature_names))
        student.class_names = list(data.target_names)
        student.save(folder / "students" / name)
    plain = LogisticRegression(max_iter=5000).fit(x[::2] / 100, y[::2]).predict_proba(x[1::2] / 100)
    arrays = {"x": x[1::2], "y": y[1::2], "preds": said(x[1::2]), "far": far, "preds-far": said(far), "refit": plain}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


BASIC = ["--members", "preds.npy", "--inputs", "x.npy", "--labels", "y.npy", "--resamples", "20"]


def test_evaluate_and_report(cancer):
    done = solera(
        "evaluate", "--student", "students/proxy", "--student", "students/end", *BASIC,
        "--unfamiliar", "far=far.npy", "--members-unfamiliar", "far=preds-far.npy", "--baseline", "refit.npy",
        cwd=cancer,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for name in ("single", "ensemble", "baseline", "proxy", "end"):
        assert f"| {name} |" in done.stdout
    assert "Next: solera report evaluation" in done.stdout
    found = Evaluation.load(cancer / "evaluation")
    said, y = np.load(cancer / "preds.npy").mean(1), np.load(cancer / "y.npy")
    assert found.rows["ensemble"]["accuracy"] == pytest.approx((said.argmax(1) == y).mean())
    refit = np.load(cancer / "refit.npy")
    assert found.rows["baseline"]["NLL"] == pytest.approx(-np.log(refit[np.arange(len(y)), y]).mean(), rel=1e-4)
    x = torch.from_numpy(np.load(cancer / "x.npy"))
    student = Student.load(cancer / "students" / "proxy")
    knowledge = student.predict(x).knowledge.numpy()
    np.testing.assert_allclose(found.columns["proxy"]["test"]["knowledge"], knowledge, rtol=1e-5)
    assert found.students == ("proxy", "end")
    assert found.class_names == ["malignant", "benign"]
    assert found.examples[0]["shown"]["row"][0][0] == "mean radius"

    # the model card has it now, and the student still loads
    assert student.notes.metrics["accuracy"] == pytest.approx(found.rows["proxy"]["accuracy"], rel=1e-4)
    threshold = student.notes.thresholds["knowledge, rejects 10 %"]
    assert (knowledge > threshold).mean() == pytest.approx(0.1, abs=0.01)
    assert f"| knowledge, rejects 10 % | {threshold:.6g} |" in (cancer / "students/proxy/README.md").read_text()

    shown = in_a_process("report", "evaluation", "--title", "Breast cancer", cwd=cancer)
    assert shown.returncode == 0, shown.stderr
    content = json.loads((cancer / "evaluation" / "report.json").read_text())
    assert content["title"] == "Breast cancer"
    assert [v["student"] for v in content["verdicts"]] == ["proxy", "end"]
    for verdict in content["verdicts"]:
        assert verdict["sentences"][0] in done.stdout
        assert verdict["sentences"][0] in shown.stdout
    assert "Breast cancer" in (cancer / "evaluation" / "report.html").read_text()


def test_reports_are_compared_and_sets_nobody_knows_are_named(cancer):
    for name in ("proxy", "end"):
        done = solera(
            "evaluate", "--student", f"students/{name}", *BASIC, "--unfamiliar", "far=far.npy", "--out", f"of-{name}",
            cwd=cancer,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "--members-unfamiliar far=FILE" in done.stdout
    done = solera("report", "--compare", "of-proxy", "of-end", "--out", "both.html", cwd=cancer)
    assert done.exit_code == 0, done.output
    content = json.loads((cancer / "both.json").read_text())
    names = ["single", "single, calibrated", "ensemble", "of-proxy: proxy", "of-end: end"]
    assert [m["name"] for m in content["models"]] == names
    assert "far" not in content["curves"]["ensemble"]["roc"]
    assert "far" in content["curves"]["of-proxy: proxy"]["roc"]


def linear_graph(path, weight, bias):
    """A softmax of a linear layer, as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["features", "weight"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    constants = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    body = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("features", kind, ["N", len(weight)])],
        [helper.make_tensor_value_info("probabilities", kind, ["N", 2])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_live_members_answer_for_every_set(cancer):
    x, y = np.load(cancer / "x.npy"), np.load(cancer / "y.npy")
    weights = []
    for number in range(3):
        fitted = LogisticRegression(C=10.0 ** (number - 3), max_iter=5000).fit(x / 100, y)
        weights.append((np.concatenate([-fitted.coef_, fitted.coef_]).T / 200, fitted.intercept_ * [-0.5, 0.5]))
        linear_graph(cancer / f"{number}.onnx", *weights[-1])
    done = solera(
        "evaluate", "--student", "students/proxy", "--members", "0.onnx", "--members", "1.onnx", "--baseline", "2.onnx",
        *BASIC[2:], "--unfamiliar", "far=far.npy", "--out", "live",
        cwd=cancer,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = Evaluation.load(cancer / "live")
    odds = [torch.from_numpy(x @ weight + bias).softmax(-1).numpy() for weight, bias in weights]
    assert found.rows["ensemble"]["accuracy"] == pytest.approx(((odds[0] + odds[1]).argmax(1) == y).mean(), abs=0.004)
    np.testing.assert_allclose(found.columns["baseline"]["test"]["confidence"], odds[2].max(1), rtol=1e-3)
    assert found.costs["ensemble"].speed["1"]["p50"] > 0
    assert 0 <= found.rows["ensemble"]["OOD far knowledge"] <= 1


def test_forecasts_of_real_targets(tmp_path):
    x, y = load_diabetes(return_X_y=True)
    forests = [RandomForestRegressor(10, random_state=seed).fit(x[::2], y[::2]) for seed in range(3)]
    said = [np.stack([forest.predict(part) for forest in forests], 1) for part in (x[::2], x[1::2], 4 * x[1::2])]
    student = Distiller(training=Training(epochs=3)).fit(said[0], x[::2].astype(np.float32), y[::2]).student_
    student.save(tmp_path / "student")
    arrays = {"x": x[1::2], "y": y[1::2], "preds": said[1], "far": 4 * x[1::2], "preds-far": said[2]}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    more = ["--unfamiliar", "far=far.npy", "--members-unfamiliar", "far=preds-far.npy"]
    done = solera("evaluate", "--student", "student", *BASIC, *more, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    found = Evaluation.load(tmp_path / "evaluation")
    rmse = np.sqrt(np.mean((said[1].mean(1) - y[1::2]) ** 2))
    assert found.rows["ensemble"]["RMSE"] == pytest.approx(rmse, rel=1e-4)
    spread = said[2].var(1)
    np.testing.assert_allclose(found.columns["ensemble"]["far"]["knowledge"], spread, rtol=1e-2, atol=1e-2)
    assert solera("report", "evaluation", cwd=tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--inputs": "refit.npy"}, r"students/proxy takes inputs of shape \(30,\), the test inputs have \(2,\)"),
        ({"--inputs": "short.npy"}, "short.npy holds 10 inputs, y.npy 284 labels"),
        ({"--members": "short.npy"}, "predictions of shape"),
        ({"--members": "nowhere.npy"}, "nowhere.npy"),
        ({"--labels": "nowhere.npy"}, "there is no file nowhere.npy"),
        ({"--unfamiliar": "far.npy"}, "--unfamiliar far.npy is not a name and a file"),
        ({"--unfamiliar": "far=preds.npy"}, r"preds.npy holds inputs of shape \(4, 2\), x.npy of \(30,\)"),
        ({"--members-unfamiliar": "other=far.npy"}, "names 'other', but there is no --unfamiliar other=FILE"),
        ({"--student": "students"}, "students holds no student"),
        ({"--baseline": "x.npy"}, "member predictions"),
    ],
)
def test_what_does_not_fit_is_said_before_work_starts(cancer, change, message, monkeypatch):
    monkeypatch.chdir(cancer)
    np.save(cancer / "short.npy", np.zeros((10, 30), np.float32))
    options = {
        "--student": "students/proxy",
        **dict(zip(BASIC[::2], BASIC[1::2], strict=True)),
        "--out": "no",
        **change,
    }
    with pytest.raises((ValueError, OSError), match=message):
        app(["evaluate", *(word for pair in options.items() for word in pair)], standalone_mode=False)
    assert not (cancer / "no").exists()


def test_a_report_needs_evaluations(cancer, monkeypatch):
    monkeypatch.chdir(cancer)
    with pytest.raises(FileNotFoundError, match="students holds no evaluation"):
        app(["report", "students"], standalone_mode=False)
    with pytest.raises(ValueError, match="add --compare"):
        app(["report", "a", "b"], standalone_mode=False)


def test_recording_leaves_the_owners_words_alone(tmp_path, cancer):
    student = Student.load(cancer / "students" / "end")
    student.save(tmp_path)
    card = tmp_path / "README.md"
    card.write_text(card.read_text().replace("## Limits", "## Thanks\n\nTo all nurses.\n\n## Limits"))
    before = card.read_text()
    record(tmp_path, {"accuracy": 0.5}, {"total, rejects 5 %": 0.25})
    record(tmp_path, {"accuracy": 0.75}, {"total, rejects 5 %": 0.125})
    after = card.read_text()
    assert "To all nurses." in after
    assert "| accuracy | 0.75 |" in after
    assert "0.25" not in after.partition("## Thresholds")[2]
    assert before.partition("## Metrics")[0] == after.partition("## Metrics")[0]
    assert before.partition("## Thanks")[2] == after.partition("## Thanks")[2]
    again = Student.load(tmp_path)
    assert again.notes.thresholds == {"total, rejects 5 %": 0.125}
    assert again.notes.teachers == student.notes.teachers


@pytest.mark.parametrize("verb", ["evaluate", "report"])
def test_help_ends_with_an_example(verb):
    done = runner.invoke(app, [verb, "--help"])
    assert done.exit_code == 0
    assert f"solera {verb} " in " ".join(done.stdout.strip().split("\n\n")[-1].split())
