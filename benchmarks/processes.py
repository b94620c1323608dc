"""Training in two and in four processes under torchrun ÷ in one: 1 is as many times the throughput as cores in use."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.ratios import declare

SCRIPT = """
import os, sys, time, torch
from solera import Batches, EnD, Ensemble, Training, distill
from solera.core.progress import quiet
from solera.nn import MLP, WideResNet
torch.manual_seed(0)
torch.set_num_threads(1)
if sys.argv[1] == "MLP":
    x, student, size, epochs = torch.randn(4096, 64), MLP(64, 10, (512, 512)), 512, 6
else:
    x, student, size, epochs = torch.randn(1024, 3, 32, 32), WideResNet(10, 1, (3, 32, 32), 10), 64, 4
teacher, ends = Ensemble([MLP(x[0].numel(), 10, (16,)) for _ in range(2)]), []
with quiet():
    distill(teacher, student, Batches(x, batch_size=size), EnD(), Training(epochs=epochs, device="cpu"),
            watch=lambda *_: ends.append(time.perf_counter()))
if int(os.environ.get("RANK", "0")) == 0:
    print("seconds", (ends[-1] - ends[0]) / (len(ends) - 1), flush=True)
"""
SHARED = {"MLP": "an MLP (64-512-512-10, batches of 512)", "WRN": "a WRN-10-1 (32×32 images, batches of 64)"}


def processes(count: int, kind: str) -> float:
    """Wall seconds of an epoch in so many processes of one thread each."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        launch = ["-m", "torch.distributed.run", f"--nproc-per-node={count}", f"--master-port={port}"]
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *(launch if count > 1 else []), str(script), kind]
        done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return float(done.stdout.split("seconds")[1].split()[0])


def main() -> None:
    cores = os.cpu_count() or 1
    for kind, what in SHARED.items():
        one, taken = processes(1, kind), {count: processes(count, kind) for count in (2, 4)}
        for count, seconds in taken.items():
            most = min(count, cores)
            title = f"{count} processes ÷ {most} times one on {cores} cores, throughput of training {what}"
            declare(title, one / (most * seconds), at_least=0.7, noise=0.2)
        times = " and ".join(f"{seconds:.2f} s in {count}" for count, seconds in taken.items())
        print(f"An epoch of {what} takes {one:.2f} s in one process, {times}.\n", flush=True)
