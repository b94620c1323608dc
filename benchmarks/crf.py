"""The linear-chain CRF against pytorch-crf: CPU time, one thread, rows of different lengths."""

from collections.abc import Callable
from functools import partial

import torch
import torchcrf
from torch import Tensor

from benchmarks.ratios import compare
from solera.nn import CRF

SHAPES = [(32, 23, 9), (32, 23, 25), (64, 50, 9), (1, 23, 9), (8, 200, 17)]
ROUNDS = 15


def both(batch: int, tokens: int, tags: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """(ours, theirs) for each thing to do; the lengths run from half of the tokens to all of them."""
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(batch, tokens, tags, generator=generator).requires_grad_()
    y = torch.randint(tags, (batch, tokens), generator=generator)
    lengths = torch.linspace(tokens, tokens / 2, batch).round().unsqueeze(-1)
    mask = torch.arange(tokens) < lengths
    ours, theirs = CRF(tags, ends=True), torchcrf.CRF(tags, batch_first=True)

    def step(value: Callable[[], Tensor], crf: torch.nn.Module) -> tuple[Tensor, ...]:
        return torch.autograd.grad(value().sum(), [emissions, *crf.parameters()])

    def normalizer() -> Tensor:
        return theirs._compute_normalizer(emissions.transpose(0, 1), mask.transpose(0, 1))

    return {
        "log-partition and backward": (
            partial(step, lambda: ours.log_partition(emissions, mask), ours),
            partial(step, normalizer, theirs),
        ),
        "likelihood and backward": (
            partial(step, lambda: ours.log_prob(emissions, y, mask), ours),
            partial(step, lambda: theirs(emissions, y, mask), theirs),
        ),
        "decode": (lambda: ours.decode(emissions, mask), lambda: theirs.decode(emissions, mask)),
    }


def main() -> None:
    torch.set_num_threads(1)
    torch.empty(1 << 22)  # a training process has freed large tensors: glibc keeps small ones' pages from then on
    for shape in SHAPES:
        for name, (ours, theirs) in both(*shape).items():
            where = "×".join(map(str, shape))
            compare(f"{name} ÷ pytorch-crf, {where} (rows × tokens × tags)", ours, theirs, at_most=0.5, rounds=ROUNDS)
