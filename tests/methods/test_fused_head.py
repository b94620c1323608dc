"""The head inside the loss: the numbers of the loss of the logits, which are never all there."""

from itertools import product

import pytest
import torch
from torch.nn.functional import linear

from solera.core import fused_linear as module
from solera.core.errors import DivergedError
from solera.core.fused import fused
from solera.distributions import Categorical, Mixture
from solera.distributions.summary import summarize, summarize_top
from solera.methods import EnD, EnD2, ProxyDirichlet
from solera.methods.end import _soft_kl
from solera.methods.fused_head import fused_head

ROWS, WIDTH, CLASSES = (3, 5), 6, 11


def layer(seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    shapes = (*ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,)
    return [torch.randn(*shape, generator=draw).to(dtype).requires_grad_() for shape in shapes]


def said(kind, dtype=torch.float64):
    draw = torch.Generator().manual_seed(7)
    mixture = Mixture(Categorical(2 * torch.randn(*ROWS, 3, CLASSES, generator=draw).to(dtype)))
    return {"members": lambda: mixture, "mean": lambda: summarize(mixture), "top_k": lambda: summarize_top(mixture, 4)}[
        kind
    ]()


METHODS = [
    *product([EnD(), EnD(tail="dropped"), ProxyDirichlet(), ProxyDirichlet(as_released=True)], ("mean", "top_k")),
    *product([EnD(), EnD(temperature=2.5), ProxyDirichlet(), ProxyDirichlet(match="epkl")], ("members",)),
]


def gradients(loss, parts, upstream):
    return torch.autograd.grad((upstream * loss).sum(), parts)


@pytest.mark.parametrize(("method", "kind"), METHODS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_are_those_of_the_logits(method, kind, bias, monkeypatch):
    monkeypatch.setitem(module._CHUNK, "cpu", 4 * CLASSES)  # four rows of fifteen at a time
    hidden, weight, own = layer()
    parts = [hidden, weight, own] if bias else [hidden, weight]
    targets, upstream = said(kind), torch.rand(ROWS, dtype=torch.float64)
    expected = method.loss(linear(*parts), targets)
    for importance in (upstream, 3 * upstream, None):  # forecast well, up to a factor, wrongly
        loss = fused_head(hidden, weight, own if bias else None, targets, method, importance=importance)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        ours, theirs = gradients(loss, parts, upstream), gradients(expected, parts, upstream)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        expected = method.loss(linear(*parts), targets)


@pytest.mark.parametrize("method", [EnD(), ProxyDirichlet()])
@pytest.mark.parametrize("kind", ["mean", "top_k"])
def test_products_in_bfloat16_are_those_of_autocast(method, kind, monkeypatch):
    """The loss is that of bfloat16 logits to float32's rounding; gradients are rounded once, before products."""
    monkeypatch.setitem(module._CHUNK, "cpu", 4 * CLASSES)
    parts, targets = layer(dtype=torch.float32), said(kind, torch.float32)
    upstream = torch.rand(ROWS)
    expected = method.loss(linear(*(part.bfloat16() for part in parts)).float(), targets)
    for importance in (upstream, None):
        loss = fused_head(*parts, targets, method, importance=importance, product_dtype=torch.bfloat16)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        assert loss.dtype == torch.float32
        assert (loss - fused_head(*parts, targets, method)).abs().max() > 1e-4  # which has more digits
        for ours, theirs in zip(gradients(loss, parts, upstream), gradients(expected, parts, upstream), strict=True):
            assert ours.dtype == torch.float32
            assert (ours - theirs).norm() < 0.01 * theirs.norm()
        expected = method.loss(linear(*(part.bfloat16() for part in parts)).float(), targets)


@pytest.mark.parametrize("even", [True, False])
def test_under_autocast_all_products_are_taken_in_bfloat16(even):
    """On the way back, too, where logits are made anew because the importance was forecast wrongly."""
    parts, targets = layer(dtype=torch.float32), said("mean", torch.float32)
    upstream = torch.ones(ROWS) if even else torch.rand(ROWS)
    with torch.autocast("cpu", torch.bfloat16):
        loss = fused_head(*parts, targets, EnD())
    wanted = fused_head(*parts, targets, EnD(), product_dtype=torch.bfloat16)
    assert torch.equal(loss, wanted)
    for ours, theirs in zip(gradients(loss, parts, upstream), gradients(wanted, parts, upstream), strict=True):
        assert torch.equal(ours, theirs)


def test_weights_that_are_not_finite_are_named_in_mixed_precision_too():
    hidden, weight, bias = layer(dtype=torch.float32)
    with torch.no_grad():
        weight[0, 0] = torch.nan
    with pytest.raises(DivergedError, match="lower the learning rate"):
        fused_head(hidden.bfloat16(), weight, bias, said("mean", torch.float32), EnD(), product_dtype=torch.bfloat16)


@pytest.mark.parametrize(("method", "kind"), METHODS[::2], ids=str)
def test_gradcheck(method, kind):
    targets = said(kind)
    assert torch.autograd.gradcheck(lambda h, w, b: fused_head(h, w, b, targets, method), layer(), fast_mode=True)


@pytest.mark.parametrize("method", [EnD(), ProxyDirichlet()])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_labels_are_mixed_in_as_the_training_does_it(method, smoothing):
    hidden, weight, bias = layer()
    targets, labels = said("top_k"), torch.arange(15).reshape(ROWS) % CLASSES
    share = torch.where(labels > 4, 0.25, 0.0).double()
    logits = linear(hidden, weight, bias)
    prediction = method.predict_in_training(logits)
    own = -(1 - smoothing) * prediction.log_prob(labels) - smoothing * prediction.mean.log().mean(-1)
    expected = (1 - share) * method.loss(logits, targets) + share * own
    loss = fused_head(
        hidden, weight, bias, targets, method, labels=labels, label_share=share, label_smoothing=smoothing
    )
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    one = torch.ones(ROWS, dtype=torch.float64)
    ours, theirs = (gradients(found, [hidden, weight, bias], one) for found in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_in_single_precision_it_is_as_close_as_the_logits_are():
    hidden, weight, bias = layer(dtype=torch.float32)
    targets, one = said("members", torch.float32), torch.ones(ROWS)
    for method in (EnD(), ProxyDirichlet()):
        loss, expected = fused_head(hidden, weight, bias, targets, method), method.loss(linear(*layer()), targets)
        torch.testing.assert_close(loss.double(), expected.double(), rtol=1e-5, atol=1e-5)
        parts = [hidden, weight, bias]
        ours = gradients(loss, parts, one)
        theirs = gradients(method.loss(linear(*parts), targets), parts, one)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_right_forecast_makes_every_logit_once_and_a_wrong_one_twice(monkeypatch):
    made = []
    real = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda h, w, b: made.append(len(h)) or real(h, w, b))
    monkeypatch.setitem(module._CHUNK, "cpu", 4 * CLASSES)
    upstream = torch.arange(15.0).reshape(ROWS)
    for importance, passes in ((upstream, 1), (None, 2)):
        made.clear()
        loss = fused_head(*layer(), said("top_k"), EnD(), importance=importance)
        (loss * upstream).sum().backward()
        assert sum(made) == passes * 15
        assert max(made) == 4


def test_a_second_way_back_through_one_graph_gives_the_same_gradients():
    parts = layer()
    loss = fused_head(*parts, said("top_k"), ProxyDirichlet()).mean()
    first = [gradient.clone() for gradient in torch.autograd.grad(loss, parts, retain_graph=True)]
    torch.testing.assert_close(list(torch.autograd.grad(loss, parts)), first)


def test_without_a_gradient_no_gradient_is_made(monkeypatch):
    monkeypatch.setattr(torch, "mm", lambda *_, **__: pytest.fail("made a gradient"))
    with torch.no_grad():
        loss = fused_head(*layer(), said("top_k"), ProxyDirichlet())
    assert not loss.requires_grad


def test_rows_that_count_nothing_get_no_gradient_and_harm_no_other():
    hidden, weight, bias = layer()
    mask = torch.ones(ROWS)
    mask[1] = 0.0
    loss = fused_head(hidden, weight, bias, said("mean"), EnD(), importance=mask)
    (loss * mask).sum().backward()
    assert (hidden.grad[1] == 0).all()
    expected = layer()
    (EnD().loss(linear(*expected), said("mean")) * mask).sum().backward()
    torch.testing.assert_close(weight.grad, expected[1].grad)


def test_an_upstream_gradient_of_zero_gives_zero():
    parts = layer()
    (0.0 * fused_head(*parts, said("mean"), EnD())).sum().backward()
    assert all((part.grad == 0).all() for part in parts)


def test_a_logit_that_overflows_is_named():
    hidden, weight, bias = layer(dtype=torch.float32)
    with pytest.raises(DivergedError, match="largest logit"):
        fused_head(1e4 * hidden, weight, bias, said("mean"), ProxyDirichlet())


def test_a_method_without_a_kernel_says_what_to_do():
    with pytest.raises(ValueError, match="has no kernel"):
        fused_head(*layer(), said("members"), EnD2())
    labels = torch.zeros(ROWS, dtype=torch.long)
    with pytest.raises(ValueError, match="another mean"):
        fused_head(*layer(), said("mean"), ProxyDirichlet(as_published=True), labels=labels)


def test_the_kernel_of_soft_targets_is_exactly_zero_at_perfect_imitation_and_right_where_classes_are_ruled_out():
    logits = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, -1.0]], requires_grad=True)
    teacher = Categorical(torch.stack([logits[0].detach(), torch.tensor([0.0, -torch.inf, 1.0])]))
    loss = fused(_soft_kl, logits, teacher.log_probs, torch.ones(2))
    assert loss[0] == 0
    torch.testing.assert_close(loss, teacher.kl(Categorical(logits)))
