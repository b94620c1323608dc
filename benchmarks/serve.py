"""A student behind HTTP beside a bare uvicorn with onnxruntime, and its graph beside one without uncertainty.

Client and servers share the cores, and the machine may be busy: requests a second and latencies are taken in turns of a
second, and CPU time a request is what the kernel counts for the server's process, whatever else runs.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
import torch
from torch import nn

from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure, table
from solera import Student
from solera.methods import EnD, Hydra, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.serving import Graph, export

SHAPE, CLASSES, SECONDS, ROUNDS = (1, 8, 8), 10, 1.0, 5
REQUESTS = 100_000  # over which the service's memory must stay
JSON, NPY = "application/json", "application/x-npy"
GRAPH_GOAL, SERVE_GOAL, TAIL_GOAL = 1.1, 0.8, 2.0
TICK = os.sysconf("SC_CLK_TCK")


class Bare(nn.Module):
    """The network and softmax: what one would serve without uncertainty."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.network(inputs).softmax(-1)


def bare_graph(network: nn.Module, path: Path) -> Path:
    """Of the network alone."""
    batch = torch.export.Dim("batch", min=1)
    example = torch.zeros(2, *SHAPE)
    program = torch.onnx.export(
        Bare(network).eval(), (example,), dynamo=True, verbose=False, dynamic_shapes=({0: batch},)
    )
    assert program is not None
    path.write_bytes(program.model_proto.SerializeToString())
    return path


def session_of(path: Path) -> onnxruntime.InferenceSession:
    """As `Graph` makes it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def graphs(folder: Path) -> list[list[object]]:
    """CPU time of the served graph ÷ the bare one, for every method, one image and 64 at a time."""
    lines: list[list[object]] = []
    methods: list[Method] = [EnD(), ProxyDirichlet(), Hydra()]
    for method in methods:
        torch.manual_seed(0)
        network = ConvNet(SHAPE, CLASSES)
        student = Student(method.student(network, 5), method).eval()
        images = np.random.default_rng(0).random((64, *SHAPE), np.float32)
        graph = Graph(export(student, folder / "student.onnx", images).path, threads=1)
        bare = session_of(bare_graph(ConvNet(SHAPE, CLASSES), folder / "bare.onnx"))
        name = bare.get_inputs()[0].name
        for rows in (1, 64):
            part = images[:rows]
            cases = {
                "served": lambda part=part, graph=graph: graph(part),
                "bare": lambda part=part, bare=bare, name=name: bare.run(None, {name: part}),
            }
            samples = measure(cases, rounds=15)
            title = f"served graph ÷ bare network, {type(method).__name__}, {rows} rows"
            found = compare_samples(title, samples, "served", "bare", at_most=GRAPH_GOAL if rows == 1 else None)
            milliseconds = (f"{1000 * median(samples[case]):.3f}" for case in cases)
            lines.append([type(method).__name__, rows, *milliseconds, f"{found.value:.2f}", found.goal or "–"])
    return lines


@dataclass
class Server:
    """A process that listens, and what its requests took."""

    process: subprocess.Popen[str]
    port: int
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def cpu_seconds(self) -> float:
        """That the process has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def megabytes(self) -> float:
        """That it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1000


@contextmanager
def started(*command: str) -> Iterator[Server]:
    """Of a command whose first line of output ends with the port, or holds the address."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        yield Server(process, int(said.split(",")[0].rpartition(":")[2]))
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
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nAccept: {accept}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def one_client(port: int, content: bytes, until: float, times: list[float]) -> None:
    """Asks again as soon as it is answered; bare sockets, so that the service is measured and not a library."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        times.append(time.perf_counter() - start)
    writer.close()


def ask(server: Server, content: bytes, clients: int) -> None:
    """One turn of so many clients at once."""

    async def all_of_them() -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(one_client(server.port, content, until, times) for _ in range(clients)))
        return times

    before = server.cpu_seconds()
    times = asyncio.run(all_of_them())
    server.times += times
    server.rates.append(len(times) / SECONDS)
    server.cpu.append((server.cpu_seconds() - before) / len(times))


def shares(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Ours ÷ theirs, turn by turn: the median."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def judge(server: Server, beside: Server, clients: int, rows: int) -> None:
    """Declares the ratios; goals are for many clients with one row each, on a quiet machine."""
    many = clients > 1
    what = f"{clients} clients × {rows} rows, JSON"
    p50, p99 = np.percentile(server.times, [50, 99])
    declare(f"CPU a request ÷ bare, {what}", shares(server.cpu, beside.cpu), noise=0.3)
    if many:
        declare(f"throughput ÷ bare, {what}", shares(server.rates, beside.rates), at_least=SERVE_GOAL, noise=0.3)
        declare(f"p99 ÷ p50, {what}", float(p99 / p50), at_most=TAIL_GOAL, noise=0.5)
    else:
        declare(f"p50 ÷ bare, {what}", float(p50 / np.median(beside.times)), noise=0.3)


def row(name: str, server: Server, clients: int, rows: int, beside: Server | None) -> list[object]:
    """One line of the table: throughput and CPU time ÷ those of the bare server in the same turns."""
    p50, p99 = 1000 * np.percentile(server.times, [50, 99])
    cells = [name, clients, rows, f"{p50:.2f}", f"{p99:.2f}", f"{p99 / p50:.1f}", f"{median(server.rates):,.0f}"]
    cells.append(f"{1000 * median(server.cpu):.2f}")
    if beside is None:
        return [*cells, "–", "–"]
    return [*cells, f"{shares(server.rates, beside.rates):.2f}", f"{shares(server.cpu, beside.cpu):.2f}"]


def memory(server: Server, content: bytes) -> None:
    """Of the service, before so many requests and after them."""
    before, asked = server.megabytes(), Server(server.process, server.port)
    while len(asked.times) < REQUESTS:
        ask(asked, content, 64)
    after = server.megabytes()
    print(f"memory of the service: {before:.0f} MB before, {after:.0f} MB after {len(asked.times):,} requests\n")
    declare(f"memory of the service after {REQUESTS:,} requests ÷ before", after / before, at_most=1.05)


def services(folder: Path) -> list[list[object]]:
    """Ours beside the bare one, in turns, for one client and for 64."""
    torch.manual_seed(0)
    network = ConvNet(SHAPE, CLASSES)
    images = np.random.default_rng(0).random((64, *SHAPE), np.float32)
    path = export(Student(network, ProxyDirichlet()).eval(), folder / "student.onnx", images).path
    bare = bare_graph(network, folder / "bare.onnx")
    lines = []
    ours = ("-m", "solera.cli.main", "serve", str(path), "--port", "0", "--threads", "1")
    with started(*ours) as served, started("-m", "benchmarks.echo_server", str(bare)) as echo:
        for server in (served, echo):  # what is allocated once does not count
            ask(server, question(images[:1], JSON), 64)
        for clients, rows in ((1, 1), (64, 1), (1, 64)):
            turns = {kind: Server(served.process, served.port) for kind in (JSON, NPY)}
            beside = Server(echo.process, echo.port)
            for _ in range(ROUNDS):
                ask(beside, question(images[:rows], JSON), clients)
                for kind, server in turns.items():
                    ask(server, question(images[:rows], kind), clients)
            judge(turns[JSON], beside, clients, rows)
            lines.append(row("bare uvicorn, JSON", beside, clients, rows, None))
            lines += [row(f"service, {k.rpartition('/')[2]}", s, clients, rows, beside) for k, s in turns.items()]
        memory(served, question(images[:1], JSON))
    return lines


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        header = ["convnet, 8×8", "rows", "served, ms", "bare network, ms", "÷", "goal ≤"]
        print(table(header, graphs(Path(folder))) + "\n", flush=True)
        lines = services(Path(folder))
    header = ["", "clients", "rows a request", "p50, ms", "p99, ms", f"p99 ÷ p50 (goal ≤ {TAIL_GOAL:g})"]
    header += ["requests a second", "CPU ms a request", f"throughput ÷ bare (goal ≥ {SERVE_GOAL})", "CPU ÷ bare"]
    print(table(header, lines) + "\n", flush=True)
