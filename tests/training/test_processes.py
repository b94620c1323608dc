"""The same script in two real processes under torchrun gives the same student as in one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from solera.data import Batch

SCRIPT = """
import sys, torch
from solera import ProxyDirichlet, Training, distill
from solera.nn import MLP
from tests.helpers import small_batches, small_ensemble
torch.manual_seed(3)
batches = small_batches(examples=67, batch_size=11)   # odd sizes: parts differ, and a last batch of one example
training = Training(epochs=3, lr=0.01, label_weight=0.2)
student = distill(small_ensemble(), MLP(4, 3, (8,)), batches, ProxyDirichlet(), training, folder=sys.argv[1] + "/run")
if int(__import__("os").environ.get("RANK", "0")) == 0:
    student.save(sys.argv[1])
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_give_the_same_student_as_one(tmp_path):
    root, script = Path(__file__).parents[2], tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    alone, together = tmp_path / "alone", tmp_path / "together"
    subprocess.run([sys.executable, script, alone], cwd=root, env=environment, check=True, timeout=120)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    done = subprocess.run([sys.executable, *launch, script, together], cwd=root, env=environment, timeout=300)
    # gloo now and then aborts while it is torn down, after everything is written: the student is what counts
    assert (together / "config.json").exists(), done.returncode
    one, two = load_file(alone / "model.safetensors"), load_file(together / "model.safetensors")
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_average_to_the_whole():
    torch.manual_seed(0)
    loss = torch.randn(5, 7)
    for weight in (None, (torch.rand(5, 7) > 0.4).float()):
        batch = Batch(torch.randn(5, 2), torch.arange(5), weight=weight)
        for count in (1, 2, 3, 5, 8):
            parts = [batch.part(rank, count) for rank in range(count)]
            averages = [part.average(loss[part.index]) for part in parts]
            torch.testing.assert_close(torch.stack(averages).mean(), batch.average(loss))
