"""Data larger than memory in flat memory, evaluation that keeps columns only, and what checking a batch costs."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.timing import measure, ratio, table
from solera import Batches, EnD, Ensemble, capture
from solera.core.progress import quiet
from solera.nn import MLP, ConvNet
from solera.tasks import Classification

GIGABYTES = float(os.environ.get("SOLERA_MAPPED_GB", "4"))
SEQUENCES = [int(number) for number in os.environ.get("SOLERA_SEQUENCES", "100,400").split(",")]
WIDTH = 1024

# of this process alone: what getrusage says begins with the parent's peak
PEAK = """
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
"""

TRAIN = """
import sys, numpy as np, torch
from solera import Batches, Training, fit
from solera.nn import MLP
torch.set_num_threads(1)
x = np.load(sys.argv[1], mmap_mode="r")
before = peak()
fit(MLP({width}, 4, (32,)), Batches(x, np.arange(len(x)) % 4, batch_size=512), Training(epochs=1, device="cpu"))
print(before, peak())
"""

EVALUATE = """
import sys, torch
from solera import Batches, Ensemble, ProxyDirichlet, Student, evaluate
torch.set_num_threads(1)
sequences, classes = int(sys.argv[1]), 40_000
tokens = torch.randint(50, (sequences, 30))
make = lambda: torch.nn.Embedding(50, classes)
batches = Batches(tokens, tokens % 7, weight=torch.ones(tokens.shape), batch_size=64)
before = peak()
evaluate({"ensemble": Ensemble([make(), make()]), "student": Student(make(), ProxyDirichlet())}, batches)
print(before, peak())
"""


def peak(script: str, *arguments: str) -> tuple[float, float]:
    """Megabytes of a process of its own, before and at its largest."""
    command = [sys.executable, "-c", PEAK + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, most = done.stdout.split()[-2:]
    return float(before), float(most)


def mapped(folder: Path) -> list[object]:
    """One epoch over a mapped file of so many gigabytes."""
    rows = int(GIGABYTES * 1e9 / (4 * WIDTH))
    array = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=(rows, WIDTH))
    for start in range(0, rows, 1 << 16):
        part = array[start : start + (1 << 16)]
        part[:] = np.random.default_rng(start).standard_normal(part.shape, dtype=np.float32)
    array.flush()
    del array
    before, most = peak(TRAIN.format(width=WIDTH), str(folder / "x.npy"))
    return [f"one epoch over a mapped file of {GIGABYTES:g} GB", f"{before:.0f}", f"{most:.0f}"]


def checks(folder: Path) -> str:
    """What looking at a batch costs, beside a step with it: always, and with the fingerprints of the first epoch."""
    rows, task = [], Classification()
    for name, make, x in (
        ("MLP 64×64, 128 rows of 16", lambda: MLP(16, 10, (64, 64)), torch.randn(128, 16)),
        ("convnet, 64 images of 28×28", lambda: ConvNet((1, 28, 28), 10), torch.rand(64, 1, 28, 28)),
    ):
        y = torch.randint(10, (len(x),))
        (batch,) = Batches(x, y, batch_size=len(x))
        kept = capture(Ensemble([make()]), [batch], folder / name)
        network, method = make(), EnD()
        optimizer = torch.optim.AdamW(network.parameters())

        def plain(network=network, optimizer=optimizer, batch=batch) -> None:
            optimizer.zero_grad()
            cross_entropy(network(batch.inputs), batch.target).backward()
            optimizer.step()

        def distilled(network=network, optimizer=optimizer, batch=batch, kept=kept, method=method) -> None:
            optimizer.zero_grad()
            batch.average(method.loss(network(batch.inputs), kept(batch))).backward()
            optimizer.step()

        cases = {
            "plain": plain,
            "distilled": distilled,
            "check": lambda batch=batch: task.check(batch, 10),
            "fingerprints": lambda batch=batch, kept=kept: kept.check(batch),
        }
        taken = measure(cases)
        shares = [ratio(taken, "check", "plain"), ratio(taken, "check", "distilled")]
        shares.append(ratio(taken, "fingerprints", "distilled"))
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    return table(["network", "check ÷ plain step", "check ÷ EnD step", "fingerprints (first epoch) ÷ EnD step"], rows)


def main() -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, quiet():
        print(checks(Path(folder)), end="\n\n", flush=True)
        found = [mapped(Path(folder))]
        for sequences in SEQUENCES:
            before, most = peak(EVALUATE, str(sequences))
            what = f"evaluate two models on {sequences} × 30 tokens × 40,000 classes"
            found.append([what, f"{before:.0f}", f"{most:.0f}"])
        print(table(["what", "MB before", "MB at most"], found), end="\n\n")


if __name__ == "__main__":
    main()
