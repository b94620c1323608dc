"""Losses that come with their own gradient: one pass over the rows, compiled on request, in chunks otherwise.

A kernel is a pure function of rows, `kernel(logits, *columns) -> (loss, gradient)`, with logits `[N, K]`, columns of N
rows each, loss `[N]` and gradient `[N, K]` with respect to the logits.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from solera.core.progress import tell

Kernel = Callable[..., tuple[Tensor, Tensor]]

_CHUNK = 1 << 17  # elements: enough to outweigh the calls, few enough for the dozen temporaries to stay in the cache
_PARTS = 8  # of the rows whose logits are overwritten: compiled code holds three or four times what it is given
# multiply and add in one instruction: torch 2.7
_OPTIONS: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}

_COMPILE_SECONDS = 20.0  # of one kernel, on one core
# how much faster a compiled kernel is, in seconds per logit: estimates, of a CPU core and of a GPU by its bandwidth
_SAVED = {"cpu": 5e-9, "cuda": 1e-10}
_uncompilable: set[Kernel] = set()


@dataclass
class Choice:
    """Whether kernels are compiled. None: the first one decides, by what `steps` steps of its size would save.

    The forecast counts logits, not seconds: the same training decides alike each time, whatever the machine is doing.
    """

    compile: bool | None = False
    steps: int = 0

    def consider(self, logits: int, device: str) -> None:
        """Decides, where that is still open."""
        if self.compile is None:
            saved = _SAVED.get(device, _SAVED["cuda"]) * logits * self.steps
            self.compile = saved > _COMPILE_SECONDS
            if self.compile:
                tell(f"kernels are compiled: about {_COMPILE_SECONDS:.0f} s now, about {saved:.0f} s saved")


_choice = Choice()


def row_sum(values: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows"]:
    """Σ over the classes, in float64: compiled code adds them one by one, and forty thousand roundings would show."""
    return values.sum(-1, dtype=torch.float64)


def one_signed_row_sum(values: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows"]:
    """Σ over the classes of terms of one sign: torch's own sum, a cascade, is exact enough for them in float32."""
    return row_sum(values) if torch.compiler.is_compiling() else values.sum(-1).double()


def stored(values: Tensor) -> Tensor:
    """Numbers of rows as they are; compiled code works them out once, instead of again for every class of their row."""
    return values.as_strided(values.shape, values.stride())  # needs memory, so the compiler stores its input first


@contextmanager
def compiled(choice: bool | Choice = True) -> Iterator[None]:
    """Inside this block kernels are compiled: ~10 s per number of classes, then several times faster.

    Needs a C++ compiler; without one, or where the compiler fails, kernels warn once and run as they do outside. The
    compiler keeps what it made on disk: another process compiles the same kernel in a fraction of the time.
    """
    global _choice
    before, _choice = _choice, choice if isinstance(choice, Choice) else Choice(choice)
    try:
        yield
    finally:
        _choice = before


def consider_compiling(logits: int, device: torch.device) -> None:
    """Where it is still open whether kernels are compiled, decides by the size of this batch."""
    _choice.consider(logits, device.type)


@cache
def _compile(kernel: Kernel) -> Kernel:
    return torch.compile(kernel, fullgraph=True, options=_OPTIONS)


def _in_chunks(kernel: Kernel, gradient: Tensor, logits: Tensor, *columns: Tensor) -> tuple[Tensor, Tensor]:
    """Few rows at a time; `gradient`, which may be the memory of the logits, is filled."""
    rows = max(1, _CHUNK // max(1, logits.shape[-1]))
    loss = logits.new_empty(len(logits))
    with torch.inference_mode():  # lighter calls; what the kernel makes is copied out of this mode
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            loss[part], gradient[part] = kernel(logits[part], *(column[part] for column in columns))
    return loss, gradient


def attempt_compiled(kernel: Callable[..., Any], *rows: Tensor) -> Any:
    """The kernel's result by compiled code; None where kernels are not compiled, or this one cannot be."""
    if not _choice.compile or kernel in _uncompilable or not len(rows[0]):
        return None
    try:
        for column in rows:
            torch._dynamo.maybe_mark_dynamic(column, 0)  # one compilation for all batch sizes
        return _compile(kernel)(*rows)
    except Exception as error:  # whatever the compiler stack raises where there is no working compiler
        _uncompilable.add(kernel)
        warnings.warn(f"kernels run uncompiled, more slowly: {str(error).splitlines()[0]}", stacklevel=3)
        return None


def run_kernel(kernel: Kernel, *rows: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and gradient of these rows, the logits first."""
    found = attempt_compiled(kernel, *rows)
    return _in_chunks(kernel, torch.empty_like(rows[0]), *rows) if found is None else found


def overwrite_by_gradient(kernel: Kernel, logits: Tensor, *columns: Tensor) -> Tensor:
    """The loss of these rows; their logits become its gradient. Compiled code needs room: it takes some at a time."""
    loss = logits.new_empty(len(logits))
    parts = max(1, min(_PARTS, len(logits) // 2))  # of two rows at least: for one alone the compiler begins anew
    for kept, *rows in zip(*(column.tensor_split(parts) for column in (loss, logits, *columns)), strict=True):
        found = attempt_compiled(kernel, *rows)
        if found is None:
            kept.copy_(_in_chunks(kernel, rows[0], *rows)[0])
        else:
            kept.copy_(found[0])
            rows[0].copy_(found[1])
    return loss


def at_least_single(values: Tensor) -> Tensor:
    """In float32, where kernels would lose too much."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def constant_like(logits: Tensor, columns: Iterable[Tensor]) -> list[Tensor]:
    """Columns of numbers in the precision of the logits, without a gradient."""
    return [c.detach().to(logits.dtype) if c.is_floating_point() else c for c in columns]


def _run_on_batch(kernel: Kernel, logits: Tensor, *columns: Tensor) -> tuple[Tensor, Tensor]:
    """`run_kernel` over any batch axes."""
    batch = logits.shape[:-1]
    rows = (logits.detach(), *columns)  # for logits with a gradient and without the compiler would work twice
    if len(batch) != 1:
        rows = tuple(column.reshape(-1, *column.shape[len(batch) :]) for column in rows)
    loss, gradient = run_kernel(kernel, *rows)
    return loss.view(batch), gradient.view(logits.shape)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, logits: Tensor, *columns: Tensor) -> Tensor:
        consider_compiling(logits.numel(), logits.device)
        loss, ctx.gradient = _run_on_batch(kernel, logits, *columns)
        ctx.kernel = kernel
        ctx.save_for_backward(logits, *columns)
        return loss

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator hides its signature)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (upstream,) = grad_outputs
        gradient, ctx.gradient = ctx.gradient, None  # given away, not copied: a second way back makes it anew
        if gradient is None:
            gradient = _run_on_batch(ctx.kernel, *ctx.saved_tensors)[1]
        return None, gradient.mul_(upstream.unsqueeze(-1)), *(None for _ in ctx.needs_input_grad[2:])


def fused(kernel: Kernel, logits: Float[Tensor, "*batch K"], *columns: Tensor) -> Float[Tensor, "*batch"]:
    """The kernel's loss over any batch axes; the gradient flows to the logits, the columns are held constant."""
    logits = at_least_single(logits)
    return _Fused.apply(kernel, logits, *constant_like(logits, columns))
