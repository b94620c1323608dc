"""The part of the proxy loss that `mean_weight` adds: the mean is learned where members contradict each other."""

import pytest
import torch
from scipy.special import rel_entr, softmax

from solera.distributions import Categorical, Mixture
from solera.distributions.summary import summarize_top
from solera.methods import ProxyDirichlet, fused_head, proxy_precision

MEMBERS = 2 * torch.randn(6, 4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
OUTPUT = torch.randn(6, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def added(output, targets):
    """What a weight of one adds."""
    return ProxyDirichlet(mean_weight=1.0).loss(output, targets) - ProxyDirichlet().loss(output, targets)


def test_it_is_the_divergence_of_what_is_predicted_from_the_mean_of_the_members():
    mean = softmax(MEMBERS.numpy(), -1).mean(-2)
    wanted = rel_entr(mean, softmax(OUTPUT.numpy(), -1)).sum(-1)
    targets = Mixture(Categorical(MEMBERS))
    torch.testing.assert_close(added(OUTPUT, targets), torch.tensor(wanted))
    whole = summarize_top(targets, 9)
    torch.testing.assert_close(added(OUTPUT, whole).float(), torch.tensor(wanted).float(), rtol=1e-4, atol=1e-5)


def test_of_top_k_targets_the_tail_is_spread_evenly():
    top = summarize_top(Mixture(Categorical(MEMBERS)), 3)
    spread = top.rest.unsqueeze(-1).expand(6, 9).scatter(-1, top.indices, top.probs)
    wanted = -(spread * OUTPUT.log_softmax(-1)).sum(-1) - top.total
    torch.testing.assert_close(added(OUTPUT, top).float(), wanted.float())


def test_both_parts_are_least_at_the_same_logits():
    targets, method = Mixture(Categorical(MEMBERS)), ProxyDirichlet()
    best = (proxy_precision(MEMBERS).unsqueeze(-1) * targets.mean).log()
    for weight in (0.0, 1.0, 5.0):
        logits = best.clone().requires_grad_()
        (slope,) = torch.autograd.grad(ProxyDirichlet(mean_weight=weight).loss(logits, targets).sum(), logits)
        assert slope.abs().max() < 1e-9
    assert torch.equal(method.loss(OUTPUT, targets), ProxyDirichlet(mean_weight=0.0).loss(OUTPUT, targets))


def test_the_mean_is_learned_where_members_contradict_each_other():
    """Two members sure of different classes: e^z is small, and so is the gradient of the plain loss."""
    targets = Mixture(Categorical(torch.tensor([[[0.0, 12.0, -12.0], [12.0, 0.0, -12.0]]])))
    slopes = {}
    for weight in (0.0, 1.0):
        logits = torch.tensor([[-13.0, -3.5, -14.0]], requires_grad=True)
        loss = ProxyDirichlet(match="mi", mean_weight=weight).loss(logits, targets)
        slopes[weight] = torch.autograd.grad(loss.sum(), logits)[0][0, 0].item()
    assert abs(slopes[0.0]) < 1e-3
    assert slopes[1.0] == pytest.approx(-0.5, abs=0.01)


@pytest.mark.parametrize("keep", [None, 3])
def test_its_gradient_and_the_head_inside_the_loss(keep):
    targets, method = Mixture(Categorical(MEMBERS)), ProxyDirichlet(mean_weight=0.7)
    targets = targets if keep is None else summarize_top(targets, keep)
    assert torch.autograd.gradcheck(lambda z: method.loss(z, targets), OUTPUT.clone().requires_grad_())
    draw = torch.Generator().manual_seed(2)
    hidden, weight = (torch.randn(rows, 5, generator=draw, dtype=torch.float64) for rows in (6, 9))
    torch.testing.assert_close(
        fused_head(hidden, weight, None, targets, method), method.loss(hidden @ weight.T, targets)
    )


def test_errors():
    with pytest.raises(ValueError, match="mean_weight must be 0 or a positive number, got -1"):
        ProxyDirichlet(mean_weight=-1)
