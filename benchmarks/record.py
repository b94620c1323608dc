"""The recorded ratios, and the page that shows them.

`recorded.json` holds one ratio a line, so that two branches that record different ones merge without a conflict.
"""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

import torch

from benchmarks.ratios import Ratio, as_table, entry

Record = dict[str, dict[str, Ratio]]  # benchmark -> name -> ratio

RECORDED = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

`python -m benchmarks` measures every ratio on this page beside its peer in one process: the median of interleaved
rounds, on one thread. It prints CPU time and wall time, and exits with an error where a ratio is worse than the
recorded one by more than the noise of both. `python -m benchmarks losses store` runs some of them;
`python -m benchmarks --record losses` measures them and records what it finds (`benchmarks/recorded.json`) on this
page; `python -m benchmarks --page` writes the page alone.

A goal "≤ 1.5" is about time ÷ the peer's time, "≥ 0.9" about speed ÷ the peer's speed. ± is the range of the middle
half of the rounds. Goals that were not reached say so. The shape in a name is the one that was measured.
On 2026-11-17 short jobs ran on the second core at times, most of all beside `scaling`: measure what is of that day
again before you trust a small difference.
"""


WHY = {  # goals that were not reached: what stands in the way, as the lines of the same table show
    "crf": (
        "One sentence, and few rows of many tokens: decoding is a step a token, and a step costs a call into torch, "
        "whatever is in it."
    ),
    "ensembles": (
        "Together, ten small networks spend their time in batched matrix products and their gradients; one by one, in "
        "calls. The ratio falls whenever a single training gets faster."
    ),
    "heads": (
        "Heads of several layers are bound by their matrix products, which a loop has to do as well: see the lines “÷ "
        "their matrix products alone”."
    ),
    "losses": (
        "At 128×10 a function that computes nothing takes most of cross-entropy's time, and the call of a compiled "
        "kernel as much again: their sum is above the goal before anything is computed. At 128×1,000 the compiled "
        "kernel alone, four polynomials for every class, takes longer than cross-entropy allows. Uncompiled, each "
        "coefficient of these polynomials is a pass over all logits."
    ),
    "serve": (
        "A node of a graph costs onnxruntime about a microsecond, and the bare network of this benchmark takes 30 to "
        "40: the goal leaves room for four nodes, an uncertainty needs more. The larger the network, the nearer the "
        "ratio is to 1."
    ),
    "steps": (
        "Counted in passes of one network over the batch, forward 1 and backward 2 (1 where only inputs get a "
        "gradient), M = 4: EnD takes 4 + 3 = 7, LatentBE 4 + 4·3 = 16, and TDiv−SDiv 6 more, two teachers and two "
        "subnetworks, one of each with a gradient. So 16/7 = 2.29 and 22/7 = 3.14 is what the methods themselves cost "
        "here, and both goals lie below."
    ),
    "store": (
        "Beside the softmaxes, their mean and its largest classes, a capture measures three uncertainties: it reads "
        "every logit twice more. Tried without gain: dot products instead of sums (slower, and less exact), the whole "
        "as one compiled kernel, other sizes of a chunk."
    ),
}


def machine() -> str:
    """Where it was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"


def read(path: Path | None = None) -> Record:
    """Every recorded ratio."""
    path = path or RECORDED
    if not path.exists():
        return {}
    content = json.loads(path.read_text())["ratios"]
    return {group: {name: Ratio(name, **one) for name, one in some.items()} for group, some in content.items()}


def write(record: Mapping[str, Mapping[str, Ratio]], path: Path | None = None) -> None:
    """One line for each ratio, in the order of names."""
    groups = []
    for group in sorted(record):
        some = record[group]
        lines = [f"   {json.dumps(name, ensure_ascii=False)}: {json.dumps(entry(some[name]))}" for name in sorted(some)]
        groups.append(f"  {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n  }")
    head = json.dumps(machine())
    (path or RECORDED).write_text(f'{{\n "machine": {head},\n "ratios": {{\n' + ",\n".join(groups) + "\n }\n}\n")


def page(path: Path | None = None) -> str:
    """docs/benchmarks.md."""
    path = path or RECORDED
    where = json.loads(path.read_text())["machine"] if path.exists() else machine()
    parts = [HEAD, f"Measured on: {where}.\n"]
    for group, some in sorted(read(path).items()):
        days = ", ".join(sorted({one.day for one in some.values()}))
        parts.append(f"## {group}\n\nRecorded on {days}.\n\n{as_table(list(some.values()))}\n")
        if group in WHY and any(one.reached is False for one in some.values()):
            parts.append(f"Why not: {fill(WHY[group], 120)}\n")
    return "\n".join(parts)
