"""The page of the recipe `tabular`: what came out, error against latency, what held, and a table for each set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from solera.recipes.base import Workspace
from solera.recipes.page import COLOURS, judged_cell, pyplot, save_figure, spread, table
from solera.tasks import Row

if TYPE_CHECKING:
    from solera.recipes.tabular import Tabular

LABELS = "MLP on labels"
PLAIN = "EnD, plain numbers"
STUDENT = "EnD, in sample"
SPLIT = "Proxy, in sample"  # keeps the split of the uncertainty
BUDGET = 5.0  # milliseconds a row may take
Found = dict[str, dict[str, Any]]  # by set

# model, other, metric, by how much it may be worse, and what is claimed
CLAIMS: list[tuple[str, str, str, float, str]] = [
    (STUDENT, "ensemble", "accuracy", 0.01, "EnD: at most a point less accurate than the ensemble"),
    (SPLIT, "ensemble", "accuracy", 0.01, "Proxy: the same"),
    (STUDENT, "refit", "accuracy", 0.0, "EnD: more accurate than one LightGBM on all rows"),
    (STUDENT, "refit", "NLL", 0.0, "EnD: lower NLL than one LightGBM on all rows"),
    (STUDENT, LABELS, "accuracy", 0.0, "EnD: more accurate than the same network on labels"),
    (STUDENT, LABELS, "NLL", 0.0, "EnD: lower NLL than the same network on labels"),
    (STUDENT, PLAIN, "accuracy", 0.0, "EnD: more accurate than without pieces"),
    (STUDENT, PLAIN, "NLL", 0.0, "EnD: lower NLL than without pieces"),
    (SPLIT, STUDENT, "NLL", 0.01, "Proxy: NLL at most 0.01 above EnD's"),
    ("EnD, out of fold", STUDENT, "NLL", 0.0, "out-of-fold targets lower EnD's NLL"),
]
PAIRS = sorted({(one, other) for one, other, *_ in CLAIMS})


def cell(rows: list[Row], metric: str) -> str:
    """A number with its spread; a dash where there is none."""
    values = [value for row in rows if (value := row[metric]) is not None and not np.isnan(value)]
    per_cent = metric in ("accuracy", "PRR")
    return spread(values, 1 if per_cent else 3, 100 if per_cent else 1) if values else "–"


def mean(one: Mapping[str, Any], model: str, metric: str) -> float:
    """A metric of a model over its repeats."""
    return float(np.mean([row[metric] for row in one["scores"][model]]))


def summary(found: Found) -> str:
    """Who is how accurate, how likely and how fast: one row a set."""
    models = ["ensemble", "refit", LABELS, STUDENT, SPLIT]
    rows = []
    for name, one in found.items():
        cells = [f"{100 * mean(one, model, 'accuracy'):.1f} / {mean(one, model, 'NLL'):.3f}" for model in models]
        rows.append([name, *cells, f"{one['speed']['ensemble'][0]:.0f} → {one['speed'][SPLIT][0]:.2f}"])
    return table(["accuracy, % / NLL", *models, "ms a row, ensemble → Proxy"], rows)


def claims(found: Found) -> str:
    """What held on which set, by paired intervals over resampled test rows: how much better, in points or nats."""
    rows = []
    for one, other, metric, slack, claim in CLAIMS:
        sign, scale, digits = (1, 100, 1) if metric == "accuracy" else (-1, 1, 3)
        cells = []
        for gaps in (each["gaps"][f"{one} − {other}"][metric] for each in found.values()):
            low, middle, high = (sign * value for value in (gaps if sign > 0 else reversed(gaps)))
            cells.append(judged_cell(low, middle, high, -slack, scale, digits))
        rows.append([claim, *cells])
    slowest = [max(one["speed"][known][0] for known in one["speed"] if "," in known) for one in found.values()]
    said = [f"**{'Held' if time <= BUDGET else 'Not held'}** {time:.2f}, the slowest" for time in slowest]
    return table(["", *found], [*rows, [f"students answer a row in {BUDGET:g} ms, p50", *said]])


def answer(found: Found) -> str:
    """What came out, in a sentence."""

    def surely(one: str, other: str, metric: str, least: float = 0.0, way: int = 1) -> list[str]:
        ends = {name: sorted(way * end for end in each["gaps"][f"{one} − {other}"][metric])
                for name, each in found.items()}  # fmt: skip
        return [
            name for name, (low, _, high) in ends.items() if (low > least if metric == "accuracy" else high < -least)
        ]

    def told(names: list[str]) -> str:
        return f"{len(names)} of {len(found)} sets ({', '.join(names) or 'none'})"

    close = surely(SPLIT, "ensemble", "accuracy", -0.01)
    helped, hurt = (
        [name for name in surely(STUDENT, PLAIN, "accuracy", way=way) if name in surely(STUDENT, PLAIN, "NLL", way=way)]
        for way in (1, -1)
    )
    faster = [one["speed"]["ensemble"][0] / one["speed"][SPLIT][0] for one in found.values()]
    return ANSWER.format(
        slowest=max(one["speed"][SPLIT][1] for one in found.values()),
        refit=max(one["speed"]["refit"][0] for one in found.values()),
        behind_refit=told(surely(STUDENT, "refit", "NLL", way=-1)),
        behind_labels=told(surely(STUDENT, LABELS, "NLL", way=-1)),
        close=told(close),
        helped=told(helped),
        hurt=told(hurt),
        least=min(faster),
        most=max(faster),
    )


def section(name: str, one: dict[str, Any]) -> str:
    """The table a tabular team reads, and what the teacher says about which rows."""
    wanted = ["accuracy", "NLL", "ECE", "PRR", "ρ knowledge"]
    rows = [
        [known, *(cell(each, metric) for metric in wanted), *(f"{value:.2f}" for value in one["speed"][known])]
        for known, each in one["scores"].items()
    ]
    said = [[side, *(f"{value:.4f}" for value in numbers.values())] for side, numbers in one["taught"].items()]
    train, test, features, classes = one["sizes"]
    return SECTION.format(
        name=name.capitalize(),
        sizes=f"{train:,} training rows, {test:,} test rows, {features} features, {classes} classes",
        table=table(["model", *wanted, "p50 ms", "p95 ms"], rows),
        taught=table(["what the teacher says about", "total", "data", "knowledge"], said),
    )


def page(recipe: "Tabular", found: Found, made: str) -> str:
    """All of it."""
    where = f"**Judged on {recipe.held:.0%} of the training rows, not on the test rows.** " if recipe.held else ""
    return PAGE.format(
        where=where,
        answer=answer(found),
        summary=summary(found),
        claims=claims(found),
        sections="\n\n".join(section(name, one) for name, one in found.items()),
        made=made,
        **vars(recipe),
    )


def draw(found: Found, work: Workspace) -> None:
    """Error against the time one row takes."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(found), figsize=(4.6 * len(found), 4.4), layout="constrained", squeeze=False)
    for panel, (name, one) in zip(panels[0], found.items(), strict=True):
        panel.axvline(BUDGET, color="0.8", linewidth=1, zorder=0)
        panel.text(1.08 * BUDGET, 0.97, f"{BUDGET:g} ms", color="0.5", transform=panel.get_xaxis_transform())
        for known, rows in one["scores"].items():
            errors = 100 - 100 * np.array([row["accuracy"] for row in rows])
            bar = errors.std(ddof=1) if len(errors) > 1 else 0.0
            panel.errorbar(one["speed"][known][0], errors.mean(), bar, label=known, capsize=3, **MARKS[known])
        panel.set_xscale("log")
        panel.set(title=name, xlabel="milliseconds for one row (p50)", ylabel="test error in per cent")
        panel.grid(alpha=0.25)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    save_figure(figure, work.folder / "tabular.png")
    plt.close(figure)


MARKS: dict[str, dict[str, Any]] = {
    "ensemble": {"color": COLOURS["ensemble"], "marker": "*", "markersize": 12},
    "one member": {"color": COLOURS["one member"], "marker": "^"},
    "refit": {"color": "0.3", "marker": "s"},
    LABELS: {"color": "#66a61e", "marker": "v"},
    PLAIN: {"color": COLOURS["EnD"], "marker": "x"},
    "EnD, in sample": {"color": COLOURS["EnD"], "marker": "o"},
    "EnD, out of fold": {"color": COLOURS["EnD"], "marker": "o", "markerfacecolor": "white"},
    "Proxy, in sample": {"color": COLOURS["Proxy"], "marker": "D"},
    "Proxy, out of fold": {"color": COLOURS["Proxy"], "marker": "D", "markerfacecolor": "white"},
}

ANSWER = """\
On {close} the Proxy student is surely within a point of the ensemble's accuracy, and it answers {least:.0f} to
{most:.0f} times as fast. A network that sees numbers in pieces is surely better than one that sees them plain, in
accuracy and in NLL, on {helped}, surely worse on {hurt}. One answer in twenty takes longer than
{slowest:.1f} ms where that is most. One LightGBM on all rows answers in {refit:.1f} ms at most (p50) and has a surely
lower NLL than EnD on {behind_refit}; the same network that learns from the labels alone, on {behind_labels}."""

PAGE = """# Tabular

{where}Can one small network stand in for a k-fold ensemble of LightGBMs and random forests, within 5 ms a row on a CPU?
{answer}

{summary}

![Error against latency](tabular.png)

How much better, with its 95 % interval (means over {repeats} seeds of the network, resampled test rows):

{claims}

## How

{folds}-fold LightGBM and random forests ({trees} trees), one of each per fold, distilled into one MLP {hidden} with
dropout {dropout}: AdamW, batches of {batch_size}, {steps:,} steps whatever the size of the set, learning rate 0.004, a
tenth of the rows held out to pick the epoch and to size Proxy's uncertainty. Features that have a common value (of a
fifth of the rows or more) are cut into pieces at {pieces} quantiles of their values and as many of their distinct
values (`MLP.for_inputs(pieces={pieces})`), but for "plain numbers". In sample, every member answers for rows it was
trained on, where it is surer than on new rows; out of fold, a row's targets come only from the pair of members that did
not see it. "Refit" is a single LightGBM on all rows, "one member" the first of the ensemble's. Proxy predicts without
the one.

Networks: mean and standard deviation over {repeats} seeds. Accuracy and PRR in per cent; ρ knowledge: rank correlation
with the ensemble's on the test rows; latency: one row at a time, p50 and p95 of 200 calls of `predict`, in turns.

The networks' setting, one for all sets, was chosen on a fifth of the training rows (`held=0.2`), before there were
pieces: of widths from 128 to 512, batches of 64 to 256, dropout or none, 800 to 4,000 steps. Pieces were chosen on
other data (docs/training.md) and on rows of adult's and satellite's training files; the test rows had been seen by an
earlier run of this page without them, in which adult's students lost 1.3 points. Why they did: a few of adult's
numbers are sums of money that nearly everybody has none of; a tree cuts them where it likes, a network on standardised
numbers cannot (compare "EnD, plain numbers" with "EnD, in sample"). Where no feature has a common value, the two are
the same network.

{sections}

{made}
"""

SECTION = """## {name}

{sizes}.

{table}

{taught}"""
