"""BatchEnsemble: its loss against a referee, Algorithm 1's gradients, silent members, real data."""

import mpmath as mp
import pytest
import torch

from solera import Batches, Student, Training, distill, train_ensemble
from solera.distributions import Categorical, Gaussian, Mixture
from solera.methods import BatchEnsemble, batch_ensemble_loss, hydra_loss
from solera.nn import MLP, ConvNet, ResNet
from solera.testing import check_method
from tests import referee
from tests.helpers import small_batches, small_ensemble


@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("student", [-40.0, 0.0, 20.0])
@pytest.mark.parametrize("teacher", [-40.0, 0.0, 20.0])
def test_batch_ensemble_loss(student, teacher, temperature):
    logits, members = 2 * torch.randn(3, 5), 2 * torch.randn(3, 5)
    logits[:, 0], members[1:, 0] = student, teacher
    p = [referee.softmax(referee.numbers(m), temperature) for m in members]
    q = [referee.softmax(referee.numbers(z), temperature) for z in logits]
    true = float(mp.mpf(temperature) ** 2 * mp.fsum(referee.kl(a, b) for a, b in zip(p, q, strict=True)) / 3)
    loss = batch_ensemble_loss(logits, members, temperature)
    assert abs(loss.item() - true) < 2e-6 * max(1, true)
    assert batch_ensemble_loss(members, members, temperature) == 0
    torch.testing.assert_close(loss, hydra_loss(logits, members, temperature))  # the same equation, other networks


def parts(network):
    """Every layer's factors by member, and everything else."""
    return network.factors(), network.shared()


@pytest.mark.parametrize("init", ["normal", "signs"])
def test_factors_move_by_the_sum_and_shared_weights_by_the_mean(init):
    """Algorithm 1, line 5 and 7, with every member's own loss and gradient."""
    method, members = BatchEnsemble(temperature=2.0, init=init), 4
    network = method.student(ConvNet((1, 8, 8), 3).double(), members)
    inputs, targets = torch.randn(6, 1, 8, 8).double(), 2 * torch.randn(6, members, 3).double()
    factors, shared = parts(network)
    network.zero_grad()
    method.loss(network(inputs), Mixture(Categorical(targets))).mean().backward()
    ours = [p.grad.clone() for p in (*factors, *shared)]
    every = []
    for m in range(members):
        network.zero_grad()
        batch_ensemble_loss(network(inputs)[:, [m]], targets[:, [m]], 2.0).mean().backward()
        every.append([p.grad.clone() for p in (*factors, *shared)])
    for place, factor in enumerate(factors):
        # the network multiplies factors' gradients by M; ∇ of one member's loss alone is a M-th of what it reports
        torch.testing.assert_close(ours[place], sum(each[place] for each in every) / members)
        for m in range(members):
            others = [n for n in range(members) if n != m]
            assert (every[m][place][others] == 0).all(), "a member's loss moves its own factors alone"
            torch.testing.assert_close(ours[place][m], every[m][place][m] / members)
        assert factor.grad.abs().max() > 0

    def slope(parameter, step=1e-5):
        """Of the mean loss in its first number, by finite differences: the network's own gradient is on trial."""
        values = []
        for way in (1, -1):
            with torch.no_grad():
                parameter.view(-1)[0] += way * step
                values.append(method.loss(network(inputs), Mixture(Categorical(targets))).mean())
                parameter.view(-1)[0] -= way * step
        return (values[0] - values[1]) / (2 * step)

    for place, parameter in enumerate((*factors, *shared)):
        times = members if place < len(factors) else 1
        torch.testing.assert_close(ours[place].view(-1)[0], times * slope(parameter), rtol=1e-5, atol=1e-8)
    for place in range(len(factors), len(ours)):
        torch.testing.assert_close(ours[place], sum(each[place] for each in every) / members)


def test_a_silent_member_moves_nothing_of_its_own():
    method = BatchEnsemble()
    network, targets = method.student(MLP(4, 3), 3), torch.randn(6, 3, 3)
    targets[:, 1] = torch.nan
    weights = torch.tensor([0.5, 0.0, 0.5]).expand(6, 3)
    method.loss(network(torch.randn(6, 4)), Mixture(Categorical(targets), weights)).mean().backward()
    for factor in network.factors():
        assert factor.grad.isfinite().all()
        assert (factor.grad[1] == 0).all()
        assert (factor.grad[0] != 0).any()


def test_weight_decay_spares_the_factors():
    method = BatchEnsemble()
    network = method.student(ResNet(8, (1, 8, 8), 3), 2)
    shared, factors = method.parameter_groups(network, 0.1, 0.3)
    assert (shared["weight_decay"], factors["weight_decay"]) == (0.3, 0.0)
    assert {id(p) for g in (shared, factors) for p in g["params"]} == {id(p) for p in network.parameters()}
    assert len(factors["params"]) == 2 * 10  # 7 convolutions, 2 of the skips, the classifier


def test_real_targets_too():
    check_method(BatchEnsemble(family="gaussian"))
    check_method(BatchEnsemble(init="signs", norms="own", temperature=3.0))
    mean, log_variance = torch.randn(2, 5, 3, 2)
    members = Gaussian(*torch.randn(2, 5, 3, 2))
    loss = BatchEnsemble(family="gaussian").loss(torch.cat([mean, log_variance], -1), Mixture(members))
    normal = [
        torch.distributions.Normal(g.location, (g.log_variance / 2).exp())
        for g in (members, Gaussian(mean, log_variance))
    ]
    torch.testing.assert_close(loss, torch.distributions.kl_divergence(*normal).sum(-1).mean(-1))


@pytest.mark.parametrize("members", [1, 4])
def test_identical_teachers_give_finite_students(members):
    batches = small_batches()
    ensemble = small_ensemble(1)
    ensemble = type(ensemble)([ensemble.models[0]] * members)
    student = distill(ensemble, MLP(4, 3, (8,)), batches, BatchEnsemble(), Training(epochs=2, weight_decay=0.1))
    assert all(p.isfinite().all() for p in student.parameters())
    assert student.predict(batches.all.inputs).knowledge.isfinite().all()


def test_a_saved_student_is_whole(tmp_path):
    batches = small_batches()
    method = BatchEnsemble(init="signs", norms="own", seed=7)
    student = distill(small_ensemble(), MLP(4, 3, (8, 8)), batches, method, Training(epochs=2))
    again = Student.load(student.save(tmp_path))
    assert again.method == method
    before, after = (s.predict(batches.all.inputs) for s in (student, again))
    assert torch.equal(before.knowledge, after.knowledge)
    assert before.members.logits.shape == (50, 3, 3)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: BatchEnsemble(temperature=0), "temperature must be positive, got 0"),
        (lambda: BatchEnsemble(family="gaussian", temperature=2), "Gaussians have no temperature, got 2"),
        (lambda: BatchEnsemble().student(MLP(4, 3), 0), "at least one subnetwork"),
        (lambda: BatchEnsemble().loss(torch.zeros(5, 4), CLASSES), r"\(5, 4\) is not one for each member.*\(5, 2, 4\)"),
        (lambda: BatchEnsemble(family="gaussian").loss(torch.zeros(5, 2, 4), CLASSES), r"family='categorical'"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()


CLASSES = Mixture(Categorical(torch.zeros(5, 2, 4)))


def test_subnetworks_become_the_members_on_digits():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1000], order[1000:]
    ensemble = train_ensemble(lambda: MLP(64, 10, (32,)), Batches(x[train], y[train]), 4, Training(epochs=15, lr=3e-3))
    generator = torch.Generator().manual_seed(1)
    pairs = train[torch.randint(len(train), (2, 2000), generator=generator)]
    batches = Batches(x[train], auxiliary=(x[pairs[0]] + x[pairs[1]]) / 2)
    torch.manual_seed(0)
    student = distill(ensemble, MLP(64, 10, (128, 128)), batches, BatchEnsemble(), Training(epochs=20, lr=3e-3))
    ours, theirs = student.predict(x[test]), ensemble.predict(x[test])
    right = lambda prediction: (prediction.mean.argmax(-1) == y[test]).double().mean().item()  # noqa: E731
    assert right(ours) > right(theirs) - 0.02
    ranks = torch.stack([ours.knowledge, theirs.knowledge]).argsort(-1).argsort(-1).double()
    assert torch.corrcoef(ranks)[0, 1] > 0.7
    logs = [prediction.members.log_probs for prediction in (ours, theirs)]
    apart = torch.stack([Categorical(logs[1][:, [i]]).kl(Categorical(logs[0])).mean(0) for i in range(4)])
    assert apart.argmin(1).tolist() == list(range(4))
