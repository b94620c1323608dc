"""The fused Dirichlet losses, forward and backward, against softmax cross-entropy: CPU time and peak memory."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import cross_entropy

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure, ratio, table
from solera.core.fused import attempt_compiled, compiled, fused
from solera.distributions.density import _negative_log_likelihood
from solera.methods.proxy_dirichlet import _reverse_kl

SHAPES = [(128, 10), (128, 1000), (1024, 5000), (1024, 40_000)]
BASELINE = "cross-entropy, hard labels"
GOALS = {("Proxy-Dirichlet, compiled", classes): 1.5 if classes < 40_000 else 0.8 for _, classes in SHAPES} | {
    ("Proxy-Dirichlet, eager", classes): 4.0 for _, classes in SHAPES
}
ROUNDS = 5
SLOW = 1 << 23  # logits: over more of them torch.distributions takes a minute

ALONE, NOTHING = "Proxy-Dirichlet, the compiled kernel alone", "an autograd function that computes nothing"

Loss = Callable[[Tensor], Tensor]


def losses(rows: int, classes: int) -> tuple[Tensor, dict[str, Loss]]:
    """Student logits and every loss of them, the targets made beforehand."""
    generator = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(rows, classes, generator=generator)).requires_grad_()
    teacher = (2 * torch.randn(rows, classes, generator=generator)).softmax(-1)
    labels, divisor, log_mean = teacher.argmax(-1), torch.full((rows,), 50.0), teacher.log()
    target = Dirichlet(50 * teacher + 1, validate_args=False)

    def proxy(z: Tensor) -> Tensor:
        return fused(_reverse_kl, z, teacher, divisor)

    def end2(z: Tensor) -> Tensor:
        return fused(_negative_log_likelihood, z, log_mean)

    def fast(loss: Loss, z: Tensor) -> Tensor:
        with compiled():
            return loss(z)

    return logits, {
        BASELINE: lambda z: cross_entropy(z, labels, reduction="none"),
        "cross-entropy, soft targets": lambda z: cross_entropy(z, teacher, reduction="none"),
        "Proxy-Dirichlet, compiled": partial(fast, proxy),
        "Proxy-Dirichlet, eager": proxy,
        "Proxy-Dirichlet by torch.distributions": lambda z: (
            kl_divergence(Dirichlet(z.exp() + 1, validate_args=False), target) / divisor
        ),
        "EnD², compiled": partial(fast, end2),
        "EnD², eager": end2,
        "EnD² by torch.distributions": lambda z: -Dirichlet(z.exp(), validate_args=False).log_prob(teacher),
    }


class Nothing(torch.autograd.Function):
    """A loss and a gradient that were there before: what any loss with a gradient of its own costs at least."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return upstream[0].unsqueeze(-1) * ctx.saved_tensors[0], None, None


def floors(logits: Tensor) -> dict[str, Callable[[], object]]:
    """The two parts of a compiled loss that no code around them can do without."""
    rows = logits.detach()
    mean, divisor, loss = rows.softmax(-1), torch.full((len(rows),), 50.0), torch.rand(len(rows))

    def alone() -> object:
        with compiled():
            found = attempt_compiled(_reverse_kl, rows, mean, divisor)
        assert found is not None, "the kernel was not compiled"
        return found

    return {ALONE: alone, NOTHING: partial(step, lambda z: Nothing.apply(z, loss, mean), logits)}


def step(loss: Loss, logits: Tensor) -> Tensor:
    """Forward and backward of the mean over the rows, as in training."""
    return torch.autograd.grad(loss(logits).mean(), logits)[0]


def times() -> str:
    """CPU time of each loss ÷ that of cross-entropy with hard labels, one column per shape."""
    torch.empty(1 << 22)  # a training process has freed large tensors: glibc keeps small ones' pages from then on
    lines: dict[str, list[str]] = {}
    for rows, classes in SHAPES:
        logits, cases = losses(rows, classes)
        if rows * classes > SLOW:
            cases = {name: loss for name, loss in cases.items() if "torch.distributions" not in name}
        samples = measure({name: partial(step, loss, logits) for name, loss in cases.items()} | floors(logits), ROUNDS)
        for name in samples:
            if (name, classes) in GOALS or name in (ALONE, NOTHING):
                what = f"{name} ÷ cross-entropy, {rows:,}×{classes:,}"
                compare_samples(what, samples, name, BASELINE, at_most=GOALS.get((name, classes)))
        for name in cases:
            line = lines.setdefault(name, [])
            line.append(
                f"{1e3 * median(samples[name]):.3g} ms, 1×"
                if name == BASELINE
                else f"{ratio(samples, name, BASELINE):.2f}×"
            )
    header = ["forward + backward", *(f"{rows}×{classes}" for rows, classes in SHAPES)]
    return table(header, ([name, *cells] for name, cells in lines.items()))


def resident(field: str) -> int:
    """Bytes: VmRSS is what the process holds now, VmHWM the most it has held (Linux)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def extra_memory(name: str, rows: int, classes: int) -> float:
    """How far one step lifts the process above what it held before, in sizes of the logits."""
    torch.set_num_threads(1)
    few, cases = losses(2, classes)
    step(cases[name], few)  # loads and compiles what it needs
    logits, cases = losses(rows, classes)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the most held so far
    step(cases[name], logits)
    return (resident("VmHWM") - before) / (4 * rows * classes)


def memory() -> str:
    """Each loss in a process of its own, so that none finds pages that another left."""
    rows, classes = SHAPES[-1]
    code = "import sys; from benchmarks.losses import extra_memory; print(extra_memory(sys.argv[1], {}, {}))"
    command = [sys.executable, "-c", code.format(rows, classes)]
    names = losses(2, 10)[1]
    outputs = {name: subprocess.run([*command, name], stdout=subprocess.PIPE, check=True).stdout for name in names}
    header = [f"{rows}×{classes}", "peak extra memory ÷ logits"]
    return table(header, ([name, f"{float(output):.2f}×"] for name, output in outputs.items()))


def main() -> None:
    torch.set_num_threads(1)
    print("CPU time, one thread.", times(), memory(), sep="\n\n", end="\n\n", flush=True)
