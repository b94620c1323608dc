"""Evaluation keeps columns only: the same numbers however the data are dealt out, in memory that does not grow."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from solera import Batches, EnD, Ensemble, ProxyDirichlet, Student, evaluate
from solera.data import UNLABELLED, Batch
from solera.nn import MLP
from solera.teachers import capture
from tests.helpers import PEAK, small_batches, small_ensemble


def models():
    torch.manual_seed(2)
    ensemble = small_ensemble(members=3)
    return {"single": ensemble.member(0), "ensemble": ensemble, "student": Student(MLP(4, 3, (8,)), ProxyDirichlet())}


def test_the_same_numbers_however_they_are_dealt_out(monkeypatch):
    data = small_batches(examples=90).all
    whole = evaluate(models(), data.inputs, data.target, unfamiliar={"far": 9 * data.inputs}, resamples=5)
    monkeypatch.setattr("solera.evaluation.stream.NUMBERS", 40)  # a handful of rows at a time
    parts = [data.take(slice(0, 7)), data.take(slice(7, 60)), data.take(slice(60, 90))]
    dealt = evaluate(models(), parts, unfamiliar={"far": Batches(9 * data.inputs, batch_size=11)}, resamples=5)
    for name, row in whole.rows.items():
        for metric, value in row.items():
            if metric not in ("parameters", "µs/example") and value is not None:
                assert dealt.rows[name][metric] == pytest.approx(value, rel=1e-5, nan_ok=True), (name, metric)
    assert dealt.draws["student"]["NLL"] == pytest.approx(whole.draws["student"]["NLL"], rel=1e-5)


def test_elements_without_a_label_are_left_out():
    data = small_batches(examples=50).all
    some = data.target.clone()
    some[::2] = UNLABELLED
    hidden = evaluate(models(), data.inputs, some)
    plain = evaluate(models(), data.inputs[1::2], data.target[1::2])
    assert hidden.rows["student"]["NLL"] == pytest.approx(plain.rows["student"]["NLL"])
    assert hidden.sizes["test"] == 25
    assert hidden.elements["test"].example.tolist() == list(range(1, 50, 2))
    assert all(example["row"] % 2 for example in hidden.examples)


def test_weights_count():
    data = small_batches(examples=40).all
    weight = torch.arange(40.0) % 3
    weighed = evaluate(models(), Batches(data.inputs, data.target, weight=weight))
    rows = np.repeat(np.arange(40), weight.int().numpy())
    repeated = evaluate(models(), data.inputs[rows], data.target[rows])
    for metric in ("accuracy", "NLL", "ECE", "Brier"):
        assert weighed.rows["student"][metric] == pytest.approx(repeated.rows["student"][metric], rel=1e-5), metric
    assert weighed.sizes["test"] == int((weight > 0).sum())


def test_a_shifted_set_with_labels_has_accuracy_and_calibration():
    data = small_batches(examples=60).all
    result = evaluate(models(), data.inputs, data.target, unfamiliar={"noisy": (data.inputs + 1, data.target)})
    alone = evaluate(models(), data.inputs + 1, data.target)
    for metric in ("accuracy", "NLL", "ECE"):
        assert result.rows["student"][f"{metric} on noisy"] == pytest.approx(alone.rows["student"][metric])
    assert "accuracy on noisy" in result.markdown()


def test_a_teacher_that_remembers_can_be_asked(tmp_path):
    data = small_batches(examples=30)
    ensemble = small_ensemble(members=3)
    kept = capture(ensemble, data, tmp_path, "dense")
    student = Student(MLP(4, 3, (8,)), EnD())
    remembered = evaluate({"ensemble": kept, "student": student}, data)
    live = evaluate({"ensemble": ensemble, "student": student}, data)
    assert remembered.rows["ensemble"]["NLL"] == pytest.approx(live.rows["ensemble"]["NLL"], rel=1e-2)


def test_dicts_of_inputs():
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, a, b):
            return self.layer(a + b)

    data = small_batches(examples=30).all
    inputs = {"a": data.inputs, "b": data.inputs}
    result = evaluate({"ensemble": Ensemble([Sum(), Sum()]), "student": Student(Sum(), EnD())}, inputs, data.target)
    assert result.examples[0]["shown"]["text"] == "a [4], b [4]"
    assert 0 <= result.rows["student"]["accuracy"] <= 1


def test_what_cannot_be_asked_is_told():
    data = small_batches(examples=10).all
    with pytest.raises(TypeError, match="odd is a Linear, which cannot be asked"):
        evaluate({"odd": torch.nn.Linear(4, 3)}, data.inputs, data.target)
    with pytest.raises(ValueError, match="the test data have no labels"):
        evaluate(models(), data.inputs)
    batches = [Batch(data.inputs, data.index, torch.full((10,), UNLABELLED))]
    with pytest.raises(ValueError, match="'test' has no element that counts"):
        evaluate(models(), batches)


MANY = """
import torch
from solera import Batches, Ensemble, ProxyDirichlet, Student, evaluate
torch.set_num_threads(1)
torch.manual_seed(0)
tokens = torch.randint(50, ({sequences}, 30))
make = lambda: torch.nn.Embedding(50, {classes})
ensemble = Ensemble([make() for _ in range(2)])
batches = Batches(tokens, tokens % 7, weight=torch.ones(tokens.shape), batch_size=64)
before = peak()
result = evaluate({{"ensemble": ensemble, "student": Student(make(), ProxyDirichlet())}}, batches)
assert len(result.columns["student"]["test"]["total"]) == 30 * {sequences}
print(peak() - before)
"""


def grown(sequences: int, classes: int) -> float:
    """Megabytes that an evaluation took beyond what was there before it, in a process of its own."""
    script = PEAK + MANY.format(sequences=sequences, classes=classes)
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_memory_does_not_grow_with_the_classes():
    """30 × 30 tokens × 40,000 classes are 145 MB a model and 430 MB of member logits, were they kept."""
    assert grown(30, 40_000) < 400
