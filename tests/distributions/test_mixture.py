"""The ensemble's measures against 60-digit arithmetic, brute force and its own identities."""

import math

import hypothesis.extra.numpy as arrays
import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from solera.distributions import Categorical, Gaussian, Mixture
from tests.distributions.inputs import FLOATS, LEVELS, MEMBERS, members_of, mixture_of, quick

MEASURES = ["total", "data", "knowledge", "rmi", "epkl"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}

some_members = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(2, 6)),
    elements=st.one_of(st.sampled_from(LEVELS), st.floats(-40, 40, width=32)),
)


def mixture(logits, weights=None, dtype=torch.float32) -> Mixture:
    weights = None if weights is None else torch.as_tensor(weights, dtype=dtype)
    return Mixture(Categorical(torch.as_tensor(logits, dtype=dtype)), weights)


def assert_same(ours: Mixture, theirs: Mixture, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    for name in ["mean", *MEASURES]:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=rtol, atol=atol, msg=name)


def check(ours: torch.Tensor, true, dtype: torch.dtype) -> None:
    """Relative error; a KL near 0 is ½ Σ p·d² and feels the rounding δ of its d by δ·√(2·KL)."""
    error = abs(mp.mpf(ours.item()) - true)
    assert error <= TOLERANCE[dtype] * true + torch.finfo(dtype).eps * mp.sqrt(abs(true)), (ours.item(), float(true))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("kind", MEMBERS)
def test_measures(kind, classes, dtype):
    ours, true = mixture(members_of(kind, classes), dtype=dtype), mixture_of(kind, classes)
    for name in MEASURES:
        check(getattr(ours, name), true[name], dtype)
    for k in {0, 1, classes - 1}:
        check(ours.mean[k], true["mean"][k], dtype)
        y = torch.tensor(k)
        assert abs(mp.mpf(ours.log_prob(y).item()) - mp.log(true["mean"][k])) < TOLERANCE[dtype]


def test_measures_at_forty_thousand_classes():
    ours, true = mixture(members_of("cruel", 40_000)), mixture_of("cruel", 40_000)
    for name in MEASURES:
        check(getattr(ours, name), true[name], torch.float32)


def test_epkl_is_the_mean_over_all_pairs():
    logits = 3 * torch.randn(4, 5, 6, dtype=torch.float64)
    p = logits.softmax(-1).numpy()
    pairs = rel_entr(p[:, :, None], p[:, None, :]).sum(-1)
    np.testing.assert_allclose(mixture(logits, dtype=torch.float64).epkl, pairs.mean((1, 2)), rtol=1e-12)


def test_weighted_measures_are_weighted_sums():
    torch.manual_seed(0)
    logits, weights = 3 * torch.randn(4, 5, 6, dtype=torch.float64), torch.rand(4, 5, dtype=torch.float64)
    weights /= weights.sum(-1, keepdim=True)
    p, w = logits.softmax(-1).numpy(), weights.numpy()
    mean = (w[..., None] * p).sum(1)
    ours = mixture(logits, weights, torch.float64)
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(ours.total, -(mean * np.log(mean)).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(ours.data, -(w * (p * np.log(p)).sum(-1)).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(ours.knowledge, (w * rel_entr(p, mean[:, None]).sum(-1)).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(ours.rmi, (w * rel_entr(mean[:, None], p).sum(-1)).sum(-1), rtol=1e-12)
    pairs = rel_entr(p[:, :, None], p[:, None, :]).sum(-1) * w[:, :, None] * w[:, None, :]
    np.testing.assert_allclose(ours.epkl, pairs.sum((1, 2)), rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000, 40_000])
@pytest.mark.parametrize("weights", [None, [1.0]])
def test_one_member_has_no_knowledge_uncertainty_at_all(weights, classes, dtype):
    for scale in (1, 20):
        ours = mixture(scale * torch.randn(2, 3, 1, classes), torch.ones(2, 3, 1) if weights else None, dtype)
        for name in ("knowledge", "rmi", "epkl"):
            assert torch.equal(getattr(ours, name), torch.zeros(2, 3, dtype=dtype))
        torch.testing.assert_close(ours.total, ours.data)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_any_batch_axes(batch, weighted):
    weights = torch.full((*batch, 4), 0.25) if weighted else None
    ours = mixture(torch.randn(*batch, 4, 5), weights)
    for name in MEASURES:
        assert getattr(ours, name).shape == batch
    assert ours.mean.shape == (*batch, 5)
    assert ours.log_prob(torch.zeros(batch, dtype=torch.long)).shape == batch


@pytest.mark.parametrize(
    "silent", [[1.0, 2.0, 3.0], [300.0, -300.0, 0.0], [-math.inf] * 3, [math.inf, 0.0, 0.0], [math.nan, 0.0, math.nan]]
)
@pytest.mark.parametrize("kind", ["ordinary", "disagree"])
def test_weight_zero_means_dropped_whatever_the_member_said(kind, silent):
    others = torch.tensor(members_of(kind, 3), dtype=torch.float32)
    logits = torch.stack([others[0], torch.tensor(silent), others[1], others[2]])
    ours = mixture(logits, [0.5, 0.0, 0.25, 0.25])
    assert_same(ours, mixture(others, [0.5, 0.25, 0.25]), rtol=1e-6, atol=0)
    torch.testing.assert_close(ours.log_prob(torch.tensor(1)), ours.mean[1].log())


def test_the_silent_member_may_differ_from_row_to_row():
    logits = torch.randn(3, 3, 4)
    weights = (1 - torch.eye(3)) / 2
    ours = mixture(logits, weights)
    for row in range(3):
        theirs = mixture(logits[row][weights[row] > 0])
        torch.testing.assert_close(ours.knowledge[row], theirs.knowledge)
        torch.testing.assert_close(ours.mean[row], theirs.mean)


def test_a_weight_of_two_is_a_member_said_twice():
    one, other = torch.randn(2, 6)
    assert_same(mixture(torch.stack([one, other]), [2 / 3, 1 / 3]), mixture(torch.stack([one, one, other])))


@quick
@given(some_members)
def test_identities(logits):
    ours = mixture(logits)
    assert all(getattr(ours, name) >= 0 for name in MEASURES)
    torch.testing.assert_close(ours.total, ours.data + ours.knowledge, rtol=1e-5, atol=1e-6)
    assert ours.epkl == ours.knowledge + ours.rmi
    assert ours.knowledge <= math.log(len(logits)) + 1e-5
    assert ours.total <= math.log(logits.shape[-1]) + 1e-5


@quick
@given(some_members, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(logits, random):
    order = list(range(len(logits)))
    random.shuffle(order)
    assert_same(mixture(logits[order]), mixture(logits))


@quick
@given(some_members, arrays.arrays(np.float32, 5, elements=st.sampled_from([-32.0, -0.5, 0.0, 8.0])))
def test_a_constant_added_to_a_members_logits_changes_nothing(logits, constants):
    shifted = logits + constants[: len(logits), None]
    assert_same(mixture(shifted), mixture(shifted - constants[: len(logits), None]))


@quick
@given(some_members)
def test_saying_everything_twice_changes_nothing(logits):
    assert_same(mixture(np.concatenate([logits, logits])), mixture(logits))


@pytest.mark.parametrize("name", [*MEASURES, "log_prob"])
@pytest.mark.parametrize(
    "logits",
    [
        *(members_of(kind, 4).tolist() for kind in MEMBERS),
        [[60.0, -60.0, 0.0], [-60.0, 60.0, 0.0]],  # e^−120 is 0 in float32
        [[60.0, -60.0, 0.0], [60.0, -60.0, 0.0]],
        [[300.0, -300.0, 0.0]],
        [[1.0, 1.0, 1.0]],
    ],
)
def test_gradients_are_right_and_finite(logits, name):
    """In float32 as in float64, where they agree with finite differences (below)."""
    slopes = []
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor(logits, dtype=dtype, requires_grad=True)
        ours = mixture(z, dtype=dtype)
        value = ours.log_prob(torch.tensor(1)) if name == "log_prob" else getattr(ours, name)
        slopes.append(torch.autograd.grad(value, z)[0].double())
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 3])

    def everything(z):
        ours = mixture(z, dtype=torch.float64)
        return *(getattr(ours, name) for name in MEASURES), ours.log_prob(y)

    assert torch.autograd.gradcheck(everything, logits)


RULED_OUT = {  # by every member, by one, by each of them another
    "all": [[True, False, False, True], [True, False, False, True]],
    "one": [[False, False, False, True], [False, False, False, False]],
    "each": [[True, False, True, False], [False, True, True, False]],
}
WEIGHTS = [None, [0.25, 0.75], [1.0, 0.0]]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("kind", RULED_OUT)
def test_classes_of_logit_minus_infinity(kind, weights):
    """Values against probabilities with zeros; infinite only where a member is sure that the mean is wrong."""
    torch.manual_seed(0)
    logits = torch.randn(2, 4, dtype=torch.float64).masked_fill(torch.tensor(RULED_OUT[kind]), -math.inf)
    p, w = logits.softmax(-1).numpy(), np.array([0.5, 0.5] if weights is None else weights)
    mean = w @ p
    true = {
        "mean": mean,
        "total": -sum(q * math.log(q) for q in mean if q),
        "data": sum(share * -sum(q * math.log(q) for q in row if q) for share, row in zip(w, p, strict=True)),
        "knowledge": sum(share * rel_entr(row, mean).sum() for share, row in zip(w, p, strict=True) if share),
        "rmi": sum(share * rel_entr(mean, row).sum() for share, row in zip(w, p, strict=True) if share),
    }
    true["epkl"] = true["knowledge"] + true["rmi"]
    assert (true["rmi"] == math.inf) == (kind != "all" and weights != [1.0, 0.0])
    for grad in (False, True):
        ours = mixture(logits.clone().requires_grad_(grad), weights, torch.float64)
        for name, value in true.items():
            np.testing.assert_allclose(getattr(ours, name).detach(), value, rtol=1e-12, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("kind", RULED_OUT)
def test_a_logit_of_minus_infinity_has_no_slope_and_spoils_no_other(kind, weights):
    torch.manual_seed(0)
    ruled_out = torch.tensor(RULED_OUT[kind])
    logits = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    def measures(z):
        ours = mixture(z.masked_fill(ruled_out, -math.inf), weights, torch.float64)
        rest = [ours.rmi, ours.epkl] if kind == "all" or weights == [1.0, 0.0] else []
        return ours.mean, ours.total, ours.data, ours.knowledge, *rest

    assert torch.autograd.gradcheck(measures, logits)
    z = logits.detach().masked_fill(ruled_out, -math.inf).requires_grad_()
    ours = mixture(z, weights, torch.float64)
    values = [*(getattr(ours, name) for name in MEASURES), ours.mean @ torch.arange(4.0).double()]
    for value in [*values, ours.log_prob(torch.tensor(1))]:
        (slope,) = torch.autograd.grad(value, z, retain_graph=True)
        assert slope.isfinite().all()
        assert (slope[ruled_out] == 0).all()


def test_one_member_with_an_impossible_class_has_finite_slopes():
    z = torch.tensor([[0.3, -math.inf, 1.0]], requires_grad=True)
    for name in MEASURES:
        (slope,) = torch.autograd.grad(getattr(mixture(z), name), z)
        assert slope.isfinite().all()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_part_of_gaussians_says_of_its_rows_what_the_whole_does(weighted):
    torch.manual_seed(0)
    weights = torch.rand(6, 3).softmax(-1) if weighted else None
    whole = Mixture(Gaussian(torch.randn(6, 3, 2), torch.randn(6, 3, 2)), weights)
    rows = torch.tensor([4, 1])
    part = whole.rows(rows, torch.device("cpu"))
    alone = Mixture(Gaussian(whole.members.location[rows], whole.members.log_variance[rows]), part.weights)
    for name in ("mean", "total", "data", "knowledge", "epkl"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[rows])
        torch.testing.assert_close(getattr(part, name), getattr(alone, name))
