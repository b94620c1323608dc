"""Distillation end to end, and one clear error for everything that can be wrong, before training starts."""

import numpy as np
import pytest
import torch
from torch import nn

from solera import Batch, Batches, Distiller, EnD, EnD2, ProxyDirichlet, Student, Training, capture, distill
from solera.core.errors import DamagedFileError, MismatchError
from solera.data import UNLABELLED
from solera.nn import MLP, ConvNet
from solera.teachers.adapters import Predictions
from tests.helpers import small_batches, small_ensemble

LONG = Training(epochs=60, lr=0.01)


@pytest.mark.parametrize("method", [EnD(), EnD2(), ProxyDirichlet()], ids=lambda m: type(m).__name__)
def test_a_student_learns_its_teacher(method):
    """The student must match the members' mean and rank their knowledge."""
    ensemble = small_ensemble(members=5)
    with torch.no_grad():
        for model in ensemble.models:
            for p in model.parameters():
                p.mul_(2)
    batches = small_batches(examples=400, batch_size=50)
    torch.manual_seed(1)
    student = distill(ensemble, MLP(4, 3, (64, 64)), batches, method, LONG)
    ours, theirs = student.predict(batches.all.inputs), ensemble.predict(batches.all.inputs)
    assert (ours.mean.argmax(-1) == theirs.mean.argmax(-1)).float().mean() > 0.85
    assert (ours.mean - theirs.mean).abs().mean() < 0.06
    if not isinstance(method, EnD):
        ranks = torch.stack([ours.knowledge, theirs.knowledge]).argsort(-1).argsort(-1).double()
        assert torch.corrcoef(ranks)[0, 1] > 0.7


def test_remembered_and_live_teachers_give_the_same_student(tmp_path):
    from solera.teachers import DenseCodec

    ensemble, batches = small_ensemble(), small_batches()
    remembered = capture(ensemble, batches, tmp_path, DenseCodec("float32"))
    students = []
    for teacher in (ensemble, remembered):
        torch.manual_seed(0)
        students.append(distill(teacher, MLP(4, 3, (8,)), batches, ProxyDirichlet(), Training(epochs=3)))
    for a, b in zip(*(s.parameters() for s in students), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_label_mixing_takes_labels_seriously_and_leaves_unlabelled_rows_to_the_teacher():
    ensemble, inputs = small_ensemble(), torch.randn(60, 4)
    labels = torch.full((60,), 2)
    mixed = Batches(inputs, labels, auxiliary=torch.randn(20, 4) + 5, batch_size=16)
    assert mixed.all.target is not None
    assert (mixed.all.target[60:] == UNLABELLED).all()
    torch.manual_seed(0)
    student = distill(ensemble, MLP(4, 3, (32,)), mixed, EnD(), Training(epochs=120, lr=0.01, label_weight=1.0))
    assert (student.predict(inputs).mean.argmax(-1) == 2).all()
    far = student.predict(mixed.all.inputs[60:]).mean
    assert (far - ensemble.predict(mixed.all.inputs[60:]).mean).abs().mean() < 0.1


def test_validation_keeps_the_best_epoch_and_patience_stops(tmp_path):
    ensemble, batches = small_ensemble(), small_batches(examples=80)
    train, held = batches.split(0.5)
    assert not set(train.all.index.tolist()) & set(held.all.index.tolist())
    training = Training(epochs=200, lr=1.0, schedule="constant", patience=3)
    torch.manual_seed(0)
    distill(ensemble, MLP(4, 3, (8,)), train, EnD(), training, validation=held, folder=tmp_path)
    from safetensors import safe_open

    with safe_open(tmp_path / "checkpoint.safetensors", framework="pt") as file:
        import json

        state = json.loads(file.metadata()["state"])
    losses = [h["validation"] for h in state["history"]]
    assert len(losses) < 200
    assert losses.index(min(losses)) == len(losses) - 4 == state["best_epoch"]


def test_the_proxys_best_epoch_is_not_one_before_it_has_learned_anything():
    """Members that agree about what they saw and contradict each other elsewhere make being sure costly there."""
    classes, draw, right = 20, torch.Generator().manual_seed(0), torch.arange(300) % 20
    x = 2 * nn.functional.one_hot(right, classes) + 0.4 * torch.randn(300, classes, generator=draw)
    train, held = Batches(x, right, batch_size=50).split(1 / 3)
    said = right[:, None].repeat(1, 5)
    other = (torch.rand(300, 5, generator=draw) < 0.2) & torch.isin(torch.arange(300), held.all.index)[:, None]
    said[other] = (said[other] + 1) % classes
    teacher = Predictions((12 * nn.functional.one_hot(said, classes).float()).log_softmax(-1))
    torch.manual_seed(0)
    network = MLP(20, classes, (64,))
    method, theirs = ProxyDirichlet(), teacher(held.all)
    with torch.no_grad():
        before = method.loss(network(held.all.inputs), theirs).mean()
    student = distill(teacher, network, train, method, Training(epochs=20, lr=0.01), validation=held)
    with torch.no_grad():
        after = method.loss(student.model(held.all.inputs), theirs).mean()
    assert after > before  # by its own loss the first epoch would have been the best
    assert (student.predict(held.all.inputs).mean.argmax(-1) == held.all.target).float().mean() > 0.9


def test_padded_tokens_do_not_teach():
    """The same sequences padded with garbage train to the same student."""

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))

        def forward(self, x):
            return self.layers(x)

    from solera import Ensemble

    torch.manual_seed(0)
    ensemble = Ensemble([Tagger(), Tagger()])
    x, weight = torch.randn(6, 5, 2), (torch.arange(5) < torch.tensor([5, 1, 3, 2, 5, 4])[:, None]).float()
    for method in (EnD(), EnD2(), ProxyDirichlet()):
        students = []
        for garbage in (0.0, 50.0):
            padded = torch.where(weight[..., None] > 0, x, torch.tensor(garbage))
            torch.manual_seed(1)
            model = Tagger()
            students.append(distill(ensemble, model, [Batch(padded, torch.arange(6), weight=weight)], method))
        for a, b in zip(*(s.parameters() for s in students), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_student_is_saved_and_loaded_whole(tmp_path):
    for model in (MLP(4, 3, (8,), dropout=0.1), ConvNet((1, 8, 8), 3)):
        student = Student(model, EnD2(initial_temperature=4.0), class_names=["a", "b", "c"])
        again = Student.load(student.save(tmp_path / type(model).__name__))
        assert again.method == EnD2(initial_temperature=4.0)
        assert again.class_names == ["a", "b", "c"]
        x = torch.randn(5, 4) if isinstance(model, MLP) else torch.randn(5, 1, 8, 8)
        assert torch.equal(again.predict(x).knowledge, student.predict(x).knowledge)


class Mine(nn.Linear):
    """A user's own network."""


def test_a_network_of_the_users_own_is_asked_for(tmp_path):
    student = Student(Mine(4, 3), EnD())
    student.save(tmp_path)
    with pytest.raises(ValueError, match=r"weights of a Mine.*Student.load\(path, model=Mine\(\.\.\.\)\)"):
        Student.load(tmp_path)
    assert torch.equal(Student.load(tmp_path, model=Mine(4, 3)).model.weight, student.model.weight)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_student_is_refused_by_name(tmp_path, name):
    Student(MLP(4, 3), EnD()).save(tmp_path)
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedFileError, match=name):
        Student.load(tmp_path)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: EnD(temperature=0), "temperature must be positive, got 0"),
        (lambda: EnD2(initial_temperature=-1), "initial_temperature must be positive"),
        (lambda: Training(lr=0), "lr must be positive"),
        (lambda: Training(label_weight=2), "label_weight must lie between 0 and 1, got 2"),
        (lambda: Batches(torch.zeros(0, 4)), "no examples"),
        (lambda: Batches(torch.zeros(5, 4), torch.zeros(4, dtype=torch.long)), "one length, got"),
        (lambda: small_batches().split(0.001), "cannot hold out a fraction"),
        (lambda: start([]), "there are no batches"),
        (lambda: start(spoil(inputs=float("nan"))), r"inputs hold nan in example 3, at \[0\]"),
        (lambda: start(spoil(label=3)), r"labels must lie between 0 and 2 for 3 classes, got 3 in example 3"),
        (lambda: start(small_batches(), model=MLP(4, 5)), "teacher knows 3 classes, the student's network gives 5"),
        (lambda: start(Batches(torch.zeros(9, 4)), label_weight=0.5), "batches carry none"),
    ],
)
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises((ValueError, MismatchError), match=message):
        act()


def start(batches, model=None, **settings):
    training = Training(epochs=10**9, **settings)  # would run for ever, were it to start
    return distill(small_ensemble(), model or MLP(4, 3), batches, EnD(), training)


def spoil(inputs=None, label=None):
    batches = small_batches()
    if inputs is not None:
        batches.all.inputs[3, 0] = inputs
    if label is not None:
        batches.all.target[3] = label
    return batches


@pytest.mark.parametrize("wrong", ["student", "teacher", "validation"])
def test_inputs_of_another_width_are_refused_before_any_work(wrong, tmp_path):
    ensemble = small_ensemble(inputs=3 if wrong == "teacher" else 4)
    model, held = MLP(5 if wrong == "student" else 4, 3, (8,)), small_batches(inputs=3 if wrong == "validation" else 4)
    who = r"the teacher" if wrong == "teacher" else r"the network \(MLP\)"
    shape = r"\(3,\)" if wrong == "validation" else r"\(4,\)"
    with pytest.raises(ValueError, match=who + r" does not take float32 inputs of shape " + shape + ".* build it for"):
        distill(ensemble, model, small_batches(), EnD(), Training(epochs=1), validation=held, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unlabelled_inputs_of_another_width_are_refused():
    model, other = MLP(4, 3, (8,)), torch.randn(5, 3)
    with pytest.raises(ValueError, match=r"rows of shape \(4,\), the unlabelled or auxiliary ones \(3,\): pass"):
        distill(small_ensemble(), model, small_batches(), EnD(), Training(epochs=1), unlabelled=other)


def test_distiller_takes_ensembles_and_arrays():
    ensemble, inputs = small_ensemble(), np.random.default_rng(0).normal(size=(120, 4))
    probabilities = ensemble.predict(torch.tensor(inputs).float()).members.mean.numpy()
    for teacher in (ensemble, probabilities, probabilities.swapaxes(0, 1)):
        torch.manual_seed(0)
        distiller = Distiller(MLP(4, 3, (16,)), training=Training(epochs=2)).fit(teacher, inputs)
        assert distiller.predict(inputs).knowledge.shape == (120,)
        assert distiller.predict_proba(inputs).shape == (120, 3)
        assert isinstance(distiller.student_, Student)


def test_distiller_before_fit_and_auxiliary_without_a_live_teacher_say_what_to_do():
    with pytest.raises(RuntimeError, match="call fit"):
        Distiller(MLP(4, 3)).predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="pass the models, or leave auxiliary out"):
        Distiller(MLP(4, 3)).fit(np.full((5, 2, 3), 1 / 3), np.zeros((5, 4)), auxiliary=np.zeros((2, 4)))
