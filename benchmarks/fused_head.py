"""The head inside the loss against linear layer + softmax cross-entropy, forward and backward: CPU time and memory.

Where Liger-Kernel is installed (`pip install --no-deps liger-kernel==0.8.5`) its chunked KL is beside EnD, both of one
teacher whose logits they make themselves, theirs a chunk at a time, ours all at once (targets are tensors). Its other
fused losses and Apple's cut cross-entropy are Triton kernels and do not run on a CPU. SOLERA_HEAD_ROWS sets another
number of rows than 4,096 for the times; memory is always that of 4,096, ours from top-k targets.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from benchmarks.losses import resident
from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure
from solera.core.fused import compiled
from solera.distributions import Categorical
from solera.distributions.summary import Mean, Spread, TopK
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
LIGER = {"Liger-Kernel's chunked KL, compiled": True, "Liger-Kernel's chunked KL, eager": False}
DENSE = {f"fused head, EnD of a dense teacher, {how}": how == "compiled" for how in ("compiled", "eager")}
TEACHER_WIDTH = 16  # it makes the teacher's logits itself: of so few hidden units that its product costs little


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


def liger(rows: int) -> dict[str, Callable[[], object]]:
    """KL(teacher ‖ student) by its chunked loss, in its usual chunks, and by ours; nothing where it is missing."""
    if find_spec("liger_kernel") is None:
        return {}
    loss: Any = import_module("liger_kernel.chunked_loss").LigerFusedLinearJSDLoss
    draw = torch.Generator().manual_seed(2)
    (hidden, weight, bias), labels = layer(rows), torch.zeros(rows, dtype=torch.long)
    teacher = torch.randn(rows, TEACHER_WIDTH, generator=draw), torch.randn(CLASSES, TEACHER_WIDTH, generator=draw) / 2

    def theirs(fast: bool) -> object:
        one = loss(weight_hard_loss=0.0, weight_soft_loss=1.0, beta=0.0, compiled=fast)
        return torch.autograd.grad(one(hidden, weight, *teacher, labels, bias), (hidden, weight, bias))

    def ours(fast: bool) -> object:
        said = Mean(Categorical(linear(*teacher)), Spread(*(torch.zeros(rows) for _ in range(3))))
        with compiled(fast):
            return torch.autograd.grad(fused_head(hidden, weight, bias, said, EnD()).mean(), (hidden, weight, bias))

    return {
        **{name: (lambda fast=fast: theirs(fast)) for name, fast in LIGER.items()},
        **{name: (lambda fast=fast: ours(fast)) for name, fast in DENSE.items()},
    }


def steps(rows: int) -> dict[str, Callable[[], object]]:
    """Every case: the mean loss and its three gradients."""
    parts, targets = layer(rows), kept(rows)
    labels = targets.indices[:, 0]

    def peer() -> object:
        return torch.autograd.grad(cross_entropy(linear(*parts), labels), parts)

    def ours(method: Method, fast: bool) -> object:
        with compiled(fast):
            return torch.autograd.grad(fused_head(*parts, targets, method).mean(), parts)

    return {PEER: peer} | {name: (lambda case=case: ours(*case)) for name, case in CASES.items()} | liger(rows)


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
    few = liger(64)
    for one, other in zip(DENSE, LIGER, strict=True):
        if few:
            torch.testing.assert_close(few[one](), few[other](), rtol=1e-3, atol=1e-6)
    samples = measure(steps(ROWS), rounds=3)
    shape = f"{ROWS:,}×{WIDTH}×{CLASSES:,}"
    for name, (_, fast) in CASES.items():
        compare_samples(f"{name} ÷ {PEER}, {shape}", samples, name, PEER, at_most=1.05 if fast else 1.5)
    there = [name for name in LIGER if name in samples]
    for name in there:
        own = next(one for one, fast in DENSE.items() if fast == LIGER[name])
        compare_samples(f"{own} ÷ {name}, {shape}", samples, own, name)
    if not there:
        print("Liger-Kernel is not installed, its chunked KL is left out: pip install --no-deps liger-kernel\n")
    code = (
        f"import sys; from benchmarks.fused_head import extra_memory; print(extra_memory(sys.argv[1], {MEMORY_ROWS}))"
    )
    for name in (PEER, *CASES, *there):
        done = subprocess.run([sys.executable, "-c", code, name], stdout=subprocess.PIPE, check=True)
        goal = 0.1 if name in CASES else None
        size = f"{MEMORY_ROWS:,}×{WIDTH}×{CLASSES:,}"
        declare(f"{name}: peak memory beyond the gradients ÷ logits, {size}", float(done.stdout), at_most=goal)
