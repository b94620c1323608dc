"""The recorded ratios, and the page that shows them.

`recorded.json` holds one ratio a line, so that two branches that record different ones merge without a conflict.
"""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

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
    return "\n".join(parts)
