"""Ratios with goals: measured beside the peer in one process, printed, and held against the recorded ones.

One call inside a benchmark's `main()` declares a ratio:

    compare("proxy loss ÷ cross-entropy, 128×10", ours, peer, at_most=1.5)    # time ÷ the peer's time
    compare("capture speed ÷ bare softmax", ours, peer, at_least=0.9)         # speed ÷ the peer's speed
    declare("peak extra memory ÷ logits", bytes_used / size, at_most=0.1)     # a number measured in another way
"""

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from benchmarks.timing import Samples, Seconds, measure, table

LEAST_NOISE = 0.05  # two quiet runs of one build differ by that


def machine() -> str:
    """Where it is measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"


@dataclass(frozen=True)
class Ratio:
    """One number with its goal; without any goal, less is better."""

    name: str
    value: float
    noise: float  # relative: the interquartile range of the rounds
    at_most: float | None = None
    at_least: float | None = None
    wall: float | None = None  # the same ratio by the clock on the wall
    ours: float | None = None  # CPU seconds
    peer: float | None = None
    day: str = field(default_factory=lambda: date.today().isoformat(), compare=False)  # of the measurement
    where: str = field(default_factory=machine, compare=False)  # the machine it was measured on

    @property
    def goal(self) -> str:
        """As a reader wants it."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None: there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def worse_than(self, recorded: "Ratio") -> bool:
        """By more than the noise of both."""
        allowed = 1 + self.noise + recorded.noise
        if self.at_least is not None:
            return self.value * allowed < recorded.value
        return self.value > recorded.value * allowed


_found: list[Ratio] = []


def take() -> list[Ratio]:
    """The ratios declared since the last call."""
    found = list(_found)
    _found.clear()
    return found


def declare(
    name: str, value: float, *, at_most: float | None = None, at_least: float | None = None, noise: float = LEAST_NOISE
) -> Ratio:
    """A number that was measured in another way than by `compare`: bytes, requests a second."""
    found = Ratio(name, value, noise, at_most, at_least)
    _found.append(found)
    return found


def _noise(ratios: Seconds) -> float:
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return max(LEAST_NOISE, (high - low) / middle)


def compare_samples(
    name: str, samples: Samples, ours: str, peer: str, *, at_most: float | None = None, at_least: float | None = None
) -> Ratio:
    """`compare`, of two of the cases that `measure` has measured already."""
    above, below = (ours, peer) if at_least is None else (peer, ours)  # speeds are one over times

    def each(of: Mapping[str, Seconds]) -> Seconds:
        return [a / b for a, b in zip(of[above], of[below], strict=True)]

    cpu, wall = each(samples), median(each(samples.wall))
    seconds = median(samples[ours]), median(samples[peer])
    found = Ratio(name, median(cpu), _noise(cpu), at_most, at_least, wall, *seconds)
    _found.append(found)
    return found


def compare(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    rounds: int = 7,
) -> Ratio:
    """CPU time of `ours` ÷ that of `peer`, or with `at_least` the speeds: the median of interleaved rounds."""
    samples = measure({"ours": ours, "peer": peer}, rounds)
    return compare_samples(name, samples, "ours", "peer", at_most=at_most, at_least=at_least)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def as_table(found: list[Ratio], recorded: Mapping[str, Ratio] | None = None) -> str:
    """Markdown: one line for each ratio, with the recorded one where there is something to hold it against."""
    header = ["ratio", "CPU time", "wall", "± %", "goal", "reached", "ours", "peer"]
    header += [] if recorded is None else ["recorded", "verdict"]
    rows = []
    for one in found:
        wall = "" if one.wall is None else f"{one.wall:.3g}"
        reached = {True: "yes", False: "no", None: ""}[one.reached]
        row = [one.name, f"{one.value:.3g}", wall, f"{100 * one.noise:.0f}", one.goal, reached]
        row += [_time(one.ours), _time(one.peer)]
        if recorded is not None:
            before = recorded.get(one.name)
            row += ["", "new"] if before is None else [f"{before.value:.3g}", verdict(one, before)]
        rows.append(row)
    return table(header, rows)


def verdict(now: Ratio, recorded: Ratio) -> str:
    """In a word."""
    found = "WORSE" if now.worse_than(recorded) else "better" if recorded.worse_than(now) else "as recorded"
    return found if now.where == recorded.where else f"{found}, on another machine"


def entry(one: Ratio) -> dict[str, Any]:
    """As the record keeps it."""
    numbers = {"value": one.value, "noise": one.noise, "wall": one.wall, "ours": one.ours, "peer": one.peer}
    rounded = {key: float(f"{value:.4g}") for key, value in numbers.items() if value is not None}
    goals = {"at_most": one.at_most, "at_least": one.at_least}
    return (
        rounded
        | {key: value for key, value in goals.items() if value is not None}
        | {"day": one.day, "where": one.where}
    )
