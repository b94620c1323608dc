"""The transfer store: bytes a token, speed of capture, cost of a training step from it, and reading against files."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure, ratio, table
from solera import Batch, Batches, EnD, ProxyDirichlet, capture
from solera.core.fused import compiled
from solera.core.progress import quiet
from solera.distributions import Categorical, Mixture
from solera.methods import Method
from solera.teachers import TopKCodec

CLASSES, KEEP = 40_000, 64


class Fixed:
    """A teacher whose logits are there already, so that only the capture is measured."""

    live = True

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits, self.members = logits, logits.shape[-2]
        self.fingerprints = [str(m) for m in range(self.members)]

    def check(self, batch: Batch) -> None:
        """Anything goes."""

    def __call__(self, batch: Batch) -> Mixture:
        return Mixture(Categorical(self.logits[batch.index % len(self.logits)]))


def bare(logits: torch.Tensor, few: int) -> list[object]:
    """The softmaxes, their mean and its top-k, a few rows at a time: all at once they would leave the cache."""
    return [rows.softmax(-1).mean(-2).topk(KEEP, -1) for rows in logits.split(few)]


def powers(logits: torch.Tensor) -> None:
    """One power of two for each member and class, the dearest part of any way, in memory that stays in the cache."""
    kept = torch.empty_like(logits[:1])
    for rows in logits.split(1):
        torch.exp2(rows, out=kept)


def size_and_capture() -> str:
    rows = []
    for members in (2, 10, 50):
        sequences, tokens = 4, 32
        torch.manual_seed(0)
        logits = 2 * torch.randn(sequences, tokens // (1 if members < 50 else 4), members, CLASSES)
        tokens = logits.shape[1]
        weight = torch.ones(sequences, tokens)
        batches = [Batch(weight[[i]], torch.tensor([i]), weight=weight[[i]]) for i in range(sequences)]
        with tempfile.TemporaryDirectory() as folder:
            kept = capture(Fixed(logits), batches, folder, "top_k")
            written = sum(column.nbytes for shard in kept.shards for column in shard.values())
        cases = {f"bare {few}": partial(bare, logits.flatten(0, 1), few) for few in (2, 4, 8)}
        ours = {"ours": lambda z=logits: TopKCodec(KEEP).encode(Mixture(Categorical(z)))}
        samples = measure(cases | ours | {"powers": partial(powers, logits.flatten(0, 1))}, rounds=7)
        fastest = max(cases, key=lambda name: ratio(samples, "ours", name))
        title = f"capture speed ÷ bare softmax + mean + top-k, {CLASSES:,} classes, M = {members}"
        speed = compare_samples(title, samples, "ours", fastest, at_least=0.9).value
        title = f"capture ÷ its powers of two alone, {CLASSES:,} classes, M = {members}"
        compare_samples(title, samples, "ours", "powers")
        dense = 2 * members * CLASSES
        rows.append([members, f"{written / (sequences * tokens):.1f}", f"{dense:,}", f"{speed:.2f}"])
    head = ["members", "top_k, bytes a token", "dense float16, bytes a token", "capture speed ÷ bare softmax + top-k"]
    return table(head, rows)


def step_cost() -> None:
    """A training step of a small language head from the store, and the same step with plain labels."""
    torch.manual_seed(0)
    rows, width = 256, 512
    body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    inputs = torch.randn(rows, width)
    with tempfile.TemporaryDirectory() as folder:
        logits = 2 * torch.randn(rows, 2, CLASSES)
        kept = capture(Fixed(logits), Batches(inputs, batch_size=32), folder, "top_k")
        batch, labels = Batch(inputs, torch.arange(rows)), logits[:, 0].argmax(-1)

        def with_labels() -> None:
            body.zero_grad()
            cross_entropy(body(inputs), labels).backward()

        def from_store(method: Method, fast: bool) -> None:
            body.zero_grad()
            with compiled(fast):
                method.loss(body(inputs), kept(batch)).mean().backward()

        cases: dict[str, Callable[[], object]] = {
            "a step of EnD from top_k": partial(from_store, EnD(), False),
            "a step of EnD from top_k, compiled": partial(from_store, EnD(), True),
            "a step of ProxyDirichlet from top_k": partial(from_store, ProxyDirichlet(), False),
            "a step of ProxyDirichlet from top_k, compiled": partial(from_store, ProxyDirichlet(), True),
            "reading the targets alone": lambda: kept(batch),
        }
        samples = measure({"labels": with_labels, **cases}, rounds=7)
    for name in cases:
        compare_samples(f"{name} ÷ a step with labels, {rows}×{width}×{CLASSES:,}", samples, name, "labels")


def reading() -> None:
    """Shuffled batches of 256 from a set larger than 1 GB, against one file per sample (a part of them, per batch)."""
    torch.manual_seed(0)
    examples, members, classes = 55_000, 10, 1000
    with tempfile.TemporaryDirectory() as folder:
        teacher = Fixed(torch.randn(5000, members, classes))
        inputs = torch.arange(examples)[:, None].float()
        kept = capture(teacher, Batches(inputs, batch_size=500), Path(folder) / "set", "dense")
        size = sum(column.nbytes for shard in kept.shards for column in shard.values())
        files = Path(folder) / "files"
        files.mkdir()
        some = 4096
        for i in range(some):
            np.save(files / f"{i}.npy", teacher.logits[i].half().numpy())
        draw = np.random.default_rng(0)
        cases = {
            "store": lambda: kept(Batch(inputs[:256], torch.from_numpy(draw.integers(0, examples, 256)))),
            "files": lambda: torch.from_numpy(
                np.stack([np.load(files / f"{i}.npy") for i in draw.integers(0, some, 256)])
            ).float(),
        }
        samples = measure(cases, rounds=7)
    what = f"{size / 1e9:.2f} GB, {members} × {classes}"
    compare_samples(f"reading, speed ÷ one file per sample's, {what}", samples, "store", "files", at_least=1)


def main() -> None:
    torch.set_num_threads(1)
    with quiet():
        print(size_and_capture() + "\n", flush=True)
        step_cost()
        reading()
