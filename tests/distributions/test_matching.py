"""The precision of a Dirichlet that stands for an ensemble, against root finding in 60 digits."""

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import Tensor

from solera.distributions import Dirichlet
from solera.distributions.categorical import Categorical
from solera.distributions.matching import LEAST_PRECISION, SMALLEST_SPREAD, matched_precision, require_match
from solera.distributions.mixture import Mixture
from solera.distributions.summary import summarize, summarize_top
from solera.methods import ProxyDirichlet, proxy_dirichlet_loss, proxy_precision
from tests import referee
from tests.distributions.inputs import members_of


def root(mean: list, knowledge) -> float:
    """β with MI(Dir(β·mean)) = knowledge by bisection in ln β, cut as documented."""
    low, high = mp.log(mp.mpf(LEAST_PRECISION)), mp.log((len(mean) - 1) / mp.mpf(SMALLEST_SPREAD))

    def information(x):
        return referee.dirichlet([p * mp.exp(x) for p in mean])["knowledge"]

    if information(low) <= knowledge:
        return float(mp.exp(low))
    if information(high) >= knowledge:
        return float(mp.exp(high))
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if information(middle) > knowledge else (low, middle)
    return float(mp.exp(low))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("kind", ["ordinary", "cruel", "disagree", "nearly identical"])
def test_the_precision_has_the_members_mutual_information(kind, classes, dtype):
    members = torch.tensor(members_of(kind, classes), dtype=dtype)
    true = referee.mixture([referee.numbers(m) for m in members])
    mean = [max(p, mp.mpf(10) ** -60) for p in true["mean"]]
    wanted = root(mean, true["knowledge"])
    ours = proxy_precision(members, "mi").item()
    # in float32 the mean is rounded, and where members are sure of different classes MI is within 1e-7 of its largest
    tolerance = 1e-7 if dtype == torch.float64 else 1e-4
    if kind == "nearly identical" and dtype == torch.float32:
        tolerance = 1e-2  # knowledge itself: two nearly equal numbers subtracted
    assert ours == pytest.approx(wanted, rel=tolerance)


@pytest.mark.parametrize("members", [members_of("identical", 10), members_of("ordinary", 10)[:1], np.eye(1, 10) * 200])
def test_members_that_agree_have_the_greatest_precision(members):
    for match in ("rmi", "epkl", "mi"):
        assert proxy_precision(torch.tensor(members).float(), match).item() == pytest.approx(9e8, rel=1e-6)


def test_members_sure_of_different_classes_have_the_least_precision():
    members = torch.full((3, 4), -torch.inf)
    members[torch.arange(3), torch.arange(3)] = 0.0
    assert proxy_precision(members, "mi").item() == pytest.approx(0.1)


def test_a_precise_ensemble_has_a_precise_dirichlet():
    """Monotone: members drawn together have less knowledge and more precision."""
    generator = torch.Generator().manual_seed(0)
    centre, away = torch.randn(50, 1, 6, generator=generator), torch.randn(50, 5, 6, generator=generator)
    found = [proxy_precision((centre + s * away).double(), "mi") for s in (2.0, 1.0, 0.5, 0.1, 0.01)]
    for less, more in pairwise(found):
        assert (less < more).all()


def drawn(precision: float, count: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Members really drawn from Dir(β₀·p̄)."""
    torch.manual_seed(0)
    mean = torch.tensor([0.1, 0.25, 0.15, 0.5], dtype=torch.double)[:classes]
    return torch.distributions.Dirichlet(precision * mean).sample(torch.Size([count])).log(), mean


@pytest.mark.parametrize("precision", [0.5, 5.0, 80.0])
def test_it_recovers_the_precision_of_a_dirichlet(precision):
    members, _ = drawn(precision, 30_000)
    assert proxy_precision(members, "mi").item() == pytest.approx(precision, rel=0.03)


def test_summaries_give_the_precision_of_their_members():
    torch.manual_seed(0)
    members = 2 * torch.randn(40, 5, 30)
    mixture = Mixture(Categorical(members))
    wanted = matched_precision(mixture, "mi", 30)
    torch.testing.assert_close(matched_precision(summarize(mixture), "mi", 30), wanted, rtol=2e-5, atol=0)
    torch.testing.assert_close(matched_precision(summarize_top(mixture, 30), "mi", 30), wanted, rtol=2e-5, atol=0)


def test_top_k_targets_are_solved_with_their_spread_mean():
    torch.manual_seed(0)
    top = summarize_top(Mixture(Categorical(2 * torch.randn(20, 5, 40))), 7)
    found = Dirichlet(matched_precision(top, "mi", 40).unsqueeze(-1).double() * top.mean.double())
    torch.testing.assert_close(found.knowledge, top.knowledge.double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("match", ["rmi", "epkl"])
def test_a_class_that_one_member_rules_out_and_another_allows(match):
    """RMI and EPKL are infinite there, and say so; knowledge is not, and the loss and its gradient are finite."""
    members = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, 0.0, -torch.inf]])
    with pytest.raises(ValueError, match=rf"spread by match='{match}' is inf: a member rules out .* use match='mi'"):
        proxy_precision(members, match)
    with pytest.raises(ValueError, match="use match='mi'"):
        ProxyDirichlet(match).loss(torch.zeros(3), Mixture(Categorical(members)))
    exact = [[mp.mpf(1) / 2, 0, mp.mpf(1) / 2], [mp.mpf(1) / 2, mp.mpf(1) / 2, 0]]
    mean = referee.mean(exact)
    knowledge = referee.entropy(mean) - mp.log(2)
    assert proxy_precision(members, "mi").item() == pytest.approx(root(mean, knowledge), rel=1e-5)
    z = torch.zeros(3, requires_grad=True)
    loss = proxy_dirichlet_loss(z, members, match="mi")
    assert loss.isfinite()
    assert torch.autograd.grad(loss, z)[0].isfinite().all()


def test_a_class_that_all_rule_out_is_worth_nothing():
    members = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([members, torch.full((6, 4, 1), -torch.inf)], -1)
    torch.testing.assert_close(proxy_precision(padded, "mi"), proxy_precision(members, "mi"), rtol=1e-5, atol=0)


def test_a_way_to_match_that_there_is_not():
    with pytest.raises(ValueError, match="match must be 'rmi', 'epkl' or 'mi', got 'variance'"):
        require_match("variance")


def test_a_row_without_precision_stops_only_those_who_ask_about_it():
    """Of the last row one member rules out what the others allow."""
    logits = torch.randn(6, 3, 4)
    logits[5, 0, 1:] = -torch.inf
    whole = Mixture(Categorical(logits))
    first, last = (whole.rows(torch.tensor(rows), torch.device("cpu")) for rows in ([0, 1], [4, 5]))
    assert matched_precision(first, "rmi", 4).isfinite().all()
    with pytest.raises(ValueError, match="a member rules out"):
        matched_precision(last, "rmi", 4)
    assert matched_precision(last, "mi", 4).isfinite().all()


@pytest.mark.parametrize("match", ["rmi", "epkl", "mi"])
def test_parts_of_a_whole_share_one_precision_and_a_whole_keeps_its_gradient(match):
    """What the first part asked for, in inference, is looked up by the next ones; a whole asked itself works anew."""
    torch.manual_seed(0)
    whole, device = Mixture(Categorical(torch.randn(6, 3, 4))), torch.device("cpu")
    with torch.inference_mode():
        first = matched_precision(whole.rows(torch.tensor([0, 1]), device), match, 4)
    (kept,) = whole._columns.values()
    assert not kept.is_inference()
    kept.mul_(2)
    torch.testing.assert_close(matched_precision(whole.rows(torch.tensor([1, 0]), device), match, 4), 2 * first.flip(0))
    torch.testing.assert_close(matched_precision(whole, match, 4)[:2], first.clone())
    logits = torch.randn(2, 3, 4, requires_grad=True)
    asked = Mixture(Categorical(logits))
    with torch.no_grad():
        matched_precision(asked, match, 4)
    assert matched_precision(asked, match, 4).requires_grad == (match != "mi")  # that one is solved for


def test_one_class_has_no_precision_and_no_error():
    assert matched_precision(Mixture(Categorical(torch.randn(2, 3, 1))), "rmi", 1).tolist() == [0.0, 0.0]
