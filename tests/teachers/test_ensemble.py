from functools import partial

import jaxtyping
import pytest
import torch
from torch import nn

from solera import Batch, Ensemble
from solera.nn import MLP, ConvNet
from solera.teachers import Teacher
from solera.testing import check_teacher
from tests.helpers import small_batches, small_ensemble


def test_is_a_teacher():
    check_teacher(small_ensemble(), small_batches().all)


def test_averages_probabilities_not_logits():
    class Constant(nn.Module):
        def __init__(self, logits):
            super().__init__()
            self.logits = torch.tensor(logits)

        def forward(self, x):
            return self.logits.expand(len(x), -1)

    ensemble = Ensemble([Constant([10.0, 0.0]), Constant([-1.0, 0.0])])
    probs = torch.tensor([[10.0, 0.0], [-1.0, 0.0]]).softmax(-1).mean(0)
    torch.testing.assert_close(ensemble.predict(torch.zeros(2, 1)).mean, probs.expand(2, -1))


def test_members_that_disagree_in_classes_are_named():
    ensemble = Ensemble([MLP(4, 3), MLP(4, 3), MLP(4, 5)])
    with pytest.raises(ValueError, match=r"member 0 answers \(2, 3\), member 2 answers \(2, 5\)"):
        ensemble(Batch(torch.zeros(2, 4), torch.arange(2)))


def test_an_empty_ensemble_is_refused():
    with pytest.raises(ValueError, match="at least one model"):
        Ensemble([])


def test_fingerprints_change_with_the_weights():
    ensemble = small_ensemble()
    before = ensemble.fingerprints
    assert len(set(before)) == 3
    with torch.no_grad():
        ensemble.models[1][-1].bias[0] += 1e-6
    after = ensemble.fingerprints
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_prediction_does_not_depend_on_the_batch_size():
    ensemble, inputs = small_ensemble(), small_batches().all.inputs
    whole, parts = ensemble.predict(inputs), ensemble.predict(inputs, batch_size=7)
    torch.testing.assert_close(whole.mean, parts.mean)


def test_a_member_that_answers_with_something_else_is_named():
    class Two(MLP):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(TypeError, match=r"member 1 \(Two\) must answer with a tensor of logits, got a tuple"):
        Ensemble([MLP(4, 3), Two(4, 3)]).predict(torch.zeros(2, 4))


def test_members_answer_without_dropout():
    """Whatever mode they come in: a network fresh from its training is still in training mode."""
    torch.manual_seed(0)
    inputs = small_batches().all.inputs
    network = MLP(4, 3, (50,), dropout=0.5).train()
    ensemble = Ensemble([network])
    torch.testing.assert_close(ensemble.predict(inputs).mean, ensemble.predict(inputs).mean, rtol=0, atol=0)
    torch.testing.assert_close(ensemble.predict(inputs).mean, network.eval()(inputs).softmax(-1))


def test_asking_whether_it_is_a_teacher_computes_no_fingerprint(monkeypatch):
    """Hashing every weight takes long, and an evaluation asks for every batch."""
    monkeypatch.setattr("solera.teachers.ensemble._fingerprint", None)
    assert isinstance(small_ensemble(), Teacher)
    assert not isinstance(torch.nn.Linear(1, 1), Teacher)


@pytest.mark.parametrize("shape", [(6,), (1, 12, 12)], ids=["side by side", "one by one"])
def test_members_asked_in_bfloat16_say_the_same_to_two_digits(shape):
    torch.manual_seed(0)
    make = partial(MLP, 6, 3) if len(shape) == 1 else partial(ConvNet, shape, 3)
    members, inputs = [make() for _ in range(3)], torch.randn(5, *shape)
    exact, rounded = (Ensemble(members, precision=p).said(inputs).logits for p in ("32-true", "bf16-mixed"))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.02)
    assert not torch.equal(rounded, exact)


def test_members_asked_in_bfloat16_are_other_teachers():
    """What a capture remembered of one must not be taken for the other's answers."""
    plain = small_ensemble()
    rounded = Ensemble(list(plain.models), precision="bf16-mixed")
    assert not set(plain.fingerprints) & set(rounded.fingerprints)
    assert rounded.member(1).fingerprints == rounded.fingerprints[1:2]


def test_a_precision_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as in a user's process
    with pytest.raises(ValueError, match="precision must be '32-true' or 'bf16-mixed', got 'half'"):
        Ensemble([MLP(4, 3)], precision="half")


def test_continuous_targets_are_not_asked_for_in_bfloat16():
    with pytest.raises(ValueError, match="two or three digits, too few for continuous targets"):
        Ensemble([MLP(4, 2)], family="gaussian", precision="bf16-mixed")


def test_what_torch_does_not_compute_is_the_same_in_every_precision():
    """A function's matrix product would be rounded under autocast, and a captured answer refused for nothing."""
    weight = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    inputs = small_batches().all.inputs
    exact, rounded = (Ensemble([lambda x: x @ weight], precision=p) for p in ("32-true", "bf16-mixed"))
    assert torch.equal(exact.said(inputs).logits, rounded.said(inputs).logits)
    assert exact.fingerprints == rounded.fingerprints


def test_bfloat16_for_inputs_by_name_columns_in_another_order_and_gradients():
    class Named(nn.Module):
        class_names = ("a", "b", "c")

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, y):
            return self.layer(x + y)

    torch.manual_seed(0)
    member = Named()
    ensemble = Ensemble([member], class_names=["c", "a", "b"], precision="bf16-mixed")
    x = torch.randn(5, 4, requires_grad=True)
    said = ensemble.ask(0, {"x": x, "y": x.detach()})
    torch.testing.assert_close(said, member(x, x)[:, [2, 0, 1]], rtol=0, atol=0.02)
    (slope,) = torch.autograd.grad(said.sum(), x)
    torch.testing.assert_close(slope, member.layer.weight.sum(0).expand(5, 4), rtol=0, atol=0.02)


def test_members_of_double_precision_stay_so():
    assert Ensemble([MLP(4, 3).double()], precision="bf16-mixed").said(torch.randn(2, 4).double()).logits.dtype == (
        torch.float64
    )
