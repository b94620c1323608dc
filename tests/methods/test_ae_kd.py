"""AE-KD: its quadratic program against scipy, brute force and the KKT conditions; its gradients; padding and masks."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn

from solera import Batches, Ensemble, Training, distill
from solera.core.least_norm import least_norm_weights
from solera.data import Batch
from solera.distributions import Categorical, Mixture
from solera.methods import AEKD, ae_kd_loss, ae_kd_weights, end_loss
from solera.methods.ae_kd import ae_kd_example_weights, ae_kd_gradients
from solera.methods.base import Method
from solera.testing import check_method
from tests.helpers import small_ensemble


def norm(vectors, w):
    return torch.einsum("nm,nmd->nd", w.double(), vectors.double()).square().sum(-1)


def check_optimal(vectors, upper, w, tolerance=1e-11):
    """Feasible, and no two members between which weight could be moved with profit: the KKT conditions."""
    vectors, upper, w = vectors.double(), upper.double(), w.double()
    torch.testing.assert_close(w.sum(-1), torch.ones(len(w), dtype=torch.double), rtol=0, atol=1e-12)
    assert (w >= 0).all()
    assert (w <= upper * (1 + 1e-12)).all()
    slope = torch.einsum("nmd,nd->nm", vectors, torch.einsum("nm,nmd->nd", w, vectors))
    may_rise = torch.where((w < upper - 1e-12) & (upper > 0), slope, torch.inf).amin(-1)
    may_fall = torch.where(w > 1e-12, slope, -torch.inf).amax(-1)
    size = vectors.square().sum(-1).amax(-1)
    assert ((may_fall - may_rise) <= tolerance * size).all(), ((may_fall - may_rise) / size).max()


def brute_force(vectors, bound):
    """The least norm over every way in which each weight can be at 0, at the bound, or between."""
    members, best = len(vectors), np.inf
    for kinds in itertools.product((0, 1, 2), repeat=members):
        free = [m for m, kind in enumerate(kinds) if kind == 2]
        w = np.array([bound if kind == 1 else 0.0 for kind in kinds])
        left = 1 - w.sum()
        if free:
            basis = np.linalg.svd(np.ones((1, len(free))))[2][1:].T  # of directions that keep the sum
            w[free] = left / len(free)
            step = np.linalg.lstsq(vectors[free].T @ basis, -vectors.T @ w, rcond=1e-12)[0]
            w[free] += basis @ step
        elif abs(left) > 1e-12:
            continue
        if (w > -1e-12).all() and (w < bound + 1e-12).all():
            best = min(best, np.square(vectors.T @ w).sum())
    return best


def cases(kind, count, members, dimensions):
    torch.manual_seed(members * dimensions)
    vectors = torch.randn(count, members, dimensions, dtype=torch.double)
    if kind == "signs":  # parallel, opposite and equal ones
        return vectors.sign()
    if kind == "twins":
        return vectors[:, torch.arange(members) // 2]
    if kind == "holes":
        return vectors.round() * (torch.rand(count, members, 1) < 0.6)
    if kind == "close":
        return torch.randn(count, 1, dimensions) + 1e-9 * vectors
    if kind == "sure":
        return torch.randn(count, 1, dimensions) - (20 * torch.randn(count, members, dimensions)).softmax(-1)
    return vectors


KINDS = ["random", "signs", "twins", "holes", "close", "sure"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimensions", [1, 2, 3, 10])
@pytest.mark.parametrize("members", [1, 2, 3, 5, 9])
def test_weights_are_optimal(members, dimensions, kind):
    for bound in {1 / members, min(1.0, 1.2 / members), min(1.0, 2 / members), max(0.6, 1 / members), 1.0}:
        vectors = cases(kind, 200, members, dimensions)
        upper = torch.full((200, members), bound, dtype=torch.double)
        check_optimal(vectors, upper, least_norm_weights(vectors, upper))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [50, 100])
def test_weights_of_many_members_are_optimal(members, kind):
    for bound in (1 / members, 0.05, 0.6):
        vectors = cases(kind, 2, members, 20)
        upper = torch.full((2, members), bound, dtype=torch.double)
        check_optimal(vectors, upper, least_norm_weights(vectors, upper))


@pytest.mark.parametrize("kind", ["random", "signs", "twins", "holes", "sure"])
@pytest.mark.parametrize("dimensions", [1, 2, 6])
@pytest.mark.parametrize("members", [2, 3, 4])
def test_no_set_of_active_bounds_does_better(members, dimensions, kind):
    vectors = cases(kind, 8, members, dimensions)
    for bound in (1 / members, 0.6, 1.0):
        ours = norm(vectors, least_norm_weights(vectors, torch.full((8, members), bound, dtype=torch.double)))
        for mine, rows in zip(ours, vectors, strict=True):
            best = brute_force(rows.numpy(), bound)
            assert mine.item() == pytest.approx(best, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("members", [3, 8, 20])
def test_scipy_does_no_better(members):
    vectors = cases("sure", 5, members, 12).double()
    upper = torch.full((5, members), 0.3, dtype=torch.double).clamp(min=1 / members + 0.01)
    ours = norm(vectors, least_norm_weights(vectors, upper))
    for mine, rows, most in zip(ours, vectors.numpy(), upper, strict=True):
        found = scipy.optimize.minimize(
            lambda w, v=rows: np.square(v.T @ w).sum(),
            np.full(members, 1 / members),
            jac=lambda w, v=rows: 2 * v @ (v.T @ w),
            method="SLSQP",
            bounds=[(0, float(most[0]))] * members,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(len(w))},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert found.success
        assert mine.item() <= found.fun + 1e-10


def test_members_that_may_not_speak_get_nothing():
    vectors = cases("random", 50, 5, 4)
    upper = torch.tensor([0.6, 0.0, 0.6, 0.0, 0.6]).expand(50, 5).double()
    w = least_norm_weights(vectors, upper)
    assert (w[:, [1, 3]] == 0).all()
    torch.testing.assert_close(w[:, [0, 2, 4]], least_norm_weights(vectors[:, [0, 2, 4]], upper[:, [0, 2, 4]]))


def test_gradients_are_those_of_autograd():
    torch.manual_seed(0)
    logits, members = torch.randn(7, 5, dtype=torch.double, requires_grad=True), torch.randn(7, 3, 5).double()
    ours = ae_kd_gradients(logits, members, 2.5)
    for m in range(3):
        loss = 2.5**2 * Categorical(members[:, m] / 2.5).kl(Categorical(logits / 2.5)).sum()
        (true,) = torch.autograd.grad(loss, logits)
        torch.testing.assert_close(ours[:, m], true)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("shape", [(16,), (4, 5), ()])
def test_one_weight_per_member_from_the_gradients_averaged_over_all_batch_axes(shape, temperature):
    torch.manual_seed(1)
    logits, members = 3 * torch.randn(*shape, 6), 3 * torch.randn(*shape, 4, 6)
    w = ae_kd_weights(logits, members, temperature)
    assert w.shape == (4,)
    assert w.dtype == logits.dtype
    g = ae_kd_gradients(logits, members, temperature).reshape(-1, 4, 6).mean(0, keepdim=True)
    exact = ae_kd_weights(logits.double(), members.double(), temperature)
    check_optimal(g, torch.full((1, 4), 0.6, dtype=torch.double), exact.unsqueeze(0), tolerance=1e-10)
    torch.testing.assert_close(w.double(), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(16,), (3, 4)])
def test_example_weights_are_those_of_batches_of_one(shape):
    torch.manual_seed(1)
    logits, members = torch.randn(*shape, 6, dtype=torch.double), torch.randn(*shape, 4, 6, dtype=torch.double)
    ours = ae_kd_example_weights(logits, members).reshape(-1, 4)
    rows = zip(logits.reshape(-1, 6), members.reshape(-1, 4, 6), strict=True)
    torch.testing.assert_close(ours, torch.stack([ae_kd_weights(z, m) for z, m in rows]))


@pytest.mark.parametrize("per", ["batch", "example"])
def test_the_smallest_bound_is_the_plain_mean(per):
    torch.manual_seed(0)
    logits, members = torch.randn(9, 5), torch.randn(9, 3, 5)
    torch.testing.assert_close(ae_kd_weights(logits, members, bound=1 / 3), torch.full((3,), 1 / 3))
    ours = ae_kd_loss(logits, members, 2.0, bound=1 / 3, per=per)
    torch.testing.assert_close(ours, end_loss(logits, members, 2.0))


def test_the_loss_has_the_gradient_of_the_weighted_sum_of_losses():
    """Eq. 27, the weights held constant."""
    torch.manual_seed(0)
    logits, members = torch.randn(9, 5, dtype=torch.double, requires_grad=True), torch.randn(9, 3, 5).double()
    (ours,) = torch.autograd.grad(ae_kd_loss(logits, members, 2.0).sum(), logits)
    each = torch.stack([4 * Categorical(members[:, m] / 2).kl(Categorical(logits / 2)) for m in range(3)], -1)
    (true,) = torch.autograd.grad((ae_kd_weights(logits, members, 2.0) * each).sum(), logits)
    torch.testing.assert_close(ours, true)


@pytest.mark.parametrize("per", ["batch", "example"])
@pytest.mark.parametrize("kind", ["identical", "imitated", "opposite", "one"])
def test_nothing_to_choose_between(kind, per):
    logits, members = torch.tensor([[1.0, -1.0]]), torch.tensor([[[2.0, 0.0], [2.0, 0.0]]])
    if kind == "imitated":
        logits = members[:, 0]
    if kind == "opposite":
        logits, members = torch.zeros(1, 2), torch.tensor([[[3.0, -3.0], [-3.0, 3.0]]])
    if kind == "one":
        members = members[:, :1]
    loss = ae_kd_loss(logits, members, per=per)
    torch.testing.assert_close(loss, end_loss(logits, members))
    w = ae_kd_weights(logits, members)
    torch.testing.assert_close(w, torch.full_like(w, 1 / len(w)))


def test_a_student_between_its_teachers_has_nothing_to_learn():
    members = torch.tensor([[[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]]])
    student = (torch.tensor([0.5, 0.3, 0.2]) @ members.softmax(-1)).log().squeeze(1)
    assert ae_kd_loss(student, members, per="example").item() < 1e-12
    torch.testing.assert_close(ae_kd_weights(student, members), torch.tensor([0.5, 0.3, 0.2]), rtol=0, atol=1e-5)


def padded(content):
    torch.manual_seed(2)
    logits, members = torch.randn(4, 7, 5), torch.randn(4, 7, 3, 5)
    weight = (torch.arange(7) < torch.tensor([[7], [3], [5], [1]])).float()
    nothing = torch.full((), content)
    logits, members = (torch.where(weight.view(4, 7, *[1] * (t.ndim - 2)) > 0, t, nothing) for t in (logits, members))
    return logits, members, weight


@pytest.mark.parametrize("content", [7.0, 1e30, torch.inf, torch.nan])
def test_padding_does_not_change_the_weights(content):
    logits, members, weight = padded(content)
    real = weight > 0
    expected = ae_kd_weights(logits[real], members[real])
    assert torch.equal(ae_kd_weights(logits, members, weight=weight), expected)
    batch = Batch(torch.zeros(4, 7), torch.arange(4), weight=weight)
    for method in (AEKD(), AEKD(per="example")):
        ours = method.batch_loss(logits, Mixture(Categorical(members)), batch)[real]
        alone = method.loss(logits[real], Mixture(Categorical(members[real])))
        torch.testing.assert_close(ours, alone)


def test_a_batch_of_padding_alone_shares_evenly():
    logits, members, weight = padded(0.0)
    w = ae_kd_weights(logits, members, weight=torch.zeros_like(weight))
    torch.testing.assert_close(w, torch.full((3,), 1 / 3))


def test_weight_is_the_weight_of_an_average():
    """An example of weight two is an example that occurs twice."""
    torch.manual_seed(0)
    logits, members = torch.randn(3, 5), torch.randn(3, 4, 5)
    twice = ae_kd_weights(logits[[0, 1, 1, 2]], members[[0, 1, 1, 2]])
    torch.testing.assert_close(ae_kd_weights(logits, members, weight=torch.tensor([1.0, 2.0, 1.0])), twice)


@pytest.mark.parametrize("per", ["batch", "example"])
@pytest.mark.parametrize("silent", [5.0, torch.inf, torch.nan])
def test_a_member_of_weight_zero_is_not_read(per, silent):
    torch.manual_seed(0)
    logits, members = torch.randn(6, 5), torch.randn(6, 4, 5)
    speaks = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 0, 1]]).repeat(2, 1)
    weights = speaks / speaks.sum(-1, keepdim=True)
    spoken = ae_kd_loss(logits, members, per=per, weights=weights)
    members = members.masked_fill((speaks == 0).unsqueeze(-1), silent)
    torch.testing.assert_close(ae_kd_loss(logits, members, per=per, weights=weights), spoken)
    torch.testing.assert_close(spoken[[2, 5]], end_loss(logits[[2, 5]], members[[2, 5], 3:]))  # one voice
    shares = ae_kd_example_weights(logits, members, weights=weights)
    assert (shares[speaks == 0] == 0).all()
    torch.testing.assert_close(shares.sum(-1), torch.ones(6))


def test_a_member_is_weighed_by_what_it_says_where_it_speaks():
    torch.manual_seed(0)
    logits, members = torch.randn(6, 5), torch.randn(6, 3, 5)
    weights = torch.tensor([[0.5, 0.5, 0.0]] * 3 + [[1 / 3] * 3] * 3)
    g = ae_kd_gradients(logits, members)
    average = torch.stack([g[:, 0].mean(0), g[:, 1].mean(0), g[3:, 2].mean(0)]).unsqueeze(0)
    w = ae_kd_weights(logits.double(), members.double(), weights=weights.double())
    check_optimal(average, torch.full((1, 3), 0.6, dtype=torch.double), w.unsqueeze(0), 1e-10)


def test_rows_are_held_in_parts_without_a_difference(monkeypatch):
    torch.manual_seed(0)
    logits, members = torch.randn(30, 5).double(), torch.randn(30, 4, 5).double()
    whole = ae_kd_weights(logits, members), ae_kd_example_weights(logits, members)
    monkeypatch.setattr("solera.methods.ae_kd._CHUNK", 7 * 20)
    parts = ae_kd_weights(logits, members), ae_kd_example_weights(logits, members)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_inputs_are_left_alone_and_no_gradient_passes_through_the_weights():
    logits, members = torch.randn(3, 5, requires_grad=True), torch.randn(3, 4, 5)
    before = logits.clone(), members.clone()
    assert not ae_kd_weights(logits, members).requires_grad
    ae_kd_loss(logits, members).sum().backward()
    assert torch.equal(logits, before[0])
    assert torch.equal(members, before[1])


@pytest.mark.parametrize("bound", [0.2, 1.5, float("nan")])
def test_a_bound_that_no_weights_can_meet_is_refused(bound):
    with pytest.raises(ValueError, match=r"bound must lie between 1/4 and 1 for 4 members, got .*0.25 is the plain"):
        ae_kd_weights(torch.zeros(3, 5), torch.zeros(3, 4, 5), bound=bound)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="bound must lie above 0 and not above 1, got 0"):
        AEKD(bound=0.0)
    with pytest.raises(ValueError, match="temperature must be positive"):
        AEKD(temperature=0.0)


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("per", ["batch", "example"])
def test_the_contract_but_for_the_slope_of_what_is_held_constant(per, batch, monkeypatch):
    monkeypatch.setattr(torch.autograd, "gradcheck", lambda *_: True)
    check_method(AEKD(temperature=2.0, per=per), batch=batch)


@pytest.mark.parametrize("per", ["batch", "example"])
def test_a_student_learns_from_a_live_ensemble(per):
    """Per example there is less to learn: a student anywhere between its teachers is right."""
    teacher, inputs, method = small_ensemble(4), torch.randn(128, 4), AEKD(temperature=2.0, per=per)
    with torch.no_grad():
        for model in teacher.models:
            for parameter in model.parameters():
                parameter *= 3
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    targets = teacher.predict(inputs)
    before = method.loss(network(inputs), targets).mean()
    student = distill(teacher, network, Batches(inputs, batch_size=64), method, Training(epochs=40, lr=0.02))
    assert method.loss(student.model(inputs), targets).mean() < 0.2 * before


@pytest.mark.skipif(not hasattr(Method, "batch_loss"), reason="the loop does not tell methods of padding yet")
def test_padding_does_not_change_a_distillation():
    """Two trainings that differ in what stands in the padding alone end in the same bits."""
    torch.manual_seed(0)
    teacher = Ensemble([nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(3)])
    weight = (torch.arange(6) < torch.tensor([6, 2, 4, 1, 3]).unsqueeze(-1)).float()
    inputs, ended = torch.randn(5, 6, 4), []
    for content in (0.0, 9.0):
        torch.manual_seed(0)
        batches = Batches(torch.where(weight.unsqueeze(-1) > 0, inputs, content), weight=weight, batch_size=2)
        student = distill(teacher, nn.Linear(4, 3), batches, AEKD(), Training(epochs=3))
        ended.append(student.model.weight)
    assert torch.equal(*ended)
