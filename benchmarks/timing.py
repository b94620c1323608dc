"""CPU time of several ways to do one thing, measured in turn so that a busy machine slows all of them alike."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

Seconds = list[float]

LEAST = 0.02  # seconds: shorter samples are repeated, or the clock's own step would show


class Samples(dict[str, Seconds]):
    """CPU seconds of each case, one per round; `wall` has the seconds of the clock on the wall."""

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        super().__init__({name: [] for name in names})
        self.wall: dict[str, Seconds] = {name: [] for name in names}


def _sample(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """CPU and wall seconds of one call."""
    wall, start = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats, (time.perf_counter() - wall) / repeats


def measure(cases: Mapping[str, Callable[[], object]], rounds: int = 7) -> Samples:
    """Seconds of one call of each case, once per round; the first calls (compilation, allocation) do not count."""
    repeats = {}
    for name, run in cases.items():
        run()
        repeats[name] = max(1, round(LEAST / max(_sample(run, 1)[0], 1e-6)))
    samples = Samples(cases)
    for _ in range(rounds):
        for name, run in cases.items():
            cpu, wall = _sample(run, repeats[name])
            samples[name].append(cpu)
            samples.wall[name].append(wall)
    return samples


def ratio(samples: Mapping[str, Seconds], name: str, baseline: str) -> float:
    """How many times the baseline's time: the median over the rounds."""
    return median(a / b for a, b in zip(samples[name], samples[baseline], strict=True))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
