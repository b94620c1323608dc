"""Members in ONNX files, run by onnxruntime."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from solera import Batch, Ensemble
from solera.core.errors import DamagedFileError
from solera.nn import MLP
from solera.teachers.adapters import Onnx
from solera.testing import check_teacher

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A torch network and its file."""
    torch.manual_seed(0)
    path, network = tmp_path_factory.mktemp("onnx") / "exported.onnx", MLP(4, 3, (8,)).eval()
    shapes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(network, (torch.zeros(2, 4),), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    return network, path


def test_a_file_says_what_the_network_says(exported):
    network, path = exported
    inputs = torch.randn(37, 4)
    ensemble = Ensemble([network, Onnx(path, probabilities=False), MLP(4, 3)])
    check_teacher(ensemble, Batch(inputs, torch.arange(37)))
    said = ensemble.predict(inputs, batch_size=10).members.logits
    torch.testing.assert_close(said[:, 1], said[:, 0])


def test_a_file_does_not_say_what_its_numbers_are(exported):
    with pytest.raises(ValueError, match=r"does not say whether its output '.*' holds probabilities or logits"):
        Ensemble([str(exported[1])])
    with pytest.raises(ValueError, match=r"exported.onnx are not probabilities: row 0 is"):
        Onnx(exported[1], probabilities=True)(torch.randn(5, 4))


def graph(path, outputs=("label", "probabilities"), batch="N", classes=3):
    """What skl2onnx writes for a linear classifier: labels and probabilities."""
    helper, kind = onnx.helper, onnx.TensorProto
    weight = np.arange(12, dtype=np.float64).reshape(4, classes) / 10
    nodes = [
        helper.make_node("MatMul", ["features", "weight"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=-1, keepdims=0),
    ]
    shapes = {
        "label": helper.make_tensor_value_info("label", kind.INT64, [batch]),
        "probabilities": helper.make_tensor_value_info("probabilities", kind.DOUBLE, [batch, classes]),
        "logits": helper.make_tensor_value_info("logits", kind.DOUBLE, [batch, classes]),
    }
    inputs = [helper.make_tensor_value_info("features", kind.DOUBLE, [batch, 4])]
    body = helper.make_graph(
        nodes, "linear", inputs, [shapes[o] for o in outputs], [onnx.numpy_helper.from_array(weight, "weight")]
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path, torch.from_numpy(weight)


def test_the_fingerprint_covers_weights_in_another_file(tmp_path):
    model = onnx.load(graph(tmp_path / "inside.onnx")[0])
    path, weights = tmp_path / "outside.onnx", tmp_path / "weights.bin"
    onnx.save(model, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    before = Onnx(path).fingerprint
    assert before == Onnx(path).fingerprint != Onnx(tmp_path / "inside.onnx").fingerprint
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.write_bytes(content)
    assert Onnx(path).fingerprint != before


@pytest.mark.parametrize("outputs", [("label", "probabilities"), ("logits",)])
def test_an_output_named_for_what_it_is_needs_no_word(tmp_path, outputs):
    path, weight = graph(tmp_path / "model.onnx", outputs)
    inputs = torch.randn(6, 4)
    expected = (inputs.double() @ weight).softmax(-1).float()
    for given in (inputs, {"features": inputs, "other": inputs}):
        torch.testing.assert_close(Ensemble([path]).predict(given).mean, expected)
    named = Onnx(path, class_names=[1, 2, 3])
    assert Ensemble([named], class_names=[3, 1, 2]).class_names == ["3", "1", "2"]
    torch.testing.assert_close(Ensemble([named], class_names=[3, 1, 2]).predict(inputs).mean, expected[:, [2, 0, 1]])


def test_files_that_will_not_do_are_refused(tmp_path, exported):
    with pytest.raises(ValueError, match=r"one output of floats \[B, K\], it has 'logits' .*'probabilities'"):
        Onnx(graph(tmp_path / "two.onnx", ("logits", "probabilities"))[0])
    with pytest.raises(ValueError, match=r"it has 'label' tensor\(int64\).*zipmap"):
        Onnx(graph(tmp_path / "label.onnx", ("label",))[0])
    with pytest.raises(ValueError, match=r"takes exactly 2 examples at a time .* dynamic first axis"):
        Onnx(graph(tmp_path / "fixed.onnx", batch=2)[0])
    with pytest.raises(FileNotFoundError, match=r"nowhere.onnx is not there"):
        Ensemble([tmp_path / "nowhere.onnx"])
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(ValueError, match=r"broken.onnx is no ONNX model, or a damaged one"):
        Onnx(tmp_path / "broken.onnx")
    with pytest.raises(ValueError, match=r"needs the inputs \['features'\], got \['pixels'\]"):
        Ensemble([graph(tmp_path / "model.onnx")[0]]).predict({"pixels": torch.zeros(2, 4)})


def test_without_onnxruntime_the_extra_is_named(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'solera\[onnx\]'"):
        Onnx(exported[1], probabilities=False)


def with_external(path, location, size=48):
    """A classifier that keeps its weights in another file."""
    helper, kind = onnx.helper, onnx.TensorProto
    weight = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "weight")
    onnx.external_data_helper.set_external_data(weight, location, offset=0, length=size)
    weight.ClearField("raw_data")
    weight.data_location = kind.EXTERNAL
    body = helper.make_graph(
        [helper.make_node("MatMul", ["features", "weight"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info("features", kind.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("logits", kind.FLOAT, ["N", 3])],
        [weight],
    )
    path.write_bytes(
        helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    )
    return path


def test_weights_beside_the_file_are_part_of_it(tmp_path):
    path = with_external(tmp_path / "a.onnx", "weights.bin")
    numbers = np.arange(12, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(numbers.tobytes())
    first = Onnx(path)
    inputs = torch.randn(5, 4)
    wanted = inputs @ torch.from_numpy(numbers.reshape(4, 3))
    torch.testing.assert_close(first(inputs), wanted)
    (tmp_path / "weights.bin").write_bytes((numbers + 1).tobytes())
    torch.testing.assert_close(first(inputs), wanted)  # what was read is what runs
    assert Onnx(path).fingerprint != first.fingerprint


@pytest.mark.parametrize("location", ["/dev/zero", "../secret", "pipe", "link", "missing", "", "folder"])
def test_weights_elsewhere_or_without_an_end_are_refused(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(48))
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path / "secret")
    path = with_external(folder / "a.onnx", location)
    with pytest.raises(DamagedFileError, match=r"a\.onnx keeps weights in .*, which is no regular file in its folder"):
        Onnx(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 100, b"\x3a" * 5000])
def test_a_file_that_is_no_model_is_one_line(tmp_path, content):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.onnx"):
        Onnx(tmp_path / "a.onnx", probabilities=False)


def test_constants_are_not_computed_when_a_file_is_opened(tmp_path):
    """A few hundred bytes that ask for 400 MB."""
    from onnx import TensorProto, helper, numpy_helper, save

    shape = numpy_helper.from_array(np.array([10**4, 10**4], np.int64))
    nodes = [
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"]),
        helper.make_node("ReduceMean", ["ones"], ["one"], keepdims=0),
        helper.make_node("Add", ["x", "one"], ["logits"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("x", "logits")]
    model = helper.make_model(
        helper.make_graph(nodes, "bomb", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    save(model, tmp_path / "bomb.onnx")
    assert (tmp_path / "bomb.onnx").stat().st_size < 1000

    def megabytes(what):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = megabytes("VmRSS")
    assert Onnx(tmp_path / "bomb.onnx").output == "logits"
    assert megabytes("VmHWM") - before < 100
