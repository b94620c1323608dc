"""Prior networks: the loss and its gradient against 60-digit arithmetic, labels as a teacher, and the real thing."""

import mpmath as mp
import numpy as np
import pytest
import torch

from solera import Batches, Training, distill
from solera.data import UNLABELLED, Batch
from solera.distributions import Categorical, Dirichlet, Mixture
from solera.methods import PriorNetwork, prior_network_loss
from solera.nn import MLP
from solera.teachers import Labels
from solera.testing import check_teacher
from tests import referee

LEVELS = [-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0]


def true_loss(logits, target):
    """KL[Dir(e^z + 1) ‖ Dir(β)] and its gradient e^z·[(α − β)·ψ₁(α) − (α₀ − β₀)·ψ₁(α₀)]."""
    e = [referee.exp(z) for z in referee.numbers(logits)]
    alpha, a0, b0 = [x + 1 for x in e], mp.fsum(e) + len(e), mp.fsum(target)
    far = (a0 - b0) * referee.trigamma(a0)
    gradient = [x * ((a - b) * referee.trigamma(a) - far) for x, a, b in zip(e, alpha, target, strict=True)]
    return referee.dirichlet_kl(alpha, target), gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["label", "other", "everywhere"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("label", [0, UNLABELLED])
def test_prior_network_loss(label, classes, level, where, dtype):
    logits = torch.tensor(np.random.default_rng(1).choice([-4.0, -1.0, 0.25, 1.5], classes), dtype=dtype)
    logits[{"label": 0, "other": 1, "everywhere": slice(None)}[where]] = level
    target = [mp.mpf(1)] * classes
    target[0] += 100 if label == 0 else 0
    value, gradient = true_loss(logits, target)
    z = logits.clone().requires_grad_()
    ours = prior_network_loss(z, torch.tensor(label))
    (slope,) = torch.autograd.grad(ours, z)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-11
    assert abs(mp.mpf(ours.item()) - value) / max(abs(value), 1) < tolerance, (ours.item(), float(value))
    true = np.array([float(g) for g in gradient])
    assert np.abs(slope.double().numpy() - true).max() / max(np.abs(true).max(), 0.1) < tolerance


@pytest.mark.parametrize("precision", [1.0, 100.0, 1e6])
def test_the_loss_is_zero_where_it_should_be(precision):
    logits = torch.full((3, 5), -100.0)
    logits[torch.arange(2), torch.tensor([2, 4])] = float(np.log(precision))
    loss = prior_network_loss(logits, torch.tensor([2, 4, UNLABELLED]), precision)
    assert loss.abs().max() < 1e-6


def test_any_batch_axes_and_labels_that_are_not_there():
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    labels[0, 1] = UNLABELLED
    loss = prior_network_loss(logits, labels, 50.0)
    assert loss.shape == (2, 3)
    student = Dirichlet.from_logits(logits)
    torch.testing.assert_close(loss[0, 1], student.kl(Dirichlet(torch.ones(2, 3, 5)))[0, 1])
    with pytest.raises(ValueError, match="labels must lie between 0 and 4 for 5 classes, got 5"):
        prior_network_loss(logits, labels.clamp(min=5))
    with pytest.raises(ValueError, match="precision must be positive"):
        prior_network_loss(logits, labels, 0.0)


def labelled(*shape):
    torch.manual_seed(0)
    target = torch.randint(4, shape)
    target.view(-1)[1] = UNLABELLED
    return Batch(torch.zeros(*shape, 2), torch.arange(shape[0]), target)


@pytest.mark.parametrize("shape", [(6,), (3, 4)])
def test_the_method_on_labels_is_the_loss(shape):
    batch, logits = labelled(*shape), torch.randn(*shape, 4)
    targets = Labels(classes=4)(batch)
    assert batch.target is not None
    expected = prior_network_loss(logits, batch.target, 30.0)
    torch.testing.assert_close(PriorNetwork(precision=30.0).loss(logits, targets), expected)
    weighted = PriorNetwork(precision=30.0, auxiliary_weight=5.0).loss(logits, targets)
    unknown = batch.target == UNLABELLED
    torch.testing.assert_close(weighted, torch.where(unknown, 5 * expected, expected))


def test_an_ensemble_stands_in_for_labels():
    torch.manual_seed(0)
    logits, members = torch.randn(3, 5), torch.randn(3, 4, 5)
    targets = Mixture(Categorical(members))
    expected = Dirichlet.from_logits(logits).kl(Dirichlet(100 * targets.mean + 1))
    torch.testing.assert_close(PriorNetwork().loss(logits, targets), expected)


def test_labels_are_a_teacher():
    batch = labelled(6)
    check_teacher(Labels(classes=4), batch)
    said = Labels(classes=4)(batch).mean
    assert batch.target is not None
    assert torch.equal(said[0], torch.nn.functional.one_hot(batch.target[0], 4).float())
    torch.testing.assert_close(said[1], torch.full((4,), 0.25))


def test_labels_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="carry no labels to learn from: pass target"):
        Labels(classes=4).check(Batch(torch.zeros(3, 2), torch.arange(3)))
    with pytest.raises(ValueError, match="labels must lie between 0 and 2 for 3 classes, got 3"):
        Labels(classes=3).check(Batch(torch.zeros(3, 2), torch.arange(3), torch.tensor([0, 3, 1])))
    with pytest.raises(ValueError, match="auxiliary_weight must be positive"):
        PriorNetwork(auxiliary_weight=-1.0)


def test_a_prior_network_knows_where_it_was_told_to_know_nothing():
    torch.manual_seed(0)
    y = torch.randint(2, (400,))
    x = torch.randn(400, 2) + torch.stack([4.0 * y - 2, 0.0 * y], dim=1)
    around = 12 * torch.nn.functional.normalize(torch.randn(400, 2), dim=1)
    batches = Batches(x, y, auxiliary=around)
    student = distill(Labels(classes=2), MLP(2, 2), batches, PriorNetwork(), Training(epochs=80, lr=0.01))
    known, unknown = student.predict(x), student.predict(around)
    assert (known.mean.argmax(-1) == y).float().mean() > 0.95
    assert isinstance(known, Dirichlet)
    assert isinstance(unknown, Dirichlet)
    assert unknown.knowledge.median() > 5 * known.knowledge.median()
    assert unknown.precision.median() < 4  # of flat: 2
    assert known.precision.median() > 40  # of sharp: 102
