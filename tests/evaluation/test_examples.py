"""The examples of a report: the right ones, as they are, with the answers that the models gave."""

import base64
import io

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from solera import ProxyDirichlet, Student, evaluate
from solera.data import Sequences
from solera.evaluation.examples import choose
from solera.evaluation.png import data_uri, png
from solera.evaluation.thumbnails import shown, value_range
from tests.evaluation.made_up import class_answers, evaluated, real_answers


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 3), (1, 1)])
def test_png_is_read_by_pillow(shape):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png(pixels)))), pixels)
    prefix, _, text = data_uri(pixels).partition(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(text) == png(pixels)


def pixels_of(entry):
    image = pytest.importorskip("PIL.Image")
    content = base64.b64decode(entry["image"].partition(",")[2])
    return np.asarray(image.open(io.BytesIO(content))).astype(float)


@pytest.mark.parametrize(
    ("inputs", "span"),
    [
        (torch.tensor([0.0, 0.5, 1.0]), (0, 1)),
        (torch.tensor([0.0, 128.0, 255.0]), (0, 255)),
        (torch.tensor([-2.0, 0.0, 3.0]), (-2, 3)),
        (torch.tensor([-2.0, -2.0]), (-2, -1)),
    ],
)
def test_black_and_white(inputs, span):
    assert value_range(inputs) == span


def test_images_of_either_order_small_and_large():
    image = torch.rand(3, 6, 5)
    assert np.allclose(pixels_of(shown(image, (0, 1), None)), 255 * image.permute(1, 2, 0).numpy(), atol=0.51)
    assert shown(image.permute(1, 2, 0), (0, 1), None) == shown(image, (0, 1), None)
    large = torch.linspace(0, 1, 130).expand(1, 200, 130)
    small = pixels_of(shown(large, (0, 1), None))
    assert max(small.shape) <= 64
    assert small.mean() == pytest.approx(127.5, abs=2)
    assert (np.diff(small, axis=1) >= 0).all()


def test_rows_have_names_and_long_ones_are_cut():
    assert shown(torch.tensor([1.5, 2.0]), (0, 1), ["age", "height"]) == {"row": [["age", 1.5], ["height", 2.0]]}
    long = shown(torch.arange(100.0), (0, 1), None)["row"]
    assert long[1] == ["x1", 1.0]
    assert long[-1] == ["…", "40 more"]
    assert "shape (2, 3)" in shown(torch.zeros(2, 3), (0, 1), None)["text"]


def test_the_most_uncertain_of_every_kind_are_there():
    result = evaluated(class_answers())
    chosen = choose(result.columns, result.elements, result.students)
    assert len(chosen) <= 40
    for measure in ("total", "data", "knowledge"):
        for name, columns in result.columns["Dirichlet"].items():
            assert chosen[name, int(np.argmax(columns[measure]))].startswith("most ")
    typical = [(name, row) for (name, row), why in chosen.items() if why == "typical"]
    assert {name for name, _ in typical} == {"test", 'far, "away"'}
    total = result.columns["Dirichlet"]["test"]["total"]
    ranks = np.argsort(np.argsort(total))
    assert all(abs(ranks[row] - 150) < 5 for name, row in typical if name == "test")


def test_answers_are_those_of_the_models():
    models, inputs, labels = class_answers()
    names = ["ant", "bee", "cat", "dog"]
    result = evaluated((models, inputs, labels), class_names=names)
    for example in result.examples:
        place, row = example["set"], example["row"]
        assert example["label"] == (names[int(labels[row])] if place == "test" else None)
        assert np.allclose(pixels_of(example["shown"]), 255 * inputs[place][row, 0].numpy(), atol=0.51)
        assert set(example["answers"]) == {*models, "single, calibrated"}
        for name, answer in example["answers"].items():
            if name not in models:
                continue
            said = models[name][place]
            p = said.mean[row]
            assert dict(answer["top"]) == pytest.approx(dict(zip(names, p.tolist(), strict=True)), rel=1e-4)
            assert answer["top"][0][0] == names[int(p.argmax())]
            assert answer["total"] == pytest.approx(said.total[row].item(), rel=1e-4)
            assert (answer["knowledge"] is None) == (name in ("single", "EnD²"))


def test_real_answers_have_the_interval_that_scipy_gives():
    models, inputs, y = real_answers()
    result = evaluated((models, inputs, y), features=["a", "b", "c"])
    for example in result.examples[:6]:
        place, row = example["set"], example["row"]
        assert example["shown"]["row"][1][0] == "b"
        said, answer = models["Wishart"][place], example["answers"]["Wishart"]
        belief, freedom = said.belief[row].item(), said.freedom[row].item()
        scale = said.log_variance[row].exp().item() * (freedom - 2) * (1 + 1 / belief) / freedom
        low, high = stats.t(freedom, said.mean[row].item(), scale**0.5).interval(0.9)
        assert [answer["low"], answer["high"]] == pytest.approx([low, high], rel=1e-4)
        members, ends = models["ensemble"][place].members, example["answers"]["ensemble"]
        normal = stats.norm(members.mean[row, :, 0].numpy(), members.variance[row, :, 0].sqrt().numpy())
        assert normal.cdf(ends["low"]).mean() == pytest.approx(0.05, abs=1e-4)
        assert normal.cdf(ends["high"]).mean() == pytest.approx(0.95, abs=1e-4)


def test_several_dimensions_do_not_pretend():
    result = evaluated(real_answers(2))
    assert {answer["mean"] for e in result.examples for answer in e["answers"].values()} == {None}


def test_sequences_are_told_token_by_token():
    torch.manual_seed(0)
    batches = Sequences([torch.randint(9, (n,)) for n in (3, 5, 2, 4)], [torch.randint(3, (n,)) for n in (3, 5, 2, 4)])
    student = Student(nn.Embedding(9, 3), ProxyDirichlet())
    result = evaluate({"student": student}, batches, class_names=["a", "b", "c"])
    assert {example["row"] for example in result.examples} == {0, 1, 2, 3}
    for example in result.examples:
        batch = batches.take([example["row"]])
        said = student.predict(batch.inputs)
        assert example["shown"]["tokens"] == [str(token) for token in batch.inputs[0].tolist()]
        assert example["label"] == ["abc"[k] for k in batch.target[0].tolist()]
        tokens = example["answers"]["student"]["tokens"]
        assert [t["top"][0][0] for t in tokens] == ["abc"[k] for k in said.mean[0].argmax(-1).tolist()]
        assert [t["knowledge"] for t in tokens] == pytest.approx(said.knowledge[0].tolist(), rel=1e-4)
        assert example["answers"]["student"]["total"] == pytest.approx(said.total.mean().item(), rel=1e-4)
