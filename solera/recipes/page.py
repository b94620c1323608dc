"""What the recipes' pages have in common: tables, numbers with their spread, an AUROC, a figure, and their origin."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from solera import metrics
from solera.core.disk import write_bytes
from solera.core.versions import versions
from solera.evaluation.intervals import ends, interval_of_inflated
from solera.metrics.student_t import student_t_quantile
from solera.recipes.base import Recipe, Workspace

Resampled = tuple[float, Sequence[float] | np.ndarray]  # a metric, and the same on resampled examples


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: Sequence[float], digits: int = 2, scale: float = 1.0) -> str:
    """`12.41 ± 0.08`: the mean and, of more than one value, the sample standard deviation."""
    numbers = scale * np.asarray(values, dtype=float)
    deviation = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.{digits}f}{deviation}"


def verdict(claim: str, held: bool | np.bool_) -> str:
    """One bullet that says whether something came out as it should have."""
    return f"- **{'Held' if held else 'Not held'}**: {claim}"


def word(low: float, middle: float, least: float = 0.0) -> str:
    """Held where the whole interval lies above; by the mean alone; or not."""
    return "Held" if low > least else "Held by the mean, not surely" if middle > least else "Not held"


def judged(claim: str, low: float, middle: float, high: float, least: float = 0.0) -> str:
    """One bullet that says whether something came out as it should have, by its interval. In points."""
    return f"- **{word(low, middle, least)}**: {claim} ({100 * middle:.2f}, {100 * low:.2f} to {100 * high:.2f})"


def judged_cell(low: float, middle: float, high: float, least: float = 0.0, scale: float = 100, digits: int = 1) -> str:
    """The same in a table, whose header has the claim."""
    return f"**{word(low, middle, least)}** {with_ends(low, middle, high, scale, digits)}"


def with_ends(low: float, middle: float, high: float, scale: float = 1.0, digits: int = 2) -> str:
    """`+0.50 (-0.10 to +1.10)`: a difference and its interval."""
    return f"{scale * middle:+.{digits}f} ({scale * low:+.{digits}f} to {scale * high:+.{digits}f})"


def over_repeats(values: Sequence[float]) -> tuple[float, float, float]:
    """The 95 % interval of the mean by Student's t, with the mean between its ends; infinite for fewer than three."""
    numbers = np.asarray(values, dtype=float)
    if len(numbers) < 3:
        return -np.inf, float(numbers.mean()), np.inf
    wide = float(student_t_quantile(0.975, [0.0], [1.0], [len(numbers) - 1.0])[0])
    reach = wide * float(numbers.std(ddof=1)) / len(numbers) ** 0.5
    return float(numbers.mean() - reach), float(numbers.mean()), float(numbers.mean() + reach)


def paired_gap(
    ours: Sequence[Resampled], theirs: Sequence[Resampled], inflated: bool = False
) -> tuple[float, float, float]:
    """A metric of our repeats less that of theirs: the low end of the 95 % interval, the mean, the high end.

    All models are resampled on the same examples in the same order, so each resample has a mean over repeats.
    `inflated`: the metric is one that chance adds to, such as the ECE.
    """
    (value, drawn), (less, drawn_less) = (
        (float(np.mean([value for value, _ in each])), np.mean([np.asarray(draws) for _, draws in each], 0))
        for each in (ours, theirs)
    )
    if inflated:
        found = interval_of_inflated(value, drawn, less, drawn_less)
        return found.low, found.value, found.high
    low, high = ends(drawn - drawn_less)
    return low, value - less, high


def pyplot() -> Any:
    """matplotlib, drawing into memory, on a light background; asked for before the work starts, so that it is there."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("this recipe draws a figure with matplotlib: pip install 'solera[recipes]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcdefaults()
    plt.rcParams.update({"figure.facecolor": "white", "axes.spines.top": False, "axes.spines.right": False})
    return plt


COLOURS = {
    "single": "0.6",
    "one member": "0.6",
    "random": "0.6",
    "ensemble": "black",
    "committee": "black",
    "EnD": "#d95f02",
    "EnD²": "#7570b3",
    "Proxy": "#1b6ca8",
    "SEnD²": "#1b6ca8",
    "Hydra": "#1b9e77",
    "Normal-Wishart": "#b8860b",
}


def look(model: str) -> dict[str, Any]:
    """How every page draws a model: in its method's colour, dashed with auxiliary inputs, dotted in another variant."""
    method, *variant = re.split(r" ?[+,] ?", model)
    line = "-" if not variant else "--" if variant == ["AUX"] else ":"
    return {"color": COLOURS[method], "linestyle": line, "linewidth": 2.5 if method == "ensemble" else 1.5}


def save_figure(figure: Any, path: Path) -> None:
    """As PNG, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    write_bytes(path, content.getvalue())


def origin(recipe: Recipe, name: str, work: Workspace) -> str:
    """The last paragraph of a page: the command, the seed, the software, and how the page came to the documentation."""
    given = {f.name: getattr(recipe, f.name) for f in fields(recipe) if getattr(recipe, f.name) != f.default}
    changed = [f"{name}={_text(value)}" for name, value in given.items() if name != "data"]
    command = " ".join(["solera run", name, *changed, *(["--data ../shared/data"] if hasattr(recipe, "data") else [])])
    made = work.remember("versions", versions)
    page = f"cp runs/{name}/results.md docs/results/{name}.md && cp runs/{name}/{name}.png docs/results/"
    return f"Made by `{command}` (seed {recipe.seed}; {made}), and put here by `{page}`."


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def told_apart(familiar: np.ndarray, other: np.ndarray) -> float:
    """AUROC of a score by which other inputs should lie above familiar ones."""
    return metrics.auroc(np.concatenate([familiar, other]), np.repeat([0, 1], [len(familiar), len(other)]))
