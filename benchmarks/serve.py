"""A student behind HTTP, asked by a client in another process, beside onnxruntime called directly."""

import asyncio
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import table
from solera import Student
from solera.methods import ProxyDirichlet
from solera.nn import ConvNet
from solera.serving import Graph, export

SHAPE, CLASSES, SECONDS = (1, 8, 8), 10, 5.0
JSON, NPY = "application/json", "application/x-npy"


@contextmanager
def service(path: Path) -> Iterator[tuple[str, int]]:
    """`solera serve` in a process of its own: host and port."""
    command = [str(Path(sys.executable).with_name("solera")), "serve", str(path), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        host, port = process.stdout.readline().split(" at http://")[1].split(",")[0].split(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.wait()


def question(rows: np.ndarray, kind: str) -> bytes:
    """A whole HTTP request."""
    if kind == JSON:
        body = json.dumps({"inputs": rows.tolist()}).encode()
    else:
        file = io.BytesIO()
        np.save(file, rows)
        body = file.getvalue()
    accept = JSON if kind == JSON else "application/x-npz"
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nAccept: {accept}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def one_client(address: tuple[str, int], content: bytes, until: float, times: list[float]) -> None:
    """Asks again as soon as it is answered; bare sockets, so that the service is measured and not a library."""
    reader, writer = await asyncio.open_connection(*address)
    while time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        times.append(time.perf_counter() - start)
    writer.close()


def asked(address: tuple[str, int], content: bytes, clients: int) -> list[float]:
    """Seconds of every request of so many clients at once."""

    async def all_of_them() -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(one_client(address, content, until, times) for _ in range(clients)))
        return times

    return asyncio.run(all_of_them())


def called(run: Callable[[], object]) -> list[float]:
    """Seconds of every call, one after the other."""
    times, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def row(name: str, clients: object, rows: int, times: list[float]) -> list[object]:
    """One line of the table."""
    p50, p99 = 1000 * np.percentile(times, [50, 99])
    return [name, clients, rows, f"{p50:.2f}", f"{p99:.2f}", f"{len(times) / SECONDS:,.0f}"]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    student = Student(ConvNet(SHAPE, CLASSES), ProxyDirichlet()).eval()
    images = np.random.default_rng(0).random((64, *SHAPE), np.float32)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = export(student, Path(folder) / "student.onnx", images).path
        graph = Graph(path, threads=1)
        for rows in (1, 64):
            part = images[:rows]
            lines.append(row("onnxruntime, called", "–", rows, called(lambda part=part: graph(part))))
        with service(path) as address:
            for kind, name in ((JSON, "service, JSON"), (NPY, "service, NumPy")):
                for clients, rows in ((1, 1), (16, 1), (64, 1), (1, 64)):
                    asked_of = asked(address, question(images[:rows], kind), clients)
                    lines.append(row(name, clients, rows, asked_of))
    header = ["convnet, 8×8", "clients", "rows a request", "p50, ms", "p99, ms", "requests a second"]
    print(table(header, lines) + "\n", flush=True)
