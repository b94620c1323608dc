"""The command line, as a person runs it."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import solera as solera_package
from solera import EnD, Student, capture
from solera.cli.main import app, main
from solera.cli.run import parse
from solera.core.disk import only_writer, write_manifest
from solera.core.errors import MismatchError
from solera.core.tensor_files import write_sealed_tensors
from solera.evaluation import Evaluation
from solera.nn import MLP
from solera.recipes import find, names, summary
from solera.recipes.base import Recipe, Workspace
from solera.recipes.digits import Digits
from solera.serving import Graph
from tests.helpers import small_batches, small_ensemble

SOLERA = str(Path(sys.executable).with_name("solera"))
TINY = ["run", "digits", "members=2", "epochs=2", "student_epochs=2"]


def solera(*arguments, cwd=None):
    return subprocess.run([SOLERA, *arguments], capture_output=True, text=True, cwd=cwd, timeout=300)


def called(*arguments):
    """In this process: what it printed."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_demo_recipe_trains_compares_and_leaves_a_student(tmp_path):
    done = solera(*TINY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("single", "ensemble", "EnD", "EnD²", "Proxy"):
        assert f"| {name} |" in done.stdout
    folder = tmp_path / "runs" / "digits"
    student = Student.load(folder / "students" / "Proxy")
    assert student.predict(torch.zeros(3, 1, 8, 8)).knowledge.shape == (3,)
    kept = Evaluation.load(folder / "evaluation")
    assert set(kept.rows) == {"single", "single, calibrated", "ensemble", "EnD", "EnD²", "Proxy"}
    assert "Verdict on the student Proxy: " in done.stdout
    assert json.loads((folder / "report.json").read_text())["verdicts"][2]["student"] == "Proxy"
    assert "total, rejects 5 %" in (folder / "students" / "Proxy" / "README.md").read_text()
    graph = Graph(folder / "student.onnx")
    images = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    said = student.predict(torch.from_numpy(images)).knowledge.numpy()
    np.testing.assert_allclose(graph(images)["knowledge"], said, atol=1e-5)
    assert "total, rejects 5 %" in graph.metadata["thresholds"]

    changed = solera(*TINY[:-1], "student_epochs=3", cwd=tmp_path)
    assert changed.returncode == 1
    assert "student_epochs was 2, now 3" in changed.stderr


def test_ctrl_c_leaves_a_run_that_goes_on_and_says_so(tmp_path):
    command = [SOLERA, "run", "digits", "members=2", "epochs=3000", "--out", str(tmp_path / "out")]

    # a shell that runs its jobs in the background makes them ignore the signal: take it back
    def heed():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=heed)
    while not list((tmp_path / "out").rglob("checkpoint.safetensors")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from here" in said
    assert list((tmp_path / "out").rglob("checkpoint.safetensors"))
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["demo"],
        ["capture"],
        ["distill"],
        ["evaluate"],
        ["report"],
        ["export"],
        ["serve"],
        ["inspect"],
        ["run"],
        *(["run", name] for name in names()),
    ],
    ids=str,
)
def test_every_help_ends_with_an_example(arguments):
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0
    last = " ".join(done.stdout.strip().split("\n\n")[-1].split())  # a line may end between the words
    assert "solera " in last


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["member=3"], "Digits has no field 'member': did you mean members?"),
        (["members=three", "epochs=1.5"], "members='three' is not a int.*epochs='1.5' is not a int"),
        (["members"], "'members' is not an override: write field=value"),
    ],
)
def test_bad_overrides_name_the_field(overrides, message):
    with pytest.raises(ValueError, match=message):
        parse(Digits, overrides)


def test_overrides_are_parsed_by_type():
    assert parse(Digits, ["members=3", "seed=7"]) == Digits(members=3, seed=7)


def test_every_recipe_is_found_by_its_name():
    assert "digits" in names()
    for name in names():
        assert inspect.getdoc(find(name)).startswith(summary(name))
        assert summary(name)


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = solera(*TINY, "--out", str(tmp_path / "file" / "below"))
    assert done.returncode == 1
    assert done.stderr.startswith("solera: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert os.fspath(tmp_path) in done.stderr


def refused(arguments, monkeypatch, capsys):
    """The one line that a person reads when these arguments fail."""
    monkeypatch.setattr(sys, "argv", ["solera", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert left.value.code == 1
    return line


def foreign_graph(path, kind):
    """ONNX that Solera did not make."""
    from onnx import TensorProto, checker, helper, save

    values = [helper.make_tensor_value_info(name, getattr(TensorProto, kind), [1, 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "theirs", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checker.check_model(model)
    save(model, path)


def test_what_cannot_be_served_is_named_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "some.py").write_text("print('hello')")
    (tmp_path / "junk.onnx").write_text("no graph")
    (tmp_path / "empty").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "bert"}')
    foreign_graph(tmp_path / "numbers.onnx", "FLOAT")
    foreign_graph(tmp_path / "words.onnx", "STRING")
    accepted = "the folder of a student.* or the .onnx file of solera export"
    for name, message in {
        "some.py": f"cannot be served: pass {accepted}",
        "nowhere": f"is not there: pass {accepted}",
        "nowhere.onnx": f"is not there: pass {accepted}",
        "empty": f"is no student, there is no config.json in it: pass {accepted}",
        "theirs": "holds no student: its config.json is not one that Solera wrote",
        "junk.onnx": r"is no graph of a student \(.*\): solera export makes one",
        "words.onnx": r"is no graph of a student \(.*\): solera export makes one",
        "numbers.onnx": r"is no graph of a student \(it carries no checksum\): solera export makes one",
    }.items():
        line = refused(["serve", tmp_path / name, "--port", 0], monkeypatch, capsys)
        assert re.fullmatch(f"solera: {re.escape(str(tmp_path / name))} {message}", line), line


def test_a_folder_in_use_is_one_line_too(tmp_path, monkeypatch, capsys):
    with only_writer(tmp_path):
        line = refused(["run", "digits", "--out", tmp_path], monkeypatch, capsys)
    assert line.startswith(f"solera: {tmp_path} is being written by another process: wait for it")


def stranger(*keys, **changes):
    """What a stranger makes of a manifest, who can compute a checksum, too."""

    def change(file, kind):
        body = {**json.loads(file.read_bytes()), **changes}
        kept = {key: value for key, value in body.items() if key not in ("kind", "version", "sha256", *keys)}
        write_manifest(file, kind, 1, kept)

    return change


def test_what_cannot_be_inspected_is_named_in_one_line(tmp_path, monkeypatch, capsys):
    settings = tmp_path / "settings.json"
    for text in ("[1]", "5", "[" * 100_000, '{"a":'):
        settings.write_text(text)
        assert str(settings) in refused(["inspect", tmp_path], monkeypatch, capsys)

    folder = tmp_path / "student"
    for change in (
        stranger("solera"),
        stranger(outputs=5),
        stranger(outputs=[1]),
        stranger(notes={"metrics": {"a": "b"}}),
    ):
        Student(MLP(4, 3, (8,)), EnD()).save(folder)
        change(folder / "config.json", "student")
        assert str(folder / "config.json") in refused(["inspect", folder], monkeypatch, capsys)

    folder = tmp_path / "kept"
    capture(small_ensemble(), small_batches(), folder)
    stranger("solera")(folder / "manifest.json", "transfer set")
    assert str(folder / "manifest.json") in refused(["inspect", folder], monkeypatch, capsys)

    file = tmp_path / "checkpoint.safetensors"
    for history in (5, [1]):
        state = json.dumps({"epoch": 1, "step": 0, "history": history})
        write_sealed_tensors(file, {"random": torch.get_rng_state()}, {"state": state, "run": "x"})
        assert f"{file}: state.history" in refused(["inspect", file], monkeypatch, capsys)


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"solera {version('solera')}\n")


def test_the_demo_ends_with_what_works_without_a_checkout(arrays, monkeypatch, short_rounds):
    """A user of the wheel has no docs folder; the lines of Python that it prints run as they are."""
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr("solera.cli.run.carry_out", lambda recipe, out: None)
    said = CliRunner().invoke(app, ["demo"]).stdout
    assert not re.search(r"\S+\.md\b", said)
    code = re.search(r"your own.*?:\n((?:  .*\n)+)", said).group(1)
    x, y = np.load(arrays / "x.npy"), np.load(arrays / "y.npy")
    models = [LogisticRegression(C=c, max_iter=500).fit(x, y) for c in (0.1, 1.0, 10.0)]
    monkeypatch.chdir(arrays)
    exec(
        textwrap.dedent(code), {"solera": solera_package, "inputs": x} | {f"model_{i + 1}": models[i] for i in range(3)}
    )
    assert Student.load(arrays / "student").predict(x.astype(np.float32)).mean.shape == (150, 3)
    command = re.search(r"solera (\w+) --help", said).group(1)
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


@pytest.fixture
def arrays(tmp_path):
    """Predictions of three real forests."""
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    x, y = load_iris(return_X_y=True)
    forests = [RandomForestClassifier(10, random_state=i).fit(x[::2], y[::2]) for i in range(3)]
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "preds.npy", np.stack([f.predict_proba(x) for f in forests]))
    return tmp_path


def test_arrays_in_one_student_out(arrays, monkeypatch):
    monkeypatch.chdir(arrays)
    brought = ["--members", "preds.npy", "--inputs", "x.npy"]
    done = solera("distill", *brought, "--labels", "y.npy", "--epochs", "5", "--out", "student", cwd=arrays)
    assert done.returncode == 0, done.stderr
    assert "| student |" in done.stdout
    student = Student.load(arrays / "student")
    assert student.predict(torch.zeros(2, 4)).mean.shape == (2, 3)
    assert "checksum right" in called("inspect", "student")

    done = solera("capture", *brought, "--codec", "top_k", "--keep", "2", "--out", "kept", cwd=arrays)
    assert done.returncode == 0, done.stderr
    assert "bytes" in done.stderr
    assert "every checksum right" in called("capture", *brought, "--out", "kept", "--verify")
    assert "150 examples" in called("inspect", "kept")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--members", "no.npy"], "no.npy"),
        (["--members", "x.npy"], "x.npy"),
        (["--members", "two.npz"], "two.npz holds the arrays ['a', 'b'], say which"),
        (["--members", "preds.npy", "--method", "magic"], "there is no method 'magic': choose among "),
    ],
)
def test_bad_arrays_are_refused_in_one_line(arrays, arguments, message, monkeypatch, capsys):
    np.savez(arrays / "two.npz", a=np.zeros((2, 3)), b=np.zeros((2, 3)))
    monkeypatch.chdir(arrays)
    assert message in refused(["distill", *arguments, "--inputs", "x.npy", "--out", "student"], monkeypatch, capsys)


@pytest.mark.parametrize("there", [False, True], ids=["new folder", "a folder with files of others"])
def test_a_call_that_failed_on_its_input_can_be_corrected(arrays, there, monkeypatch):
    monkeypatch.chdir(arrays)
    folder = arrays / "student"
    if there:
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")

    def distilled(members, epochs):
        given = ["--members", members, "--inputs", "x.npy", "--epochs", epochs, "--out", "student"]
        return CliRunner().invoke(app, ["distill", *given]).exception

    assert "no.npy is not there" in str(distilled("no.npy", "1"))
    assert folder.exists() == there
    assert not (folder / "settings.json").exists()
    assert distilled("preds.npy", "1") is None
    assert "epochs was 1, now 2" in str(distilled("preds.npy", "2"))
    assert (folder / "settings.json").exists()


def test_settings_of_a_run_that_was_killed_before_its_first_result_bind_nobody(tmp_path):
    Workspace(tmp_path, {"epochs": 1})
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / ".lock").touch()
    work = Workspace(tmp_path, {"epochs": 2})
    work.take_back()  # not its own: they were there when it began
    assert json.loads((tmp_path / "settings.json").read_text()) == {"epochs": 2}
    work.remember("step", lambda: 1)
    with pytest.raises(MismatchError, match="epochs was 2, now 3"):
        Workspace(tmp_path, {"epochs": 3})


def test_a_folder_with_a_readme_of_others_is_refused_before_the_training(arrays, monkeypatch):
    monkeypatch.chdir(arrays)
    (arrays / "student").mkdir()
    (arrays / "student" / "README.md").write_text("mine")
    done = CliRunner().invoke(app, ["distill", "--members", "preds.npy", "--inputs", "x.npy", "--out", "student"])
    assert "README.md is not from a student of Solera's" in str(done.exception)
    assert [file.name for file in (arrays / "student").iterdir() if not file.name.startswith(".lock")] == ["README.md"]


def test_forecasts_in_one_student_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(240, 3)).astype(np.float32)
    y = 100 + 20 * x[:, 0] + 2 * generator.normal(size=240)
    members = y + generator.normal(size=(4, 240)) * (1 + 2 * np.abs(x[:, 1]))
    for name, array in {"x": x, "y": y, "members": members, "variances": np.full((4, 240), 4.0)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = ["--members", "members.npy", "--inputs", "x.npy", "--labels", "y.npy", "--epochs", "15"]
    done = solera("distill", *given, "--out", "student", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "NormalWishart" in done.stdout
    assert "RMSE" in done.stdout
    assert "the members give no variance" in done.stderr
    student = Student.load(tmp_path / "student")
    said = student.predict(x)
    assert np.corrcoef(said.mean.squeeze(1), y)[0, 1] > 0.8
    assert "RMSE" in called("distill", *given, "--variances", "variances.npy", "--method", "end", "--out", "one")
    refused = CliRunner().invoke(app, ["distill", *given[:4], "--out", "none"]).exception
    assert "pass labels to estimate the noise from" in str(refused)


def test_all_studies_run_one_after_the_other_and_go_on_where_they_were(tmp_path, monkeypatch, capsys):
    ran = []

    @dataclass(frozen=True)
    class Good(Recipe):
        data: str = "nowhere"

        def run(self, work):
            ran.append(self.data)
            return "a page"

    @dataclass(frozen=True)
    class Bad(Recipe):
        def run(self, work):
            raise ValueError("no data")

    @dataclass(frozen=True)
    class Brought(Good):
        study = False

    @dataclass(frozen=True)
    class Other(Good):
        seed: int = 3

    kinds = {"bad": Bad, "brought": Brought, "good": Good}
    monkeypatch.setattr("solera.recipes.names", lambda: list(kinds))
    monkeypatch.setattr("solera.recipes.find", kinds.__getitem__)

    def all_of_them(where):
        monkeypatch.setattr(sys, "argv", ["solera", "run", "all", "--data", where, "--out", str(tmp_path / "runs")])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 1
        return capsys.readouterr().err

    assert "1 of 2 studies failed (bad): the same command tries them again" in all_of_them("here")
    page = tmp_path / "runs" / "good" / "results.md"
    assert page.read_text() == "a page"
    assert f"good is finished: {page}" in all_of_them("elsewhere")  # the data sets may have moved
    assert ran == ["here"]
    page.unlink()
    all_of_them("elsewhere")
    assert ran == ["here", "elsewhere"]
    monkeypatch.setitem(kinds, "good", Other)
    assert "seed was 0, now 3" in all_of_them("elsewhere"), "a finished run with other settings is no such study"


def test_what_a_person_brings_is_no_study():
    assert {name for name in names() if not find(name).study} == {"arrays", "tag-files"}
