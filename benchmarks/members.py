"""The mean and all uncertainties of a live ensemble from its members' logits, against one student's cross-entropy."""

from functools import partial

import torch
from torch.nn.functional import cross_entropy

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure
from solera.core.fused import compiled
from solera.distributions import Categorical, Mixture

ROWS, MEMBERS, CLASSES = 256, 4, 5000
GOALS = {"in chunks": 15, "compiled": 6}


def main() -> None:
    torch.set_num_threads(1)
    torch.empty(1 << 22)  # a training process has freed large tensors: glibc keeps small ones' pages from then on
    torch.manual_seed(0)
    logits, labels = (2 * torch.randn(ROWS, CLASSES)).requires_grad_(), torch.randint(CLASSES, (ROWS,))
    members = 2 * torch.randn(ROWS, MEMBERS, CLASSES)

    def everything(fast: bool) -> list[torch.Tensor]:
        with compiled(fast):
            said = Mixture(Categorical(members))
            return [said.mean, said.total, said.data, said.knowledge, said.rmi]

    def step() -> torch.Tensor:
        return torch.autograd.grad(cross_entropy(logits, labels), logits)[0]

    cases = {"cross-entropy": step, "in chunks": partial(everything, False), "compiled": partial(everything, True)}
    cases["softmax and mean alone"] = lambda: members.softmax(-1).mean(-2)
    samples = measure(cases, rounds=9)
    for name in list(cases)[1:]:
        what = f"mean and uncertainties, {name}" if name in GOALS else name
        title = f"{what} ÷ cross-entropy and its gradient, {ROWS}×{CLASSES}, M = {MEMBERS}"
        compare_samples(title, samples, name, "cross-entropy", at_most=GOALS.get(name))
