"""LatentBE: factors that stay near one, and a merged student that is a plain network and no worse than its parts."""

from pathlib import Path

import pytest
import torch
from torch import nn

from solera import Batches, EnD, Ensemble, Student, Training, distill, train_ensemble
from solera.distributions import Categorical, Mixture
from solera.methods import BatchEnsemble, LatentBE, latent_be_loss
from solera.nn import MLP, ConvNet, ResNet, Subnetworks, branch, merge
from solera.testing import check_method
from tests.helpers import assert_stopped_is_whole, small_batches, small_ensemble

ROOT = Path(__file__).parents[2]


class Own(nn.Module):
    """A user's class."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)
        self.top = nn.Linear(8, 3)

    def forward(self, x):
        return self.top(torch.relu(self.norm(self.body(x))))


def trained(method=None, network=None, **settings):
    torch.manual_seed(0)
    network = MLP(4, 3, (8,)) if network is None else network
    return distill(small_ensemble(), network, small_batches(), method or LatentBE(), Training(epochs=3, **settings))


def test_the_student_is_a_plain_network_of_the_users_own_class(tmp_path):
    student = trained(network=Own())
    assert type(student.model) is Own
    assert [type(m) for m in student.model.modules()] == [type(m) for m in Own().modules()]
    fresh = Own().eval()
    fresh.load_state_dict(student.model.state_dict())
    inputs = torch.randn(5, 4)
    assert torch.equal(fresh(inputs), student.model(inputs))
    prediction = student.predict(inputs)
    assert isinstance(prediction, Categorical)
    assert prediction.mean.shape == (5, 3)
    again = Student.load(student.save(tmp_path), model=Own())
    assert torch.equal(again.predict(inputs).mean, prediction.mean)


def test_one_of_our_networks_needs_no_model_to_load(tmp_path):
    network = ResNet(8, (1, 8, 8), 3, channels=4)
    images = Batches(torch.randn(20, 1, 8, 8), batch_size=10)
    teacher = Ensemble([ResNet(8, (1, 8, 8), 3, channels=4) for _ in range(3)])
    student = distill(teacher, network, images, LatentBE(average="factors"), Training(epochs=1))
    again = Student.load(student.save(tmp_path))
    assert type(again.model) is ResNet
    assert again.method == LatentBE(average="factors")
    assert torch.equal(again.predict(images.all.inputs).mean, student.predict(images.all.inputs).mean)


def test_weight_decay_pulls_factors_to_one_and_weights_to_zero():
    """Without a gradient AdamW's decay alone acts: r − 1 shrinks by (1 − η·λ) a step, and so does W."""
    method = LatentBE()
    network = method.student(ConvNet((1, 8, 8), 3), 2)
    with torch.no_grad():
        for factor in network.factors():
            factor.add_(torch.randn_like(factor))
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.AdamW(method.parameter_groups(network, lr=0.1, weight_decay=0.5))
    for _ in range(40):
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    for start, parameter in zip(before, network.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), start * (1 - 0.1 * 0.5) ** 40, rtol=1e-4, atol=1e-6)
    r, s = (1 + f for f in network.factors()[:2])
    assert (r - 1).abs().max() < 0.5
    assert (s - 1).abs().max() < 0.5


def test_more_decay_keeps_subnetworks_closer():
    spread = []
    for decay in (0.0, 100.0):

        class Watched(LatentBE):
            def finalize(self, student):
                spread.append(torch.cat([f.flatten() for f in student.factors()]).norm().item())
                return super().finalize(student)

        trained(Watched(weight_decay=decay), lr=1e-2)
    assert spread[1] < 0.2 * spread[0]
    shared, factors = LatentBE(weight_decay=7.0).parameter_groups(branch(MLP(4, 3), 2), 0.1, 0.3)
    assert (shared["weight_decay"], factors["weight_decay"]) == (0.3, 7.0)
    shared, factors = LatentBE().parameter_groups(branch(MLP(4, 3), 2), 0.1, 0.3)
    assert (shared["weight_decay"], factors["weight_decay"]) == (0.3, 0.3)


def test_one_member_is_plain_distillation_at_first():
    """M = 1 and factors of one: the loss, and the shared weights' gradients, are EnD's."""
    network, inputs, members = MLP(4, 3).double(), torch.randn(6, 4).double(), torch.randn(6, 1, 3).double()
    subnetworks = LatentBE().student(network, 1)
    targets = Mixture(Categorical(members))
    theirs = EnD(temperature=4.0).loss(network(inputs), targets)
    ours = LatentBE().loss(subnetworks(inputs), targets)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(ours.sum(), subnetworks.shared()),
        torch.autograd.grad(theirs.sum(), list(network.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("members", [1, 4])
def test_identical_teachers_leave_identical_subnetworks(members):
    """The same start, the same gradients: the merged network is each of them, and nothing is NaN."""
    one = small_ensemble(1).models[0]
    networks = []

    class Watched(LatentBE):
        def finalize(self, student):
            networks.append(student)
            return super().finalize(student)

    batches = small_batches()
    student = distill(Ensemble([one] * members), MLP(4, 3, (8,)), batches, Watched(), Training(epochs=3))
    with torch.no_grad():
        each = networks[0](batches.all.inputs)
        torch.testing.assert_close(each, each[:, :1].expand_as(each), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(student.model(batches.all.inputs), each[:, 0], rtol=1e-4, atol=1e-5)


def test_a_perfect_student_stays_what_it_is():
    """Zero gradients: Adam divides none of them by none."""
    one = small_ensemble(1).models[0]
    student = distill(Ensemble([one, one]), one, small_batches(), LatentBE(), Training(epochs=2))
    for a, b in zip(student.model.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_real_targets_too():
    check_method(LatentBE(family="gaussian", temperature=1.0))
    check_method(LatentBE(average="factors"))


def test_labels_may_be_mixed_in():
    """While it trains there is a member axis, and a label's probability is the subnetworks' mean."""
    student = trained(label_weight=0.5)
    assert all(p.isfinite().all() for p in student.parameters())
    output, labels = torch.randn(5, 2, 4), torch.tensor([0, 1, 2, 3, 0])
    expected = output.softmax(-1).mean(1)[torch.arange(5), labels].log()
    torch.testing.assert_close(LatentBE().predict_in_training(output).log_prob(labels), expected)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: LatentBE(temperature=-1), "temperature must be positive, got -1"),
        (lambda: LatentBE(weight_decay=-1.0), "weight_decay must not be negative, got -1.0"),
        (lambda: LatentBE(family="gaussian"), "Gaussians have no temperature, got 4.0: pass temperature=1"),
        (lambda: LatentBE().student(branch(Own(), 2, norms="own"), 2), "cannot be merged into one: use norms='shared'"),
        (lambda: LatentBE().loss(torch.zeros(5, 4), CLASSES), "not one for each member"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()


CLASSES = Mixture(Categorical(torch.zeros(5, 2, 4)))


def test_a_silent_member_teaches_nothing():
    logits, members = torch.randn(5, 3, 4, requires_grad=True), torch.randn(5, 3, 4)
    weights = torch.tensor([0.0, 0.4, 0.6]).expand(5, 3)
    expected = (
        weights[:, 1:] * torch.stack([latent_be_loss(logits[:, [m]], members[:, [m]]) for m in (1, 2)], -1)
    ).sum(-1)
    members[:, 0] = torch.nan
    torch.testing.assert_close(latent_be_loss(logits, members, weights=weights), expected)


def test_the_merged_student_is_no_worse_than_its_subnetworks_on_digits():
    """And better than the mean's imitator; subnetworks that start apart (BatchEnsemble) do not merge so well."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1000], order[1000:]
    ensemble = train_ensemble(
        lambda: MLP(64, 10, (64, 64)), Batches(x[train], y[train]), 4, Training(epochs=15, lr=3e-3)
    )
    kept, scores = [], {"merged": [], "parts": [], "EnD": [], "BatchEnsemble, merged": []}

    class Watched(LatentBE):
        def finalize(self, student):
            kept.append(student)
            return super().finalize(student)

    def loss(probs):
        return -probs[torch.arange(len(test)), y[test]].log().mean().item()

    for seed in range(3):
        torch.manual_seed(seed)
        network, training = MLP(64, 10, (64, 64)), Training(epochs=20, lr=3e-3, seed=seed)
        student = distill(ensemble, network, Batches(x[train]), Watched(), training)
        other = distill(ensemble, network, Batches(x[train]), BatchEnsemble(temperature=4.0), training)
        with torch.no_grad():
            each = kept[-1](x[test]).softmax(-1)
            scores["BatchEnsemble, merged"].append(loss(merge(other.model)(x[test]).softmax(-1)))
        scores["parts"].append(sum(loss(each[:, m]) for m in range(4)) / 4)
        scores["merged"].append(loss(student.predict(x[test]).mean))
        plain = distill(ensemble, network, Batches(x[train]), EnD(temperature=4.0), training)
        scores["EnD"].append(loss(plain.predict(x[test]).mean))
    mean = {name: sum(values) / 3 for name, values in scores.items()}
    assert all(a <= b for a, b in zip(scores["merged"], scores["parts"], strict=True)), scores
    assert mean["merged"] < mean["EnD"], scores
    assert mean["merged"] < mean["BatchEnsemble, merged"], scores


@pytest.mark.parametrize("method", [BatchEnsemble(init="signs"), LatentBE()], ids=lambda m: type(m).__name__)
def test_a_stopped_distillation_ends_in_the_same_bits(tmp_path, method):
    """That a real kill leaves such a checkpoint is tested where the loop is."""

    def run(folder):
        torch.manual_seed(5)
        train, held = small_batches(examples=96).split(0.25)
        training = Training(epochs=8, checkpoint_seconds=0.0, weight_decay=0.01)
        network = MLP(4, 3, (8, 8), dropout=0.2)
        return distill(small_ensemble(), network, train, method, training, validation=held, folder=folder)

    assert_stopped_is_whole(run, tmp_path, stops=(2, 5))


def test_subnetworks_may_be_trained_further():
    subnetworks = LatentBE().student(MLP(4, 3, (8,)), 3)
    assert isinstance(subnetworks, Subnetworks)
    assert LatentBE().student(subnetworks, 3) is subnetworks
