"""Every student as one graph: traced, run by onnxruntime, and held against PyTorch and against 40 digits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from solera import Batches, Ensemble, Student, Training, distill
from solera.methods import (
    BatchEnsemble,
    DirichletMixture,
    EnD,
    EnD2,
    Hydra,
    LatentBE,
    LogisticNormal,
    NormalWishart,
    ProxyDirichlet,
)
from solera.nn import MLP, ConvNet, ResNet
from solera.serving import Graph, export, halve, quantize, random_inputs
from solera.training.card import Input, Preprocessing
from tests import referee
from tests.cli.test_cli import called, refused

SHORT = Training(epochs=2, lr=1e-2)
SPLIT = ("mean", "total", "data", "knowledge")


class Tagger(nn.Module):
    """A class for every token: [B, T] → [B, T, K]."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(20, 8), nn.Conv1d(8, 8, 3, padding=1)
        self.classify = nn.Linear(8, outputs)

    def forward(self, tokens):
        return self.classify(self.mix(self.embed(tokens).mT).mT.relu())


class TwoInputs(nn.Module):
    """A row and a class, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.classify = nn.Embedding(5, 4), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.classify(torch.cat([inputs["row"], self.embed(inputs["kind"])], -1))


def rows():
    return 3 + 2 * torch.randn(40, 5)


def images():
    return torch.randn(40, 1, 8, 8)


def tokens():
    return torch.randint(20, (20, 6))


def classifier(outputs=3):
    return MLP.for_inputs(rows(), outputs, (8,))


def regressor(outputs):
    return MLP.for_inputs(rows(), outputs, (8,), targets=500 + 100 * torch.randn(40, 2))


FITTED = {"mean_temperature": 1.25, "precision_slope": 0.75, "precision_shift": -0.5}

CASES = {
    "EnD": (EnD(), classifier, rows),
    "EnD gaussian": (EnD(family="gaussian"), regressor, rows),
    "EnD tokens": (EnD(), Tagger, tokens),
    "ProxyDirichlet": (ProxyDirichlet(), classifier, rows),
    "NormalWishart fitted": (
        NormalWishart(variance_shift=0.3, belief_slope=0.8, belief_shift=-0.4),
        regressor,
        rows,
    ),
    "DirichletMixture": (DirichletMixture(mean_temperature=1.2, precision_shift=0.4), classifier, rows),
    "LogisticNormal tokens": (LogisticNormal(rank=1, mean_temperature=1.2, deviation_shift=0.4), Tagger, tokens),
    "ProxyDirichlet images": (ProxyDirichlet(), lambda k=3: ConvNet((1, 8, 8), k, (4,), 8), images),
    "ProxyDirichlet tokens": (ProxyDirichlet(mean_offset=0.3, **FITTED), Tagger, tokens),
    "EnD two inputs": (
        EnD(),
        lambda k=3: TwoInputs(),
        lambda: {"row": torch.randn(20, 4), "kind": torch.randint(5, (20,))},
    ),
    "Hydra, two layers": (Hydra(head=2), classifier, rows),
    "Hydra gaussian": (Hydra(family="gaussian"), regressor, rows),
    "Hydra, vmap": (Hydra(head="group3"), lambda k=3: ResNet(8, (1, 8, 8), k, channels=4), images),
    "LatentBE gaussian": (LatentBE(temperature=1.0, family="gaussian"), regressor, rows),
    "BatchEnsemble": (BatchEnsemble(), classifier, rows),
}


def trained(case):
    """A student that was really distilled, for two epochs, and inputs such as it knows."""
    method, make, inputs_of = CASES[case]
    inputs, family = inputs_of(), getattr(method, "family", "categorical")
    members = [make(4) if family == "gaussian" else make() for _ in range(3)]
    labels = None if family == "gaussian" else ["ant", "bee", "cat"]
    model = make(method.outputs(2 if family == "gaussian" else 3))
    ensemble = Ensemble(members, class_names=labels, family=family)
    return distill(ensemble, model, Batches(inputs, batch_size=10), method, SHORT), inputs


def agree(student, graph, inputs):
    """onnxruntime by itself, without the exporter's own comparison."""
    said = student.predict(inputs)
    given = inputs if isinstance(inputs, dict) else {"inputs": inputs}
    arrays = graph.session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    for name, array in zip(graph.outputs, arrays, strict=True):
        wanted = getattr(said, name)
        assert array.shape == wanted.shape
        scale = wanted.abs().clamp(min=1)
        if name != "mean":  # a variance is known to what the means are: of classes, at most 1, this never counts
            scale = torch.maximum(scale, said.mean.abs().amax(-1) * wanted.abs().sqrt())
        assert float(((torch.tensor(array) - wanted).abs() / scale).max()) <= 1e-5, name


# an export takes seconds: these are exported by the tests of exactness, of int8 and of the command line
ELSEWHERE = {"EnD", "Hydra gaussian", "ProxyDirichlet images", "ProxyDirichlet"}
# and these have a sibling here: merged, LatentBE is EnD; other methods are asked about tokens, too
LONG = {"LatentBE gaussian", "EnD tokens"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES if case not in ELSEWHERE],
)
def test_every_method_says_in_onnxruntime_what_it_says_in_torch(case, tmp_path):
    student, inputs = trained(case)
    done = export(student, tmp_path / "student.onnx", inputs)
    assert list(tmp_path.iterdir()) == [done.path]  # one file, nothing beside it
    assert max(done.errors.values()) <= 1e-5
    assert done.batch_sizes == (1, 2, len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs))
    graph = Graph(done.path)
    assert graph.outputs == (SPLIT if hasattr(student.predict(inputs), "knowledge") else SPLIT[:2])
    assert graph.class_names == student.class_names
    assert graph.metadata["fingerprint"] == student.fingerprint
    assert all(axes[0] == "batch" for axes in graph.inputs.values())
    _, _, inputs_of = CASES[case]
    torch.manual_seed(5)
    for examples in (1, 3, 20):
        fresh = inputs_of()
        agree(
            student, graph, {k: v[:examples] for k, v in fresh.items()} if isinstance(fresh, dict) else fresh[:examples]
        )
    if "tokens" in case:
        assert graph.inputs == {"inputs": ("batch", "tokens")}
        for length in (1, 2, 33):
            agree(student, graph, torch.randint(20, (4, length)))
    operators = [node.op_type for node in load(done.path).graph.node]
    assert not {"Lgamma", "Digamma", "Loop", "Scan"} & set(operators)
    if "vmap" in case:  # the body of many heads is in the graph once
        one = [module for module in student.model.modules() if isinstance(module, nn.Conv2d)]
        assert len(one) < operators.count("Conv") < 3 * len(one)


def load(path):
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(model)
    return model


def exact(method, z):
    """To 40 digits."""
    values = referee.numbers(z)
    if isinstance(method, EnD):
        return {"total": referee.entropy(referee.softmax(values))}
    if getattr(method, "as_published", False):
        return referee.dirichlet([referee.exp(v) + 1 for v in values])
    return referee.mapped(values, method.mean_temperature, 0, method.precision_slope, method.precision_shift)


EXACT = {  # every kind, and few and many classes, once: an export takes seconds
    "Proxy": (ProxyDirichlet(), 1000),
    "EnD2, fitted": (EnD2(**FITTED), 2),
    "Proxy, published": (ProxyDirichlet(as_published=True), 1000),
    "EnD": (EnD(), 2),
}


@pytest.mark.parametrize(("method", "classes"), EXACT.values(), ids=EXACT)
def test_the_graph_is_as_exact_as_the_formulas(method, classes, tmp_path):
    """ONNX has no log1p: taken as ln(1 + x), knowledge would be wrong by all of it where the student is sure."""
    levels = torch.tensor([-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0])
    logits = levels[:4].repeat_interleave(7).unsqueeze(-1).repeat(1, classes)
    logits[:, 0] = levels.repeat(4)
    student = Student(nn.Identity(), method)
    graph = Graph(export(student, tmp_path / "exact.onnx", logits).path)
    said, eager = graph(logits), student.predict(logits)
    for row, z in enumerate(logits):
        wanted = exact(method, z)
        for name in {"total", "knowledge"} & wanted.keys():
            size = float(wanted[name])
            error, own = (abs(float(values[row]) - size) for values in (said[name], getattr(eager, name)))
            assert error <= 3e-6 * size + 2 * own, (name, z[:2], size)


def test_members_that_nearly_agree_keep_their_small_knowledge(tmp_path):
    """eˣ − 1 of a small x, too."""
    torch.manual_seed(0)
    graph = Graph(export(Student(nn.Identity(), Hydra()), tmp_path / "mixture.onnx", torch.randn(30, 5, 4)).path)
    for size in (1e-1, 1e-2, 1e-3):
        logits = torch.randn(30, 1, 4) + size * torch.randn(30, 5, 4)
        for got, row in zip(graph(logits)["knowledge"], logits, strict=True):
            wanted = float(referee.mixture([referee.numbers(m) for m in row])["knowledge"])
            assert abs(got / wanted - 1) < 1e-6 / size


def test_torch_export_writes_the_same_answers(tmp_path):
    student, inputs = trained("ProxyDirichlet tokens")
    done = export(student, tmp_path / "student.pt2", inputs)
    extra = {"solera.json": ""}
    program = torch.export.load(done.path, extra_files=extra).module()
    said = student.predict(inputs[:7, :4])
    for name, got in zip(SPLIT, program(inputs[:7, :4]), strict=True):
        torch.testing.assert_close(got, getattr(said, name))
    assert json.loads(json.loads(extra["solera.json"])["labels"]) == ["ant", "bee", "cat"]


def test_names_units_and_labels_travel_inside(tmp_path):
    features, units = ["age", "height", "mass", "pulse", "heat"], {"age": "years", "heat": "K"}
    given = Preprocessing([Input("measurements", [5])], features, units)
    student = Student(MLP(5, 3, (8,)), EnD(), ["ant", "bee", "cat"], given)
    path = export(student, tmp_path / "student.onnx", rows().numpy().astype(np.float64)).path
    model = load(path)
    props = {p.key: p.value for p in model.metadata_props}
    assert json.loads(props["labels"]) == ["ant", "bee", "cat"]
    inside = json.loads(props["preprocessing"])
    assert inside["features"] == features
    assert inside["units"] == units
    assert inside["inputs"] == [{"name": "measurements", "shape": [5], "dtype": "float32"}]
    assert json.loads(props["method"])["name"] == "EnD"
    assert props["solera"]
    assert [value.name for value in model.graph.input] == ["measurements"]
    assert [value.name for value in model.graph.output] == list(SPLIT[:2])
    assert b"/solera/" not in path.read_bytes()  # torch writes down where its source files are


class Recurrent(nn.Module):
    """Unrolled by torch.export: it has as many tokens as the example."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pass_on, self.classify = nn.Embedding(20, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.classify(self.pass_on(self.embed(tokens))[0])


def test_a_network_that_fixes_its_tokens_is_exported_with_them(tmp_path):
    student = Student(Recurrent(), EnD())
    done = export(student, tmp_path / "student.onnx", tokens()[:2, :3])
    assert done.inputs == {"inputs": ("batch", 3)}
    assert done.batch_sizes == (1, 2, 16)
    agree(student, Graph(done.path), tokens()[:, :3])


def test_inputs_that_will_not_do_are_refused(tmp_path):
    student = Student(MLP(5, 3, (8,)), EnD())
    with pytest.raises(
        ValueError, match=r"cannot read these example_inputs \(float32 \[10, 4\]; .*inputs float32 \[5\]"
    ):
        export(student, tmp_path / "student.onnx", torch.zeros(10, 4))
    with pytest.raises(ValueError, match="example_inputs are empty"):
        export(student, tmp_path / "student.onnx", torch.zeros(0, 5))
    with pytest.raises(ValueError, match=r"name it \.onnx .* or \.pt2"):
        export(student, tmp_path / "student.tflite", rows())
    assert not list(tmp_path.iterdir())


class Counting(nn.Module):
    """Depends on how many examples it is given."""

    def forward(self, inputs):
        return inputs / len(inputs)


class Fickle(nn.Module):
    """Says one thing while it is traced and another in PyTorch."""

    def forward(self, inputs):
        return inputs * (1.001 if torch.compiler.is_compiling() else 1.0)


def test_a_graph_that_would_be_wrong_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"cannot trace this Counting for any number of examples.*shape\[0\]"):
        export(Student(Counting(), EnD()), tmp_path / "student.onnx", rows())
    with pytest.raises(ValueError, match=r"was not written: .* differs from PyTorch in mean by .*e-0\d, total by"):
        export(Student(Fickle(), EnD()), tmp_path / "student.onnx", rows())
    assert not list(tmp_path.iterdir())


def test_a_graph_says_what_it_takes(tmp_path):
    graph = Graph(export(Student(MLP(5, 3, (8,)), EnD()), tmp_path / "student.onnx", rows()).path)
    with pytest.raises(ValueError, match=r"takes \['inputs'\], got \['pixels'\]"):
        graph({"pixels": rows()})
    with pytest.raises(
        ValueError, match=r"takes \{'inputs': \"float32 \['batch', 5\]\"\}, got \{'inputs': 'float32 \[2, 4\]"
    ):
        graph(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"got \{'inputs': '<U1 \[1\]'\}"):
        graph(np.array(["a"]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Graph(tmp_path / "nowhere.onnx")


@pytest.mark.parametrize("case", ["ProxyDirichlet images", "Hydra gaussian", "EnD"])
def test_the_cost_of_int8_is_measured(case, tmp_path):
    student, inputs = trained(case)
    path = export(student, tmp_path / "student.onnx", inputs).path
    cost = quantize(path, tmp_path / "student.int8.onnx", inputs)
    before, after = Graph(path), Graph(cost.path)
    said, says = before(inputs), after(inputs)
    assert after.class_names == before.class_names
    assert cost.changes.keys() == said.keys()
    for name, change in cost.changes.items():
        assert change == pytest.approx(float(np.abs(said[name] - says[name]).mean()))
    assert 0 < cost.changes["mean"] < 0.1 * float(np.abs(said["mean"]).mean())
    assert {node.op_type for node in load(cost.path).graph.node} & {"ConvInteger", "MatMulInteger"}
    agreement = float((said["mean"].argmax(-1) == says["mean"].argmax(-1)).mean())
    assert cost.agreement == (None if "gaussian" in case else agreement)
    assert cost.bytes == (path.stat().st_size, cost.path.stat().st_size)
    assert all(0 < ms < 1000 for ms in cost.milliseconds)
    assert "latency" in str(cost)


def test_float16_weights_halve_the_file_and_change_little(tmp_path):
    torch.manual_seed(0)
    student, inputs = Student(MLP(5, 3, (64, 64)), EnD(), ["a", "b", "c"]).eval(), rows()
    path = export(student, tmp_path / "student.onnx", inputs).path
    cost = halve(path, tmp_path / "student.half.onnx", inputs)
    said, says = Graph(path)(inputs), Graph(cost.path)(inputs)
    for name, change in cost.changes.items():
        assert 0 < change < 1e-2
        assert change == pytest.approx(float(np.abs(said[name] - says[name]).mean()))
    weights = {w.name: w.data_type for w in load(cost.path).graph.initializer}
    assert sum(kind == 10 for kind in weights.values()) == 5  # ONNX's float16: three matrices and two biases
    assert cost.bytes[0] - cost.bytes[1] > 2 * (64 * 64)
    assert Graph(cost.path).class_names == ["a", "b", "c"]


def test_numbers_are_made_up_in_the_units_of_the_inputs():
    network = MLP.for_inputs(1000 + rows(), 3)
    made = random_inputs(Student(network, EnD()))
    assert made.shape == (64, 5)
    assert 990 < float(made.mean()) < 1016
    with pytest.raises(ValueError, match=r"no numbers can be made up: .*--inputs"):
        random_inputs(Student(Tagger(), EnD()))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_its_packages_the_extra_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'solera\[onnx\]'"):
        export(Student(MLP(5, 3), EnD()), tmp_path / "student.onnx", rows())


def solera(*arguments, cwd):
    program = str(Path(sys.executable).with_name("solera"))
    return subprocess.run([program, *arguments], capture_output=True, text=True, cwd=cwd, timeout=300)


def test_the_command_line_from_a_folder_to_a_graph(tmp_path, monkeypatch):
    student, inputs = trained("ProxyDirichlet")
    student.save(tmp_path / "student")
    np.save(tmp_path / "x.npy", inputs.numpy().astype(np.float64))
    done = solera("export", "student", "student.onnx", "--inputs", "x.npy", "--int8", "--float16", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for said in ("takes inputs [batch, 5]", "mean  largest error", "knowledge  largest error", "on 40 examples"):
        assert said in done.stdout
    for said in ("agreement  ", "knowledge  changed by", "student.int8.onnx: ", "student.float16.onnx: ", "latency  "):
        assert said in done.stdout
    agree(student, Graph(tmp_path / "student.onnx"), inputs)
    for smaller in ("int8", "float16"):
        assert Graph(tmp_path / f"student.{smaller}.onnx").class_names == ["ant", "bee", "cat"]

    monkeypatch.chdir(tmp_path)
    assert "compared with PyTorch on random numbers" in called("export", "student", "again.pt2")
    assert "README.md" in called("inspect", "student")


def test_the_command_line_refuses_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Student(Tagger(), EnD()).save(tmp_path / "mine")
    Student(MLP(5, 3, (8,)), EnD()).save(tmp_path / "student")
    (tmp_path / "text.npy").write_text("text")
    for arguments, message in (
        (["mine", "a.onnx"], r"model=Tagger(...)"),
        (["nowhere", "a.onnx"], "nowhere holds no student"),
        (["student", "a.onnx", "--inputs", "none.npy"], "there is no file none.npy"),
        (["student", "a.onnx", "--inputs", "text.npy"], "text.npy is not a .npy file of numbers"),
        (["student", "a.pt2", "--int8"], "--int8 is for ONNX: name the file a.onnx"),
        (["student", "a.pt2", "--float16"], "--float16 is for ONNX: name the file a.onnx"),
        (["student", "a.bin"], "name it .onnx"),
    ):
        line = refused(["export", *arguments], monkeypatch, capsys)
        assert line.startswith("solera: ")
        assert message in line
