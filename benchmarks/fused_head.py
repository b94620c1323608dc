"""The head inside the loss against linear layer + softmax cross-entropy, forward and backward: CPU time and memory.

Liger-Kernel's chunked losses and Apple's cut cross-entropy are Triton kernels and do not run on a CPU: no column for
them here. SOLERA_HEAD_ROWS sets another number of rows than 4,096 for the times; memory is always that of 4,096.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from benchmarks.losses import resident
from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure
from solera.core.fused import compiled
from solera.distributions.summary import Spread, TopK
from solera.methods import EnD, Method, ProxyDirichlet
from solera.methods.fused_head import fused_head

ROWS, WIDTH, CLASSES, KEEP = int(os.environ.get("SOLERA_HEAD_ROWS", "4096")), 512, 40_000, 64
MEMORY_ROWS = 4096
PEER = "linear + cross-entropy"
CASES: dict[str, tuple[Method, bool]] = {
    "fused head, Proxy-Dirichlet, compiled": (ProxyDirichlet(), True),
    "fused head, Proxy-Dirichlet, eager": (ProxyDirichlet(), False),
    "fused head, EnD, compiled": (EnD(), True),
    "fused head, EnD, eager": (EnD(), False),
}


def layer(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(rows, WIDTH, generator=draw), torch.randn(CLASSES, WIDTH, generator=draw)
    return hidden.requires_grad_(), weight.mul_(0.1).requires_grad_(), torch.zeros(CLASSES, requires_grad=True)


def kept(rows: int) -> TopK:
    """What a store of the 64 likeliest classes says."""
    draw = torch.Generator().manual_seed(1)
    indices = torch.rand(rows, CLASSES // 100, generator=draw).topk(KEEP, -1).indices * 100
    probs = (2 * torch.randn(rows, KEEP, generator=draw)).softmax(-1) * 0.9
    spread = Spread(*(torch.full((rows,), value) for value in (2.0, 0.3, 0.4)))
    return TopK.of(probs, indices, CLASSES, spread)


def steps(rows: int) -> dict[str, Callable[[], object]]:
    """Every case: the mean loss and its three gradients."""
    parts, targets = layer(rows), kept(rows)
    labels = targets.indices[:, 0]

    def peer() -> object:
        return torch.autograd.grad(cross_entropy(linear(*parts), labels), parts)

    def ours(method: Method, fast: bool) -> object:
        with compiled(fast):
            return torch.autograd.grad(fused_head(*parts, targets, method).mean(), parts)

    return {PEER: peer} | {name: (lambda case=case: ours(*case)) for name, case in CASES.items()}


def extra_memory(name: str, rows: int) -> float:
    """How far one step lifts the process, beyond the gradients that every way must give, in sizes of the logits."""
    torch.set_num_threads(1)
    steps(64)[name]()  # loads and compiles what it needs
    run = steps(rows)[name]
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the most held so far
    run()
    gradients = 4 * (rows * WIDTH + CLASSES * WIDTH + CLASSES)
    return (resident("VmHWM") - before - gradients) / (4 * rows * CLASSES)


def main() -> None:
    torch.set_num_threads(1)
    samples = measure(steps(ROWS), rounds=3)
    shape = f"{ROWS:,}×{WIDTH}×{CLASSES:,}"
    for name, (_, fast) in CASES.items():
        compare_samples(f"{name} ÷ {PEER}, {shape}", samples, name, PEER, at_most=1.05 if fast else 1.5)
    code = (
        f"import sys; from benchmarks.fused_head import extra_memory; print(extra_memory(sys.argv[1], {MEMORY_ROWS}))"
    )
    for name in (PEER, *CASES):
        done = subprocess.run([sys.executable, "-c", code, name], stdout=subprocess.PIPE, check=True)
        goal = None if name == PEER else 0.1
        size = f"{MEMORY_ROWS:,}×{WIDTH}×{CLASSES:,}"
        declare(f"{name}: peak memory beyond the gradients ÷ logits, {size}", float(done.stdout), at_most=goal)
