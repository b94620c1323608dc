"""The recorded ratios, and the page that shows them.

`recorded.json` holds one ratio a line, so that two branches that record different ones merge without a conflict.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.ratios import Ratio, as_table, entry

Record = dict[str, dict[str, Ratio]]  # benchmark -> name -> ratio

RECORDED = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

HEAD = """# Benchmarks

`python -m benchmarks` measures every ratio on this page: times beside their peer in one process, the median of
interleaved rounds on one thread (`serve` and `processes` start processes of their own). It prints CPU time and wall
time, and exits with an error where a ratio is worse than the recorded one by more than the noise of both.
`python -m benchmarks losses store` runs some of them; `python -m benchmarks --record losses` measures them and records
what it finds (`benchmarks/recorded.json`) on this page; `python -m benchmarks --page` writes the page alone.

A goal "≤ 1.5" is about time ÷ the peer's time, "≥ 0.9" about speed ÷ the peer's speed. ± is the range of the middle
half of the rounds. Goals that were not reached say so. The shape in a name is the one that was measured.
Machines differ, and some of these were busy: measure again, beside the peer, before you trust a small difference.
"""


# Goals that were not reached: the benchmark, how the ratio's name begins, and what stands in the way.
WHY = [
    (
        "crf",
        "decode",
        "decoding takes a step a token, and for few rows a step costs its calls into torch, ours and theirs",
    ),
    ("decoding", "greedy", "all but a few per cent of a step is the network, which is the same for both"),
    (
        "ensembles",
        "a step with 5 live convnets asked in bf16",
        "where the CPU does not multiply bfloat16, it is emulated",
    ),
    ("ensembles", "a step with", "five forward passes of members beside the three passes of a student's step"),
    (
        "ensembles",
        "training",
        "together they spend their time in batched matrix products, one by one in calls; the ratio falls whenever a "
        "single training gets faster",
    ),
    (
        "fused_head",
        "fused head, Proxy-Dirichlet, eager",
        "uncompiled, each coefficient of four polynomials is a pass over the logits",
    ),
    ("heads", "50 heads", "their matrix products alone, measured beside them, would not reach the goal, either"),
    (
        "losses",
        "Proxy-Dirichlet, compiled ÷ cross-entropy, 1,024×40,000",
        "the kernel alone takes longer: it keeps every e^z for its second pass; where classes are so many, the fused "
        "head does without",
    ),
    (
        "losses",
        "Proxy-Dirichlet, compiled",
        "a function that computes nothing and the call of the compiled kernel take longer than the goal between them",
    ),
    ("losses", "Proxy-Dirichlet, eager", "uncompiled, each coefficient of four polynomials is a pass over all logits"),
    ("members", "mean and uncertainties", "a logarithm and a division for each member and class, beside its softmax"),
    ("metrics", "ECE", "both look for the largest of ten numbers first, which is most of the time"),
    (
        "scaling",
        "epoch: exponent of the time in K",
        "beyond 10,000 classes rows of logits leave the caches; and the fit is within its noise of the goal",
    ),
    ("processes", "2 processes", "the gradients are exchanged after every step, which takes a few milliseconds here"),
    ("processes", "4 processes", "four processes share two cores, and exchange their gradients after every step"),
    (
        "serve",
        "served graph",
        "a node costs onnxruntime one to two microseconds, the bare network of this benchmark takes 30 to 50: the goal "
        "leaves room for two to four nodes; the larger the network, the nearer to 1",
    ),
    ("serve", "p99", "clients and servers share the two cores, and one slow turn of a second decides"),
    ("serve", "throughput", "64 clients are served on the same two cores that they run on"),
    (
        "steps",
        "step of LatentBE, online, TDiv−SDiv",
        "6 passes more than LatentBE: two teachers and two subnetworks, one of each with a gradient; so 22/7 = 3.14",
    ),
    (
        "steps",
        "step of LatentBE",
        "in passes over the batch, forward 1 and backward 2: EnD has 4 + 3 = 7, LatentBE 4 + 4·3 = 16; 16/7 = 2.29",
    ),
    (
        "store",
        "capture speed",
        "three uncertainties beside the mean read every logit twice more; dot products instead of sums, one compiled "
        "kernel and other sizes of a chunk were not faster",
    ),
    ("tagging", "tagger: student", "one tagger without any uncertainty takes nearly as much of the ensemble's time"),
    ("translation", "beam 5 of a Marian", "the network is the same for both, and nearly all there is"),
    ("translation", "memory", "140 bytes a token and 24 a sentence"),
]


Reason = tuple[str, str, str]


def why(group: str, name: str) -> Reason | None:
    """What stands in the way of this ratio; the first that fits."""
    return next((one for one in WHY if one[0] == group and name.startswith(one[1])), None)


def reasons(group: str, ratios: Iterable[Ratio]) -> str:
    """Of the goals that were not reached, each reason once."""
    found = dict.fromkeys(why(group, one.name) for one in ratios if one.reached is False)
    return "".join(f"- Why not, {one[1]}: {one[2]}.\n" for one in found if one is not None)


def read(path: Path | None = None) -> Record:
    """Every recorded ratio."""
    path = path or RECORDED
    if not path.exists():
        return {}
    content = json.loads(path.read_text())["ratios"]
    unknown = {"where": "an unknown machine"}
    return {
        group: {name: Ratio(name, **(unknown | one)) for name, one in some.items()} for group, some in content.items()
    }


def write(record: Mapping[str, Mapping[str, Ratio]], path: Path | None = None) -> None:
    """One line for each ratio, in the order of names."""
    groups = []
    for group in sorted(record):
        some = record[group]
        lines = [f"   {json.dumps(name, ensure_ascii=False)}: {json.dumps(entry(some[name]))}" for name in sorted(some)]
        groups.append(f"  {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n  }")
    (path or RECORDED).write_text('{\n "ratios": {\n' + ",\n".join(groups) + "\n }\n}\n")


def page(path: Path | None = None) -> str:
    """docs/benchmarks.md."""
    path = path or RECORDED
    parts = [HEAD]
    for group, some in sorted(read(path).items()):
        days = ", ".join(sorted({one.day for one in some.values()}))
        machines = " and ".join(sorted({one.where for one in some.values()}))
        parts.append(f"## {group}\n\nRecorded on {days}: {machines}.\n\n{as_table(list(some.values()))}\n")
        if text := reasons(group, some.values()):
            parts.append(text)
    return "\n".join(parts)
