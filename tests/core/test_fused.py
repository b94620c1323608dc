"""Fused losses: the gradient reaches the logits alone, at any shape and precision, compiled or not."""

import warnings
from contextlib import nullcontext

import jaxtyping
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from solera.core import fused as module
from solera.core.fused import compiled, fused
from solera.distributions.density import _negative_log_likelihood
from solera.methods.end import _grouped_kl, _kept_cross_entropy, _soft_kl
from solera.methods.fused_head import _with_labels
from solera.methods.proxy_dirichlet import (
    _reverse_kl,
    _reverse_kl_and_mean,
    _sparse_reverse_kl,
    _sparse_reverse_kl_and_mean,
)


def square(logits, offset):
    """½ Σ (z − c)², as simple as a kernel can be."""
    difference = logits - offset.unsqueeze(-1)
    return 0.5 * (difference**2).sum(-1), difference


def run(kernel, logits, *columns):
    logits = logits.detach().requires_grad_()
    loss = fused(kernel, logits, *columns)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    """Each test starts as a new process does."""
    module._compile.cache_clear()
    module._uncompilable.clear()


@pytest.fixture
def _unchecked():
    """Without the run-time shape checks: the compiler cannot see through them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 2)])
def test_any_batch_axes(batch):
    logits, offset = torch.randn(*batch, 5), torch.randn(batch)
    loss, gradient = run(square, logits, offset)
    assert loss.shape == batch
    torch.testing.assert_close(loss, 0.5 * ((logits - offset.unsqueeze(-1)) ** 2).sum(-1))
    torch.testing.assert_close(gradient, logits - offset.unsqueeze(-1))


def test_a_gradient_is_given_away_and_made_anew_for_a_second_way_back():
    logits, offset = torch.randn(4, 5, requires_grad=True), torch.randn(4)
    loss = fused(square, logits, offset)
    for weight in (2.0, 3.0):
        (found,) = torch.autograd.grad(weight * loss.sum(), logits, retain_graph=True)
        torch.testing.assert_close(found, weight * (logits.detach() - offset.unsqueeze(-1)))
    torch.autograd.grad(loss.sum(), logits)
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(loss.sum(), logits)


def test_upstream_weights_scale_the_gradient():
    logits, offset, weight = torch.randn(4, 5, requires_grad=True), torch.randn(4), torch.tensor([0.0, 1.0, -2.0, 0.5])
    (weight * fused(square, logits, offset)).sum().backward()
    torch.testing.assert_close(logits.grad, weight.unsqueeze(-1) * (logits - offset.unsqueeze(-1)).detach())


def test_chunks_of_rows_join_without_a_seam(monkeypatch):
    logits, offset = torch.randn(17, 6), torch.randn(17)
    whole = run(square, logits, offset)
    for elements in (1, 12, 30, 102):  # one row at a time (even where a row is more), two, five, all
        monkeypatch.setattr(module, "_CHUNK", elements)
        torch.testing.assert_close(run(square, logits, offset), whole, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_its_gradient_comes_back_in_half(dtype):
    logits, offset = torch.randn(4, 5).to(dtype), torch.randn(4).to(dtype)
    loss, gradient = run(square, logits, offset)
    exact, slope = run(square, logits.float(), offset.float())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0, atol=0)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, slope.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_follow_the_precision_of_the_logits(dtype):
    loss, gradient = run(square, torch.randn(4, 5, dtype=dtype), torch.randn(4, dtype=torch.float64))
    assert loss.dtype == gradient.dtype == dtype


def test_columns_get_no_gradient():
    logits, offset = torch.randn(4, 5, requires_grad=True), torch.randn(4, requires_grad=True)
    fused(square, logits, offset).sum().backward()
    assert logits.grad is not None
    assert offset.grad is None


def test_there_is_no_second_derivative_to_be_silently_wrong():
    logits = torch.randn(4, 5, requires_grad=True)
    loss = fused(square, logits, torch.randn(4)).square().sum()
    (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("batch", [(0,), (3, 0)])
def test_an_empty_batch_has_an_empty_loss(batch, fast):
    with compiled(fast):
        loss, gradient = run(_reverse_kl, torch.empty(*batch, 5), torch.empty(*batch, 5), torch.empty(batch))
    assert loss.shape == batch
    assert gradient.shape == (*batch, 5)


@pytest.mark.parametrize(
    "strange", [lambda z: z.t().contiguous().t(), lambda z: z.repeat(1, 2)[:, :7], lambda z: z[:1].expand(6, 7)]
)
def test_logits_need_not_be_contiguous(strange):
    logits, mean = strange(torch.randn(6, 7)), strange(torch.randn(6, 7).softmax(-1))
    assert not logits.is_contiguous()
    ours = run(_reverse_kl, logits, mean, torch.full((6,), 20.0))
    theirs = run(_reverse_kl, logits.contiguous(), mean.contiguous(), torch.full((6,), 20.0))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("early", [False, True])
def test_without_a_compiler_it_warns_once_and_gives_the_same_numbers(monkeypatch, early):
    """`early`: torch.compile itself refuses; otherwise the function it made fails when it is first called."""
    calls = []

    def broken(*_, **__):
        calls.append(1)
        raise RuntimeError("no C++ compiler here\nand a long story")

    monkeypatch.setattr(torch, "compile", broken if early else lambda *_, **__: broken)
    logits, mean, divisor = torch.randn(6, 7), torch.randn(6, 7).softmax(-1), torch.full((6,), 20.0)
    plain = run(_reverse_kl, logits, mean, divisor)
    with compiled(), pytest.warns(UserWarning, match="run uncompiled, more slowly: no C\\+\\+ compiler here$"):
        first = run(_reverse_kl, logits, mean, divisor)
    with compiled(), warnings.catch_warnings():
        warnings.simplefilter("error")
        second = run(_reverse_kl, logits, mean, divisor)
    assert len(calls) == 1
    torch.testing.assert_close(first, plain, rtol=0, atol=0)
    torch.testing.assert_close(second, plain, rtol=0, atol=0)


def test_outside_the_block_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled"))
    with compiled():
        pass
    run(square, torch.randn(4, 5), torch.randn(4))
    with compiled(), compiled(False):
        run(square, torch.randn(4, 5), torch.randn(4))


WHOLE = [_reverse_kl, _sparse_reverse_kl_and_mean, _negative_log_likelihood, _grouped_kl, _with_labels(_soft_kl, 0.1)]
KERNELS = [*WHOLE, _reverse_kl_and_mean, _sparse_reverse_kl, _kept_cross_entropy, _soft_kl]


def rows_of(kernel):
    """Logits and columns that this kernel takes."""
    draw = torch.Generator().manual_seed(0)
    logits, mean = (scale * torch.randn(40, 301, generator=draw) for scale in (4, 3))
    mean = mean.softmax(-1)
    probs, indices = mean.topk(20, -1)
    tail, divisor = 1 - probs.sum(-1), torch.full((40,), 20.0)
    share, one = torch.full((40,), 0.25), torch.ones(40)
    sparse = indices, probs - tail.unsqueeze(-1) / 281, tail / 281, divisor
    columns = {
        _reverse_kl: (mean, divisor),
        _reverse_kl_and_mean: (mean, divisor, share, one),
        _sparse_reverse_kl: sparse,
        _sparse_reverse_kl_and_mean: (*sparse, share, one),
        _negative_log_likelihood: (mean.log(),),
        _grouped_kl: (indices, probs, tail),
        _kept_cross_entropy: (indices, probs),
        _soft_kl: (mean.log(), one),
    }
    return logits, *columns.get(kernel, (indices[:, 0], share, mean.log(), one))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_kernels_run_wherever_torch_does(kernel, device):
    """Shapes, types and devices on tensors without numbers: nothing in a kernel is for CPUs alone."""
    rows = rows_of(kernel)
    with nullcontext() if device == "meta" else FakeTensorMode():
        fake = [torch.empty(row.shape, dtype=row.dtype, device=device) for row in rows]
        loss, gradient = kernel(*fake)
    assert (loss.device.type, gradient.device.type) == (device, device)
    assert (loss.shape, gradient.shape) == ((40,), (40, 301))
    assert loss.dtype == gradient.dtype == torch.float32


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("kernel", WHOLE)  # the others are parts of these
def test_compiled_once_for_every_batch_size_it_agrees(kernel):
    torch.compiler.reset()
    logits, *columns = rows_of(kernel)
    plain = run(kernel, logits, *columns)
    with compiled(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="kernels run uncompiled")
        fast = run(kernel, logits, *columns)
        with torch.compiler.set_stance("fail_on_recompile"):
            fewer = run(kernel, logits[:9], *(column[:9] for column in columns))
    torch.testing.assert_close(fast[0], plain[0], rtol=1e-6, atol=0)
    torch.testing.assert_close(fast[1], plain[1], rtol=1e-5, atol=1e-5 * plain[1].abs().max().item())
    torch.testing.assert_close(fewer, (fast[0][:9], fast[1][:9]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 7, 37])
@pytest.mark.parametrize("fast", [False, True])
def test_logits_are_overwritten_by_their_gradient_a_few_rows_at_a_time(rows, fast, monkeypatch):
    asked = []

    def compiled_code(kernel, *columns):
        asked.append(len(columns[0]))
        return kernel(*columns) if fast else None

    monkeypatch.setattr(module, "attempt_compiled", compiled_code)
    z, mean, divisor = torch.randn(rows, 5), torch.rand(rows, 5).softmax(-1), torch.full((rows,), 9.0)
    loss, gradient = _reverse_kl(z, mean, divisor)
    logits = z.clone()
    torch.testing.assert_close(module.overwrite_by_gradient(_reverse_kl, logits, mean, divisor), loss)
    torch.testing.assert_close(logits, gradient)
    assert sum(asked) == rows
    assert max(asked) <= max(3, -(-rows // module._PARTS))
    assert rows < 2 or min(asked) > 1, "for one row alone the compiler begins anew"
