"""Losses that come with their own gradient: one pass over the rows, compiled on request, in chunks otherwise.

A kernel is a pure function of rows, `kernel(logits, *columns) -> (loss, gradient)`, with logits `[N, K]`, columns of N
rows each, loss `[N]` and gradient `[N, K]` with respect to the logits.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Kernel = Callable[..., tuple[Tensor, Tensor]]

_CHUNK = 1 << 17  # elements: enough to outweigh the calls, few enough for the dozen temporaries to stay in the cache
# multiply and add in one instruction: torch 2.7
_OPTIONS: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}

_compiling = False
_uncompilable: set[Kernel] = set()


def row_sum(values: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows"]:
    """Σ over the classes, in float64: compiled code adds them one by one, and forty thousand roundings would show."""
    return values.sum(-1, dtype=torch.float64)


@contextmanager
def compiled(enabled: bool = True) -> Iterator[None]:
    """Inside this block kernels are compiled: ~10 s per number of classes, then several times faster.

    Needs a C++ compiler; without one, or where the compiler fails, kernels warn once and run as they do outside.
    """
    global _compiling
    before, _compiling = _compiling, enabled
    try:
        yield
    finally:
        _compiling = before


@cache
def _compile(kernel: Kernel) -> Kernel:
    return torch.compile(kernel, fullgraph=True, options=_OPTIONS)


def _in_chunks(kernel: Kernel, logits: Tensor, *columns: Tensor) -> tuple[Tensor, Tensor]:
    rows = max(1, _CHUNK // max(1, logits.shape[-1]))
    loss, gradient = logits.new_empty(len(logits)), torch.empty_like(logits)
    with torch.inference_mode():  # lighter calls; what the kernel makes is copied out of this mode
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            loss[part], gradient[part] = kernel(logits[part], *(column[part] for column in columns))
    return loss, gradient


def attempt_compiled(kernel: Callable[..., Any], *rows: Tensor) -> Any:
    """The kernel's result by compiled code; None where kernels are not compiled, or this one cannot be."""
    if not _compiling or kernel in _uncompilable or not len(rows[0]):
        return None
    try:
        for column in rows:
            torch._dynamo.maybe_mark_dynamic(column, 0)  # one compilation for all batch sizes
        return _compile(kernel)(*rows)
    except Exception as error:  # whatever the compiler stack raises where there is no working compiler
        _uncompilable.add(kernel)
        warnings.warn(f"kernels run uncompiled, more slowly: {str(error).splitlines()[0]}", stacklevel=3)
        return None


def _run(kernel: Kernel, *rows: Tensor) -> tuple[Tensor, Tensor]:
    found = attempt_compiled(kernel, *rows)
    return _in_chunks(kernel, *rows) if found is None else found


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, logits: Tensor, *columns: Tensor) -> Tensor:
        batch, classes = logits.shape[:-1], logits.shape[-1]
        rows = (logits.reshape(-1, classes), *(c.reshape(-1, *c.shape[len(batch) :]) for c in columns))
        loss, gradient = _run(kernel, *rows)
        ctx.columns = len(columns)
        ctx.save_for_backward(gradient.reshape(logits.shape))
        return loss.reshape(batch)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator hides its signature)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (upstream,), (gradient,) = grad_outputs, ctx.saved_tensors
        return None, upstream.unsqueeze(-1) * gradient, *(None for _ in range(ctx.columns))


def fused(kernel: Kernel, logits: Float[Tensor, "*batch K"], *columns: Tensor) -> Float[Tensor, "*batch"]:
    """The kernel's loss over any batch axes; the gradient flows to the logits, the columns are held constant."""
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    same = (c.detach().to(logits.dtype) if c.is_floating_point() else c for c in columns)
    return _Fused.apply(kernel, logits, *same)
