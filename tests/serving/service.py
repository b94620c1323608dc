"""A service as a person starts it: another process, on a free port of this machine."""

import io
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import uvicorn

from solera import Batches, Ensemble, Student, Training, distill, train_ensemble
from solera.methods import NormalWishart, ProxyDirichlet
from solera.nn import MLP, ConvNet
from solera.training.card import Input, Notes, Preprocessing

SOLERA = str(Path(sys.executable).with_name("solera"))
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
LABELS = [*"0123456", HOSTILE]
FEATURES = ["age", "body mass index", "blood pressure"]
NPY, NPZ, JSON = "application/x-npy", "application/x-npz", "application/json"
CLIENT = httpx.Client(verify=False, timeout=60)  # one for all: each would read the certificates of the system anew


def packed(array, **save):
    file = io.BytesIO()
    np.save(file, array, **save)
    return file.getvalue()


def post(running, content, kind=JSON, accept="*/*", path="/predict"):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"Content-Type": kind, "Accept": accept}
    return CLIENT.post(running.url + path, content=body, headers=headers)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [N, 1, 8, 8] in 0 … 1, and their classes; 8 and 9 left out."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = images[labels < 8], labels[labels < 8]
    return torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)


def digits_student() -> Student:
    """A small convnet that knows most digits, distilled from two; its thresholds are on its card."""
    x, y = digits()
    batches, short = Batches(x[:400], y[:400], batch_size=64), Training(epochs=4, lr=2e-2)
    members = train_ensemble(lambda: ConvNet((1, 8, 8), 8, (8,), 16), batches, 2, short)
    ensemble = Ensemble(members.models, class_names=LABELS)
    student = distill(ensemble, ConvNet((1, 8, 8), 8, (8,), 16), batches, ProxyDirichlet(), short)
    knowledge = student.predict(x[600:900]).knowledge
    student.notes = Notes(thresholds={"knowledge, rejects 50 %": float(knowledge.median())})
    return student


def rows() -> np.ndarray:
    """Three named numbers per patient, from scikit-learn's diabetes."""
    from sklearn.datasets import load_diabetes

    return load_diabetes(scaled=False).data[:, [0, 2, 3]].astype(np.float32)


def rows_student() -> Student:
    """A regression with names and units."""
    from sklearn.datasets import load_diabetes

    x, y = torch.tensor(rows()), torch.tensor(load_diabetes(scaled=False).target, dtype=torch.float32)
    members = [MLP.for_inputs(x, 2, (8,), targets=y[:, None]) for _ in range(2)]
    model = MLP.for_inputs(x, NormalWishart().outputs(1), (8,), targets=y[:, None])
    batches = Batches(x, batch_size=64)
    ensemble = Ensemble(members, family="gaussian", class_names=["progression"])
    student = distill(ensemble, model, batches, NormalWishart(), Training(epochs=2, lr=1e-2))
    units = {"age": "years", "body mass index": "kg/m²", "blood pressure": "mmHg", "progression": "points"}
    student.preprocessing = Preprocessing([Input("inputs", [3])], features=FEATURES, units=units)
    return student


class Service:
    """The process, where it listens and what it logged."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [SOLERA, "serve", *map(str, arguments), "--port", "0", "--threads", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        said = self.process.stdout.readline()
        assert " at http://" in said, (said, self.lines)
        self.url = said.split(" at ")[1].split(",")[0]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def stop(self, number: int = signal.SIGTERM) -> list[dict]:
        """Asks it to end, and returns its log."""
        self.process.send_signal(number)
        self.process.wait(timeout=60)
        self.reader.join(timeout=10)
        return [json.loads(line) for line in self.lines]


@contextmanager
def service(*arguments: str | Path) -> Iterator[Service]:
    """Ended whatever happens."""
    running = Service(*arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


@contextmanager
def running(app: Any) -> Iterator[str]:
    """An application on a free port, in a thread of this process: its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
