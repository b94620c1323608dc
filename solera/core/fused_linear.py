"""A linear layer and a loss of its logits as one computation that never holds all logits.

Rows go through in chunks: their logits are made, turned into loss and gradient by a kernel (see `core/fused.py`), and
thrown away; the gradients of hidden units, weight and bias add up. As in Liger-Kernel's fused linear cross-entropy,
here for any kernel and on any device.

The weight's gradient is Σ_i u_i·g_iᵀh_i, and u, what the caller does with the loss of each row, is known only on the
way back. So the caller forecasts it: `importance` is u up to one factor. Where the forecast was wrong, logits are made
once more on the way back: slower, the same numbers.

In mixed precision the three products are taken in bfloat16, as autocast takes those of a linear layer; the loss, its
gradient and the sums over chunks keep the precision of the hidden units.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from solera.core.fused import Kernel, at_least_single, consider_compiling, constant_like, overwrite_by_gradient

# logits at a time: enough rows for a fast product with the weight, few enough that they are little beside the weight
_CHUNK = {"cpu": 6 << 20, "cuda": 1 << 26}


class _Sums(NamedTuple):
    hidden: Tensor | None  # the gradient of each row's loss, for an upstream gradient of 1
    weight: Tensor | None  # the gradients for an upstream gradient of `importance`
    bias: Tensor | None


def _parts(rows: int, classes: int, device: str) -> list[slice]:
    """Equal chunks but for the last: a compiled kernel need not learn a new size."""
    most = max(1, _CHUNK.get(device, _CHUNK["cuda"]) // max(1, classes))
    step = -(-rows // max(1, -(-rows // most)))
    return [slice(start, start + step) for start in range(0, rows, max(1, step))]


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left·right; the product may be of a lower precision than the total."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)


def _go_through(
    kernel: Kernel,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    importance: Tensor,
    columns: tuple[Tensor, ...],
    wanted: tuple[bool, bool, bool],
    product_dtype: torch.dtype,
) -> tuple[Tensor, _Sums]:
    """Losses, and those gradients (of hidden, weight, bias) that are wanted."""
    loss = hidden.new_empty(len(hidden))
    low_hidden, low_weight = hidden.to(product_dtype), weight.to(product_dtype)
    low_bias = None if bias is None else bias.to(product_dtype)
    sums = _Sums(
        torch.empty_like(hidden) if wanted[0] else None,
        torch.zeros_like(weight) if wanted[1] else None,
        torch.zeros_like(bias) if wanted[2] and bias is not None else None,
    )
    for part in _parts(len(hidden), len(weight), hidden.device.type):
        h, u = low_hidden[part], importance[part]
        logits = torch.nn.functional.linear(h, low_weight, low_bias).to(hidden.dtype)
        loss[part] = overwrite_by_gradient(kernel, logits, *(column[part] for column in columns))
        if sums.bias is not None:
            sums.bias.addmv_(logits.t(), u)
        gradient = logits.to(product_dtype)
        if sums.hidden is not None:
            sums.hidden[part] = gradient @ low_weight
        if sums.weight is not None:
            # u goes to the rows of h, which are shorter than those of the gradient
            _add_product(sums.weight, gradient.t(), (u.unsqueeze(-1) * h).to(product_dtype))
        del logits, gradient  # before the next chunk takes memory of its own
    return loss, sums


def _factor(upstream: Tensor, importance: Tensor) -> float | None:
    """c where upstream = c·importance, to rounding; None where it is not."""
    found = (upstream @ importance / (importance @ importance)).item()
    if found == 0 or found != found:
        return None
    difference = (upstream - found * importance).abs()
    allowed = 8 * torch.finfo(upstream.dtype).eps * abs(found) * importance.abs()
    return found if bool((difference <= allowed).all()) else None


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kernel: Kernel,
        learning: bool,
        product_dtype: torch.dtype,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        importance: Tensor,
        *columns: Tensor,
    ) -> Tensor:
        consider_compiling(len(hidden) * len(weight), hidden.device)
        wanted = tuple(learning and needed for needed in ctx.needs_input_grad[3:6])
        loss, sums = _go_through(kernel, hidden, weight, bias, importance, columns, wanted, product_dtype)  # type: ignore[arg-type]
        ctx.kernel, ctx.wanted, ctx.product_dtype, ctx.sums = kernel, wanted, product_dtype, sums
        ctx.save_for_backward(hidden, weight, bias, importance, *columns)
        return loss

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator hides its signature)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (upstream,) = grad_outputs
        hidden, weight, bias, importance, *columns = ctx.saved_tensors
        sums, ctx.sums = ctx.sums, None  # given away, not copied: a second way back makes them anew
        of_hidden, wanted = None if sums is None else sums.hidden, (ctx.wanted[0] and sums is None, *ctx.wanted[1:])
        factor = None if sums is None else _factor(upstream, importance)
        if factor is None and any(wanted):
            del sums  # before the new ones take memory
            _, sums = _go_through(ctx.kernel, hidden, weight, bias, upstream, tuple(columns), wanted, ctx.product_dtype)
            of_hidden, factor = sums.hidden if of_hidden is None else of_hidden, 1.0
        assert sums is not None
        if of_hidden is not None:
            of_hidden.mul_(upstream.unsqueeze(-1))
        for gradient in (sums.weight, sums.bias):
            if gradient is not None and factor is not None and factor != 1:
                gradient.mul_(factor)
        return None, None, None, of_hidden, sums.weight, sums.bias, None, *(None for _ in columns)


def fused_linear(
    kernel: Kernel,
    hidden: Float[Tensor, "*batch H"],
    weight: Float[Tensor, "K H"],
    bias: Float[Tensor, " K"] | None,
    *columns: Tensor,
    importance: Float[Tensor, "*batch"] | None = None,
    product_dtype: torch.dtype | None = None,
) -> Float[Tensor, "*batch"]:
    """`fused(kernel, linear(hidden, weight, bias), *columns)`, whose logits are never all there.

    `importance` is what each row's loss will be multiplied by, up to one factor for all rows; None: all count alike.
    `product_dtype` is the precision of the matrix products; None: bfloat16 where autocast says so, else the loss's.
    """
    batch = hidden.shape[:-1]
    rows = at_least_single(hidden).reshape(-1, hidden.shape[-1])
    layer = [None if part is None else part.to(rows.dtype) for part in (weight, bias)]
    counts = rows.new_ones(len(rows)) if importance is None else importance.detach().to(rows.dtype).reshape(-1)
    flat = (c.reshape(-1, *c.shape[len(batch) :]) for c in constant_like(rows, columns))
    learning, where = torch.is_grad_enabled(), rows.device.type
    if product_dtype is None and torch.is_autocast_enabled(where):  # not in float16, whose gradients want to be scaled
        product_dtype = torch.bfloat16 if torch.get_autocast_dtype(where) == torch.bfloat16 else None
    with torch.autocast(where, enabled=False):  # the way back is outside of it, and shall do the same
        loss = _FusedLinear.apply(kernel, learning, product_dtype or rows.dtype, rows, *layer, counts, *flat)
    return loss.reshape(batch)
