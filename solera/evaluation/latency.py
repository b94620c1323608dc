"""What a model costs: its size, and how long an answer takes on this machine."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solera.data import map_tensors

BATCHES = (1, 64)
ROUNDS, LEAST, SECONDS = 100, 3, 0.4  # answers timed of each model and batch: at most, at least, and for how long
SAME = 1.5  # times as long: less is about the same cost
LARGEST = 1 << 24  # numbers in the answer of a timed batch: more would take the memory that evaluation spares
Speed = dict[str, float]  # p50, p95 and p99 of one answer in ms; throughput in examples per second


@dataclass(frozen=True)
class Cost:
    """Parameters, bytes of the weights, and the speed by batch size; nothing where it is not known."""

    parameters: int | None = None
    bytes: int | None = None
    speed: dict[str, Speed] = field(default_factory=dict)

    @property
    def microseconds(self) -> float | None:
        """For one example of the larger batch: the median."""
        last = str(BATCHES[-1])
        return 1e3 * self.speed[last]["p50"] / BATCHES[-1] if last in self.speed else None


def in_turns(calls: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, list[float]]:
    """Seconds of each call, by name; they take turns, so that noise hits all alike."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    return taken


def timed(models: Mapping[str, Any], inputs: Any, batch: int) -> dict[str, list[float]]:
    """Seconds of each `predict` on one batch, by model.

    The models take turns, so that noise hits all alike; each until it was asked often enough or its time is up.
    """
    rows = map_tensors(lambda tensor: tensor[torch.arange(batch) % len(tensor)], inputs)
    taken: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.predict(rows)  # the first answer also pays for what is set up once
    waiting = list(models)
    while waiting:
        for name in waiting:
            start = time.perf_counter()
            models[name].predict(rows)
            taken[name].append(time.perf_counter() - start)
        waiting = [
            name
            for name, times in taken.items()
            if len(times) < LEAST or (len(times) < ROUNDS and sum(times) < SECONDS)
        ]
    return taken


def speed_of(seconds: list[float], batch: int) -> Speed:
    """The percentiles of these times, and what they mean for a stream of such batches."""
    p50, p95, p99 = (float(p) for p in 1e3 * np.percentile(seconds, [50, 95, 99]))
    return {"p50": p50, "p95": p95, "p99": p99, "throughput": batch * len(seconds) / sum(seconds)}


def size_of(model: Any) -> tuple[int | None, int | None]:
    """Parameters, and bytes of all weights, of a torch module that has any."""
    if not isinstance(model, nn.Module):
        return None, None
    parameters = sum(p.numel() for p in model.parameters())
    return parameters or None, sum(t.nbytes for t in model.state_dict().values() if isinstance(t, Tensor)) or None


def _numbers(model: Any, inputs: Any) -> int:
    """How many numbers an answer about one example holds, of all members together."""
    return model.predict(map_tensors(lambda t: t[:1], inputs)).mean.numel() * int(getattr(model, "members", 1))


def costs(models: Mapping[str, Any], inputs: Any) -> dict[str, Cost]:
    """Of every model; one that only remembers its answers (no `predict`, or not `live`) is not timed."""
    live = {n: m for n, m in models.items() if hasattr(m, "predict") and getattr(m, "live", True)}
    speed: dict[str, dict[str, Speed]] = {name: {} for name in models}
    for batch in BATCHES:
        small = {name: model for name, model in live.items() if batch * _numbers(model, inputs) <= LARGEST}
        for name, seconds in timed(small, inputs, batch).items():
            speed[name][str(batch)] = speed_of(seconds, batch)
    return {name: Cost(*size_of(model), speed[name]) for name, model in models.items()}


def cost_beside(other: Cost, own: Cost) -> str:
    """What another model costs beside one's own, as the end of a sentence; nothing where it was not measured."""
    theirs, mine = other.microseconds, own.microseconds
    if theirs is None or mine is None:
        return ""
    times = theirs / mine
    if max(times, 1 / times) < SAME:
        return ", at about the same cost"
    factor = max(times, 1 / times)
    shown = f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"
    return f", but takes {shown} × as long" if times > 1 else f", in 1/{shown} of the time"
