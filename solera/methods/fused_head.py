"""The student's last linear layer inside the loss: no logits are held. For methods that have a kernel: EnD and
ProxyDirichlet, from members, means and top-k summaries."""

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.core.checks import require_finite_loss
from solera.core.fused import Kernel, row_sum
from solera.core.fused_linear import fused_linear
from solera.distributions.base import Targets
from solera.methods.base import Method


def _label_loss(z: Tensor, y: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """−(1 − s)·ln q_y − (s/K)·Σ_k ln q_k for q = softmax(z), and its gradient q − s/K, less 1 − s at y."""
    shifted = z - z.amax(-1, keepdim=True)
    e = shifted.exp()
    size = row_sum(e)
    spread = smoothing * row_sum(shifted) / z.shape[-1]
    at = y.unsqueeze(-1)
    loss = size.log() - (1 - smoothing) * shifted.gather(-1, at).squeeze(-1) - spread
    gradient = e * size.reciprocal().to(z.dtype).unsqueeze(-1) - smoothing / z.shape[-1]
    return loss.to(z.dtype), gradient.scatter_add(-1, at, torch.full_like(at, smoothing - 1, dtype=z.dtype))


@cache
def _with_labels(kernel: Kernel, smoothing: float) -> Kernel:
    """(1 − share)·loss + share·label loss: one function per kernel and smoothing, for the sake of the compiler."""

    def mixed(z: Tensor, y: Tensor, share: Tensor, *columns: Tensor) -> tuple[Tensor, Tensor]:
        taught, slope = kernel(z, *columns)
        own, own_slope = _label_loss(z, y, smoothing)
        s = share.unsqueeze(-1)
        return (1 - share) * taught + share * own, (1 - s) * slope + s * own_slope

    return mixed


def fused_head(
    hidden: Float[Tensor, "*batch H"],
    weight: Float[Tensor, "K H"],
    bias: Float[Tensor, " K"] | None,
    targets: Targets,
    method: Method,
    *,
    labels: Int[Tensor, "*batch"] | None = None,
    label_share: Float[Tensor, "*batch"] | None = None,
    label_smoothing: float = 0.0,
    importance: Float[Tensor, "*batch"] | None = None,
    product_dtype: torch.dtype | None = None,
) -> Float[Tensor, "*batch"]:
    """`method.loss(linear(hidden, weight, bias), targets)`, whose logits are made and thrown away in chunks of rows.

    With `labels`, this `label_share` of each row's loss is −ln softmax(z)_y. `importance` is what each row's loss will
    be multiplied by, up to one factor for all rows (its weight in the batch); None: all count alike. A wrong importance
    costs time, never a digit. `product_dtype=torch.bfloat16` multiplies matrices as
    autocast does; the loss of those logits is taken in float32.
    """
    found = method.kernel(targets, len(weight))
    if found is None:
        raise ValueError(f"{method!r} has no kernel for {type(targets).__name__} targets: pass the logits to its loss")
    kernel, columns = found
    if labels is not None:
        if not method.softmax:
            raise ValueError(f"labels are mixed in by softmax, and {method!r} predicts another mean: pass logits")
        assert label_share is not None
        kernel, columns = _with_labels(kernel, label_smoothing), (labels, label_share, *columns)
    loss = fused_linear(kernel, hidden, weight, bias, *columns, importance=importance, product_dtype=product_dtype)
    if not loss.isfinite().all():
        with torch.no_grad():
            logits = torch.nn.functional.linear(hidden.to(weight.dtype), weight, bias)
        return require_finite_loss(loss, logits, "lower the learning rate")
    return loss
