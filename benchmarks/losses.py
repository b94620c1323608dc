"""The fused Dirichlet losses, forward and backward, against softmax cross-entropy: CPU time and peak memory."""

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import cross_entropy

from benchmarks.timing import measure, ratio, table
from solera.core.fused import compiled, fused
from solera.methods.end2 import _negative_log_likelihood
from solera.methods.proxy_dirichlet import _reverse_kl

SHAPES = [(128, 10), (128, 1000), (1024, 5000), (1024, 40_000)]
BASELINE = "cross-entropy"

Loss = Callable[[Tensor], Tensor]


def _run(loss: Loss, logits: Tensor) -> Tensor:
    """Forward and backward; the mean over the rows, as in training."""
    return torch.autograd.grad(loss(logits).mean(), logits)[0]


def _fast(loss: Loss, logits: Tensor) -> Tensor:
    with compiled():
        return loss(logits)


def losses(rows: int, classes: int) -> tuple[Tensor, dict[str, Loss]]:
    """Student logits and every loss of them, the targets made beforehand."""
    generator = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(rows, classes, generator=generator)).requires_grad_()
    teacher = (2 * torch.randn(rows, classes, generator=generator)).softmax(-1)
    labels, divisor = teacher.argmax(-1), torch.full((rows,), 50.0)
    target, log_mean = Dirichlet(50.0 * teacher + 1), teacher.log()

    def naive_proxy(z: Tensor) -> Tensor:
        return kl_divergence(Dirichlet(z.exp() + 1, validate_args=False), target) / divisor

    def naive_end2(z: Tensor) -> Tensor:
        return -Dirichlet(z.exp(), validate_args=False).log_prob(teacher)

    def proxy(z: Tensor) -> Tensor:
        return fused(_reverse_kl, z, teacher, divisor)

    def end2(z: Tensor) -> Tensor:
        return fused(_negative_log_likelihood, z, log_mean)

    return logits, {
        BASELINE: lambda z: cross_entropy(z, labels, reduction="none"),
        "cross-entropy, soft targets": lambda z: cross_entropy(z, teacher, reduction="none"),
        "proxy, compiled": partial(_fast, proxy),
        "proxy, eager": proxy,
        "proxy, torch.distributions": naive_proxy,
        "EnD², compiled": partial(_fast, end2),
        "EnD², eager": end2,
        "EnD², torch.distributions": naive_end2,
    }


def times() -> str:
    """CPU time of each loss ÷ that of cross-entropy with hard labels, one column per shape."""
    columns: dict[str, list[str]] = {}
    for shape in SHAPES:
        logits, cases = losses(*shape)
        samples = measure({name: partial(_run, loss, logits) for name, loss in cases.items()}, rounds=5)
        for name in cases:
            first = f"{1e3 * median(samples[name]):.3g} ms" if name == BASELINE else f"{ratio(samples, name, BASELINE):.2f}"
            columns.setdefault(name, []).append(first)
    header = ["forward + backward ÷ cross-entropy", *(f"{n}×{k}" for n, k in SHAPES)]
    return table(header, ([name, *cells] for name, cells in columns.items()))


def extra_memory(name: str, rows: int, classes: int) -> float:
    """How far one forward and backward lifts the process's high-water mark, in sizes of the logits.

    A call on one row comes first, so that code and compiler are loaded and only the data is counted.
    """
    torch.set_num_threads(1)
    logits, cases = losses(rows, classes)
    small, small_cases = losses(2, classes)
    for _ in range(2):
        _run(small_cases[name], small)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _run(cases[name], logits)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (4 * rows * classes)


def memory() -> str:
    """Each loss in a process of its own: a high-water mark never falls."""
    rows, classes = SHAPES[-1]
    names = losses(2, 10)[1]
    code = "import sys; from benchmarks.losses import extra_memory; print(extra_memory(sys.argv[1], {}, {}))"
    command = [sys.executable, "-c", code.format(rows, classes)]
    results = {name: subprocess.run([*command, name], capture_output=True, text=True, check=True) for name in names}
    header = [f"peak extra memory ÷ logits, {rows}×{classes}", "×"]
    return table(header, ([name, f"{float(result.stdout):.2f}"] for name, result in results.items()))


def main() -> None:
    torch.set_num_threads(1)
    print(times(), memory(), sep="\n\n", end="\n\n", flush=True)
