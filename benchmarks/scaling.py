"""Time and memory against examples N, classes K and members M: capture, an epoch from the store, evaluation, report.

`python -m benchmarks scaling` prints the numbers, fits the exponents and draws docs/benchmarks/scaling.png.
`SOLERA_SCALE=10` takes ten times as many examples, ten million at most.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.losses import resident
from benchmarks.ratios import declare, machine
from benchmarks.timing import table
from solera import Batches, Ensemble, ProxyDirichlet, Student, Training, capture, distill, evaluate, report
from solera.core.progress import quiet

SCALE = float(os.environ.get("SOLERA_SCALE", "1"))
PICTURE = Path(__file__).parents[1] / "docs" / "benchmarks" / "scaling.png"
WIDTH = 16
USUAL = {"N": 2000, "K": 100, "M": 5}
SIZES = {"N": (1000, 10_000, 100_000, 1_000_000), "K": (10, 100, 1000, 10_000, 100_000), "M": (2, 10, 50, 100)}
LEAST_MEGABYTES = 20.0  # less than that hides in memory that the process had freed before: no exponent of it
LINEAR = 1.1  # an exponent of 1, and what a fit over a few points may be off

Run = Callable[[], object]
Point = tuple[int, float, float]  # size, CPU seconds, megabytes


def works(examples: int, classes: int, members: int, folder: Path) -> dict[str, Run]:
    """The four pieces of work, in the order in which a user does them."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(examples, WIDTH), torch.randint(classes, (examples,))
    batches = Batches(inputs, labels, batch_size=256)
    ensemble = Ensemble([nn.Linear(WIDTH, classes) for _ in range(members)])
    student = nn.Linear(WIDTH, classes)
    found: dict[str, object] = {}

    def captured() -> object:
        found["kept"] = capture(ensemble, batches, folder / "kept", "top_k")
        return found["kept"]

    def epoch() -> object:
        return distill(found["kept"], student, batches, ProxyDirichlet(), Training(epochs=1, device="cpu"))  # type: ignore[arg-type]

    def evaluated() -> object:
        models = {"ensemble": ensemble, "student": Student(student, ProxyDirichlet())}
        found["evaluation"] = evaluate(models, batches)
        return found["evaluation"]

    def reported() -> object:
        return report(found["evaluation"], folder / "report.html")  # type: ignore[arg-type]

    return {"capture": captured, "epoch": epoch, "evaluation": evaluated, "report": reported}


def measured(run: Run) -> tuple[float, float]:
    """CPU seconds and megabytes above what was there."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the most held so far
    start = time.process_time()
    run()
    return time.process_time() - start, max(0.1, (resident("VmHWM") - before) / 1e6)


def curves() -> dict[tuple[str, str], list[Point]]:
    """(work, axis) -> its points."""
    points: dict[tuple[str, str], list[Point]] = {}
    with quiet(), tempfile.TemporaryDirectory() as place:
        for run in works(300, 10, 2, Path(place)).values():
            run()  # what is imported and set up once does not count
    for axis, sizes in SIZES.items():
        for size in (int(size * SCALE) if axis == "N" else size for size in sizes):
            shape = USUAL | {axis: size}
            with quiet(), tempfile.TemporaryDirectory() as place:
                for work, run in works(shape["N"], shape["K"], shape["M"], Path(place)).items():
                    points.setdefault((work, axis), []).append((size, *measured(run)))
    return points


def exponent(points: list[Point], column: int) -> float | None:
    """The slope between the two largest sizes in logarithms: at smaller ones fixed costs hide it. None: too little."""
    (small, *few), (large, *many) = points[-2:]
    if column == 1 and few[1] < LEAST_MEGABYTES:
        return None
    return math.log(many[column] / few[column]) / math.log(large / small)


def draw(points: dict[tuple[str, str], list[Point]]) -> None:
    """Two rows (seconds, megabytes), one column for each axis, one line for each work, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, len(SIZES), figsize=(11, 6), sharey="row", constrained_layout=True)
    names = {"N": "examples N", "K": "classes K", "M": "members M"}
    for column, axis in enumerate(SIZES):
        for row, what in enumerate(("CPU seconds", "MB above the start")):
            place = grid[row][column]
            for work in dict.fromkeys(work for work, _ in points):
                line = np.array(points[work, axis])
                slope = exponent(points[work, axis], row)
                name = work if slope is None else f"{work}, {axis}^{slope:.2f}"
                place.loglog(line[:, 0], line[:, 1 + row], marker="o", label=name)
            others = ", ".join(f"{key} = {value:,}" for key, value in USUAL.items() if key != axis)
            place.set_xlabel(f"{names[axis]} ({others})")
            place.set_ylabel(what)
            place.legend(fontsize=8)
            place.grid(alpha=0.3)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


HEAD = """# Scaling curves

Time and memory against examples N, classes K and members M, for the four pieces of work of a distillation: capture into
a store of the 64 likeliest classes, one epoch of a linear student from that store (ProxyDirichlet), evaluation of
ensemble and student, and the report. Members and student are linear layers of 16 inputs, so that what is measured is
the work around the networks. Written by `python -m benchmarks scaling` in one process on one thread; CPU time, and the
memory above what the process held before.

![Scaling curves](scaling.png)

Exponents are those between the two largest sizes. Fixed costs show at small sizes: an exponent below 1 says that the
curve has not yet reached its slope. Where the second largest size
took less than 20 MB of memory there is no exponent ("too little"): so little hides in what the process had freed.
"""


def page(rows: list[list[str]], notes: list[str]) -> str:
    """docs/benchmarks/scaling.md."""
    lines = table(["work", "axis", "smallest", "largest", "time ∝", "memory ∝"], rows)
    return "\n".join([HEAD, lines, "", *notes, "", f"Measured on: {machine()}.", ""])


def rates(points: dict[tuple[str, str], list[Point]]) -> list[str]:
    """CPU time per logit at the largest K, for plans on paper."""
    size, captured, _ = points["capture", "K"][-1]
    learned = points["epoch", "K"][-1][1]
    logits = USUAL["N"] * size
    each = 1e9 * captured / (logits * USUAL["M"]), 1e9 * learned / logits
    return [
        f"At K = {size:,} capture takes {each[0]:.1f} ns per member's logit, the networks included, and an epoch "
        f"{each[1]:.1f} ns per logit of the student, its optimiser included (one core).",
    ]


def main() -> None:
    torch.set_num_threads(1)
    points = curves()
    rows = []
    for (work, axis), line in points.items():
        slopes = [exponent(line, column) for column in (0, 1)]
        ends = [f"{size:,}: {seconds:.3g} s, {megabytes:.0f} MB" for size, seconds, megabytes in (line[0], line[-1])]
        rows.append([work, axis, *ends, *("too little" if slope is None else f"{slope:.2f}" for slope in slopes)])
        for what, slope, noise in zip(("time", "memory"), slopes, (0.15, 0.3), strict=True):
            if slope is not None:
                declare(f"{work}: exponent of the {what} in {axis}", max(slope, 0.01), at_most=LINEAR, noise=noise)
    draw(points)
    text = page(rows, rates(points))
    PICTURE.with_suffix(".md").write_text(text)
    print(text, flush=True)
