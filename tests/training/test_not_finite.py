"""Nothing that is infinite or no number at all passes in silence."""

import pytest
import torch

from solera import Batches, EnD, Ensemble, ProxyDirichlet, Student, Training, distill, train_ensemble
from solera.core.errors import DivergedError
from solera.nn import MLP
from solera.serving import export
from solera.training import fit
from tests.helpers import small_batches, small_ensemble


def test_a_training_says_where_it_left_the_numbers():
    with pytest.raises(DivergedError, match=r"epoch \d+, step \d+, at a learning rate of .* on the batch of examples"):
        fit(MLP(4, 3, (8,)), small_batches(), Training(epochs=3, lr=1e30))


def test_the_last_step_is_looked_at_too():
    """Its weights are in no loss any more."""

    def last(groups):
        optimizer = torch.optim.SGD(groups)
        step = optimizer.step
        left = iter(range(3, -1, -1))

        def overflow(*arguments):
            step(*arguments)
            if next(left) == 0:
                with torch.no_grad():
                    optimizer.param_groups[0]["params"][-1].fill_(torch.inf)

        optimizer.step = overflow
        return optimizer

    training = Training(epochs=1, optimizer=last, seed=0)
    with pytest.raises(DivergedError, match=r"3\.bias is not finite in epoch 0, step 4, .* lower the learning rate"):
        fit(MLP(4, 3, (8,)), small_batches(), training)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": float("inf")}, "lr must be positive, got inf"),
        ({"lr": float("nan")}, "lr must be positive, got nan"),
        ({"weight_decay": float("inf")}, "weight_decay must not be negative or infinite, got inf"),
        ({"clip": float("inf")}, "clip must be positive, got inf"),
    ],
)
def test_settings_are_finite(settings, words):
    with pytest.raises(ValueError, match=words):
        Training(epochs=1, **settings)


def test_one_class_is_none():
    one = Ensemble([MLP(4, 1, (8,)) for _ in range(2)])
    for method in (EnD(), ProxyDirichlet()):
        with pytest.raises(ValueError, match="at least two classes, got 1"):
            distill(one, MLP(4, 1, (8,)), Batches(torch.randn(8, 4)), method, Training(epochs=1))
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        fit(MLP(4, 1, (8,)), Batches(torch.randn(8, 4), torch.zeros(8, dtype=torch.long)), Training(epochs=1))


def test_inputs_that_overflow_the_teacher_are_refused():
    batches = small_batches()
    huge = Batches(batches.all.inputs * 3e38)
    with pytest.raises((DivergedError, ValueError), match=r"examples?"):
        distill(small_ensemble(), MLP(4, 3, (8,)), huge, ProxyDirichlet(), Training(epochs=1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_weight_that_is_no_weight_is_refused_by_its_example(value):
    whole, weight = small_batches().all, torch.ones(50)
    weight[39] = value
    words, short = f"weight must be finite and not negative, got {value} in example 39", Training(epochs=1)
    weighted, unlabelled = Batches(whole.inputs, whole.target, weight=weight), Batches(whole.inputs, weight=weight)
    for data in (weighted, unlabelled):
        with pytest.raises(ValueError, match=words):
            distill(small_ensemble(), MLP(4, 3, (8,)), data, ProxyDirichlet(), short)
    with pytest.raises(ValueError, match=words):
        fit(MLP(4, 3, (8,)), weighted, short)
    with pytest.raises(ValueError, match=words):
        train_ensemble(lambda: MLP(4, 3, (8,)), weighted, 2, short)


@pytest.mark.parametrize("method", [ProxyDirichlet(), EnD()])
def test_a_member_that_says_nan_is_named_with_its_example(method):
    batches = small_batches()
    row = batches.all.inputs[39, 0]

    class Broken(MLP):
        def forward(self, inputs):
            return super().forward(inputs).masked_fill((inputs[:, :1] == row), torch.nan)

    ensemble = Ensemble([MLP(4, 3, (8,)), Broken(4, 3, (8,))])
    with pytest.raises(ValueError, match="member 1 says NaN about example 39: look at that input, or leave out"):
        distill(ensemble, MLP(4, 3, (8,)), batches, method, Training(epochs=1))


def test_a_student_that_holds_a_nan_is_neither_saved_nor_exported_nor_asked(tmp_path):
    student, inputs = Student(MLP(4, 3, (8,)), ProxyDirichlet()), torch.randn(20, 4)
    with torch.no_grad():
        next(student.model.parameters())[0, 0] = torch.nan
    with pytest.raises(DivergedError, match="is not saved to"):
        student.save(tmp_path / "student")
    with pytest.raises(DivergedError, match="answer about example 0 is not finite"):
        student.predict(inputs)
    for name in ("student.onnx", "student.pt2"):
        with pytest.raises((DivergedError, ValueError), match="not finite"):
            export(student, tmp_path / name, inputs)
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_overflows_is_refused_by_its_row():
    student, inputs = Student(MLP(4, 3, (8,)), ProxyDirichlet()), torch.randn(5, 4)
    inputs[3] = 3e38
    with torch.no_grad():
        for weights in student.model.parameters():
            weights.fill_(1.0)  # nothing cancels: four times 3e38 is infinite
    with pytest.raises(DivergedError, match="answer about example 3 is not finite"):
        student.predict(inputs)
