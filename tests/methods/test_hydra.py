"""Hydra: its losses against referees, its heads on real data, stopped and gone on with, and back from disk."""

import subprocess
import sys
from pathlib import Path

import mpmath as mp
import pytest
import torch
from torch import nn

from solera import Batches, EnD, Ensemble, Student, Training, distill, train_ensemble
from solera.distributions import Categorical, Gaussian, Mixture
from solera.distributions.summary import summarize
from solera.methods import Hydra, gaussian_hydra_loss, hydra_loss
from solera.nn import MLP, grow
from tests import referee
from tests.helpers import assert_stopped_is_whole, small_batches, small_ensemble

ROOT = Path(__file__).parents[2]
LEVELS = [-40.0, -5.0, 0.0, 5.0, 20.0, 40.0]


def slope_of(function, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    value = function(*inputs)
    return value.detach(), torch.autograd.grad(value.sum(), inputs)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("teacher", LEVELS)
@pytest.mark.parametrize("student", LEVELS)
def test_hydra_loss(student, teacher, dtype, temperature):
    torch.manual_seed(0)
    logits, members = 2 * torch.randn(3, 7, dtype=dtype), 2 * torch.randn(3, 7, dtype=dtype)
    logits[:, 0], members[1:, 0], members[0, 3] = student, teacher, teacher
    value, (gradient,) = slope_of(lambda z: hydra_loss(z, members, temperature), logits)
    p = [referee.softmax(referee.numbers(m), temperature) for m in members]
    q = [referee.softmax(referee.numbers(z), temperature) for z in logits]
    true = mp.mpf(temperature) ** 2 * mp.fsum(referee.kl(a, b) for a, b in zip(p, q, strict=True)) / 3
    tolerance = 2e-6 if dtype == torch.float32 else 1e-13
    assert abs(value.item() - float(true)) < tolerance * max(1, float(true))
    slopes = [[temperature * (b - a) / 3 for a, b in zip(*rows, strict=True)] for rows in zip(p, q, strict=True)]
    expected = torch.tensor([[float(s) for s in row] for row in slopes], dtype=torch.double)
    torch.testing.assert_close(gradient.double(), expected, rtol=0, atol=tolerance * temperature)


def test_hydra_loss_is_zero_at_perfect_imitation_and_never_negative():
    members = 5 * torch.randn(50, 4, 30)
    assert hydra_loss(members, members, 2.0).abs().max() == 0
    near = hydra_loss(members + 1e-4 * torch.randn_like(members), members)
    assert (near > 0).all()
    assert near.max() < 1e-6


def test_weights_are_a_weighted_mean():
    torch.manual_seed(0)
    logits, members = torch.randn(5, 3, 4), torch.randn(5, 3, 4)
    weights = torch.tensor([0.5, 0.3, 0.2]).expand(5, 3)
    each = torch.stack([hydra_loss(logits[:, [m]], members[:, [m]]) for m in range(3)], -1)
    torch.testing.assert_close(hydra_loss(logits, members, weights=weights), (weights * each).sum(-1))
    torch.testing.assert_close(hydra_loss(logits, members), each.mean(-1))


def gaussians(shape=(6, 4), dtype=torch.double):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype) for _ in range(4)]


def test_gaussian_hydra_loss_is_a_cross_entropy():
    mean, log_variance, member_mean, member_log_variance = gaussians()
    teacher = torch.distributions.Normal(member_mean, (member_log_variance / 2).exp())
    student = torch.distributions.Normal(mean, (log_variance / 2).exp())
    expected = (torch.distributions.kl_divergence(teacher, student) + teacher.entropy()).mean(-1)
    torch.testing.assert_close(gaussian_hydra_loss(mean, log_variance, member_mean, member_log_variance), expected)


@pytest.mark.parametrize("away", [0.0, 1e-20, 1e-3, 1.0, 1e10])
@pytest.mark.parametrize("teacher", [-80.0, -20.0, 0.0, 30.0, 80.0])
@pytest.mark.parametrize("student", [-80.0, -20.0, 0.0, 30.0, 80.0])
def test_gaussian_hydra_loss_at_tiny_and_huge_variances(student, teacher, away):
    mean, log_variance, target, target_log_variance = (torch.tensor([x]) for x in (0.0, student, away, teacher))
    value, slopes = slope_of(lambda m, v: gaussian_hydra_loss(m, v, target, target_log_variance), mean, log_variance)
    s, t, d = (mp.mpf(x.item()) for x in (log_variance, target_log_variance, target))
    ratio, gap = mp.exp(t - s), d**2 * mp.exp(-s)
    largest = mp.mpf(torch.finfo(torch.float32).max)
    pairs = ((value, (ratio + gap + s + mp.log(2 * mp.pi)) / 2),
             (slopes[0], -d * mp.exp(-s)), (slopes[1], (1 - ratio - gap) / 2))  # fmt: skip
    for ours, true in pairs:
        if abs(true) < largest:
            assert abs(mp.mpf(ours.item()) - true) <= 1e-6 * abs(true) + 1e-15 * max(1, ratio, gap) + mp.mpf(2) ** -149
        else:
            assert ours.isinf()


def test_a_silent_gaussian_member_neither_speaks_nor_moves_its_head():
    given = gaussians(dtype=torch.float32)
    weights = torch.tensor([0.0, 0.5, 0.25, 0.25]).expand(6, 4)
    expected = gaussian_hydra_loss(*(t[:, 1:] for t in given), weights=weights[:, 1:])
    for t in given[2:]:
        t[:, 0] = torch.nan
    value, slopes = slope_of(lambda m, v: gaussian_hydra_loss(m, v, *given[2:], weights=weights), *given[:2])
    torch.testing.assert_close(value, expected)
    for slope in slopes:
        assert slope.isfinite().all()
        assert (slope[:, 0] == 0).all()


def test_one_gaussian_head_ends_at_the_moment_match():
    """The same loss with one head shared by all members: its optimum is the mixture's mean and variance."""
    *_, member_mean, member_log_variance = gaussians((1, 5))
    z = torch.zeros(2, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([z], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-15)

    def closure():
        optimizer.zero_grad()
        loss = gaussian_hydra_loss(z[0].expand(1, 5), z[1].expand(1, 5), member_mean, member_log_variance).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    match = Gaussian(member_mean.mT, member_log_variance.mT).averaged()
    torch.testing.assert_close(z.detach(), torch.stack([match.location[0], match.log_variance[0]]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_vector_targets_are_summed_over_their_dimensions(weighted):
    torch.manual_seed(0)
    output, members = torch.randn(5, 3, 4), Gaussian(torch.randn(5, 3, 2), torch.randn(5, 3, 2))
    weights = torch.tensor([0.0, 0.4, 0.6]).expand(5, 3) if weighted else None
    loss = Hydra(family="gaussian").loss(output, Mixture(members, weights))
    heads, expected = Gaussian.from_output(output), torch.zeros(5)
    for d in range(2):
        pair = (heads.location, heads.log_variance, members.location, members.log_variance)
        expected += gaussian_hydra_loss(*(t[..., d] for t in pair), weights=weights)
    torch.testing.assert_close(loss, expected)
    assert Hydra(family="gaussian").outputs(2) == 4
    prediction = Hydra(family="gaussian").predict(output)
    torch.testing.assert_close(prediction.knowledge, output[..., :2].var(-2, unbiased=False).sum(-1))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Hydra(temperature=0), "temperature must be positive, got 0"),
        (lambda: Hydra(family="gaussian", temperature=2), "Gaussians have no temperature, got 2"),
        (lambda: Hydra().student(MLP(4, 3), 0), "at least one head"),
        (lambda: Hydra(head=9).student(MLP(4, 3), 2), "head=9 is no place to cut this MLP.*1 to 3.*: 1, 3, 5"),
        (lambda: Hydra().loss(torch.zeros(5, 2, 4), REAL), r"Hydra\(family='gaussian'\)"),
        (lambda: Hydra(family="gaussian").loss(torch.zeros(5, 2, 4), CLASSES), r"Hydra\(family='categorical'\)"),
        (lambda: Hydra().loss(torch.zeros(5, 4), CLASSES), r"not one head for.*grow\(network, members=2\)"),
        (lambda: Hydra().loss(torch.zeros(5, 3, 4), CLASSES), "not one head for each of 2 members"),
        (lambda: Hydra().loss(torch.zeros(5, 2, 4), summarize(CLASSES)), "gone: capture with codec='dense'"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()


REAL, CLASSES = (
    Mixture(Gaussian(torch.zeros(5, 2, 2), torch.zeros(5, 2, 2))),
    Mixture(Categorical(torch.zeros(5, 2, 4))),
)


def rank_correlation(a, b):
    return torch.corrcoef(torch.stack([a, b]).argsort(-1).argsort(-1).double())[0, 1].item()


def test_heads_disagree_where_the_members_do_on_digits():
    """The paper's two phases: EnD until it imitates the mean, then heads grown from it, one per member."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1000], order[1000:]
    ensemble = train_ensemble(lambda: MLP(64, 10, (32,)), Batches(x[train], y[train]), 5, Training(epochs=15, lr=3e-3))
    # auxiliary inputs, blends of two digits: there the members disagree, and the student must learn it
    generator = torch.Generator().manual_seed(1)
    pairs = train[torch.randint(len(train), (2, 2000), generator=generator)]
    batches = Batches(x[train], auxiliary=(x[pairs[0]] + x[pairs[1]]) / 2)
    torch.manual_seed(0)
    first = distill(ensemble, MLP(64, 10, (128, 128)), batches, EnD(), Training(epochs=10, lr=3e-3))
    before = first.predict(x[test]).mean
    just_grown = Student(grow(first.model, 5, head=2), Hydra(head=2)).predict(x[test])
    torch.testing.assert_close(just_grown.mean, before, rtol=1e-4, atol=1e-6)
    assert just_grown.knowledge.max() < 1e-9

    second = distill(ensemble, first.model, batches, Hydra(head=2), Training(epochs=25, lr=3e-3))
    ours, theirs = second.predict(x[test]), ensemble.predict(x[test])
    assert rank_correlation(ours.knowledge, theirs.knowledge) > 0.8
    assert rank_correlation(ours.total, theirs.total) > 0.8
    right = lambda prediction: (prediction.mean.argmax(-1) == y[test]).double().mean().item()  # noqa: E731
    assert right(ours) > right(theirs) - 0.02
    # head m imitates member m, not another one
    logs = [prediction.members.log_probs for prediction in (ours, theirs)]
    apart = torch.stack([Categorical(logs[1][:, [i]]).kl(Categorical(logs[0])).mean(0) for i in range(5)])
    assert apart.argmin(1).tolist() == list(range(5))
    torch.testing.assert_close(first.predict(x[test]).mean, before, rtol=0, atol=0)  # phase 1's student is left alone


def test_tokens_with_padding():
    """[B, T, M, K]: what stands at a padded token does not matter."""
    torch.manual_seed(0)
    members = [nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(4)]
    x, weight = torch.randn(6, 5, 2), (torch.arange(5) < torch.tensor([5, 1, 3, 2, 5, 4])[:, None]).float()
    students = []
    for garbage in (0.0, 50.0):
        padded = torch.where(weight[..., None] > 0, x, torch.tensor(garbage))
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
        students.append(
            distill(Ensemble(members), network, Batches(padded, weight=weight), Hydra(), Training(epochs=3))
        )
    assert students[0].model(x).shape == (6, 5, 4, 3)
    for a, b in zip(*(s.parameters() for s in students), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_saved_student_is_whole_in_another_process(tmp_path):
    batches = small_batches()
    student = distill(small_ensemble(), MLP(4, 3, (8, 8)), batches, Hydra(head=2), Training(epochs=2))
    student.save(tmp_path)
    torch.save((batches.all.inputs, student.predict(batches.all.inputs).knowledge), tmp_path / "expected")
    code = """
import sys, torch, solera
inputs, knowledge = torch.load(sys.argv[1] + "/expected")
student = solera.Student.load(sys.argv[1])
torch.testing.assert_close(student.predict(inputs).knowledge, knowledge, rtol=1e-5, atol=1e-9)
assert student.method.head == 2, student.method
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)


class Own(MLP):
    """Its own forward: its heads go through vmap."""

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("kind", [MLP, Own])
def test_a_stopped_distillation_ends_in_the_same_bits(tmp_path, kind):
    """That a real kill leaves such a checkpoint is tested where the loop is."""

    def run(folder):
        torch.manual_seed(5)
        train, held = small_batches(examples=96).split(0.25)
        training = Training(epochs=8, checkpoint_seconds=0.0)
        network = kind(4, 3, (8, 8), dropout=0.2)
        return distill(small_ensemble(), network, train, Hydra(head=2), training, validation=held, folder=folder)

    assert_stopped_is_whole(run, tmp_path, stops=(2, 5))
