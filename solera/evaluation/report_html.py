"""The report as one self-contained page: tables that read without JavaScript, and charts that need no network."""

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

COLOURS = 6  # that report.css names; a seventh model takes the first colour again, with another dash
ARROWS = {1: "↑", -1: "↓", 0: ""}
HINTS = {1: "more is better", -1: "less is better", 0: ""}
SYMBOLS = {"kept": "✓", "lost": "✕", "unclear": "?", "none": "–"}
STATES = {"kept": "kept", "lost": "lost", "unclear": "unclear", "none": "nothing to keep"}
SIZES = ("bytes", "kB", "MB", "GB")

Value = Mapping[str, Any]  # {"value", "low", "high"}: numbers, None, or "inf"
Cell = dict[str, Any]


def asset(name: str) -> str:
    """A file that comes with the package."""
    return files("solera.evaluation").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def plotly() -> str:
    """Plotly's JavaScript as it stands in the installed package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError("the report draws its charts with plotly: pip install 'solera[report]'") from None
    return get_plotlyjs()


@cache
def packed_plotly() -> str:
    """The same compressed, in base64: a third of its size."""
    return base64.b64encode(gzip.compress(plotly().encode(), 9, mtime=0)).decode()


def policy(scripts: Iterable[str]) -> str:
    """What the page may do: run these very scripts, show pictures that stand in it, and ask nobody for anything."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def embedded(content: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever the names in it are."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and U+2029 are escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def decimals(numbers: Iterable[float]) -> int:
    """How many digits after the point show the largest of these numbers to three or four digits."""
    most = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    if most == 0:
        return 0
    return max(0, 3 - math.floor(math.log10(most)) - (most < 1))


def number(value: float | None, digits: int, signed: bool = False) -> str:
    """A number with so many digits after the point and a true minus sign; a dash where there is none."""
    if value is None:
        return "–"
    if math.isinf(value):
        return "−∞" if value < 0 else "+∞" if signed else "∞"
    if round(value, digits) == 0 and digits <= 6:
        return f"{0:.{digits}f}"  # without a sign: it would say more than the digits do
    text = f"{value:+,.{digits}f}" if signed else f"{value:,.{digits}f}"
    if digits > 6 or abs(value) >= 1e9:
        text = f"{value:+.3g}" if signed else f"{value:.3g}"
    return text.replace("-", "−")


def written(value: float | None) -> str:
    """A single number to four digits, without an exponent where it can be."""
    return "–" if value is None else number(value, min(decimals([value]), 7))


def share(value: float | None) -> str:
    """A share in per cent: one digit after the point, more where it would vanish."""
    return "–" if value is None else number(100 * value, 1) if value == 0 or value >= 1e-3 else written(100 * value)


def ends(value: Value | None) -> tuple[float, float] | None:
    """The interval of a value, where it has one."""
    low, high = (None, None) if value is None else (value.get("low"), value.get("high"))
    return None if low is None or high is None else (low, high)


def digits_for(values: Sequence[Value | None], unit: str) -> int:
    """How many digits after the point a column has: of shares one, or two where the intervals are narrow."""
    if unit != "%":
        return decimals(float(x) for v in values if v is not None and (x := v.get("value")) is not None)
    widths = [known[1] - known[0] for v in values if (known := ends(v)) is not None]
    return 2 if widths and max(widths) < 0.005 else 1


def column(values: Sequence[Value | None], unit: str, digits: int, signed: bool = False) -> list[Cell | None]:
    """The cells of one column, all with the same number of digits; a unit of % shows shares as percentages."""
    scale = 100 if unit == "%" else 1

    def cell(value: Value | None) -> Cell | None:
        if value is None or (x := value.get("value")) is None:
            return None
        interval = " to ".join(number(scale * end, digits, signed) for end in ends(value) or ())
        x = float(x)  # "inf", as JSON has it
        return {"value": x, "text": number(scale * x, digits, signed), "interval": interval}

    return [cell(v) for v in values]


def mark_best(cells: Sequence[Cell | None], better: int) -> None:
    """Marks the best cells: all that show the same number as the best one, unless all do."""
    there = [cell for cell in cells if cell is not None]
    if better and len({cell["text"] for cell in there}) > 1:
        text = max(there, key=lambda cell: better * cell["value"])["text"]
        for cell in there:
            cell["best"] = cell["text"] == text


def judged(value: Value | None, better: int) -> str:
    """Whether a difference is surely better or worse: its interval leaves zero out."""
    known = ends(value)
    if known is None or not better:
        return ""
    low, high = sorted(better * end for end in known)
    return "better" if low > 0 else "worse" if high < 0 else ""


def table(content: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Models × metrics: `key` is "metrics" (the best marked) or "difference" (surely better or worse marked)."""
    signed = key == "difference"
    models = [m for m in content["models"] if m.get(key)]
    columns, cells = [], []
    for name, about in content["metrics"].items():
        values = [m[key].get(name) for m in models]
        digits = digits_for([m.get("metrics", {}).get(name) for m in content["models"]], about["unit"])
        made = column(values, about["unit"], digits, signed)
        if not any(made):
            continue
        if not signed:
            mark_best(made, about["better"])
        for cell, value in zip(made, values, strict=True):
            if cell and signed:
                cell["judged"] = judged(value, about["better"])
        unit = "points" if signed and about["unit"] == "%" else about["unit"]
        arrow, hint = ARROWS[about["better"]], HINTS[about["better"]]
        columns.append({"name": name, "unit": unit, "arrow": arrow, "hint": hint, "help": about["help"]})
        cells.append(made)
    if not columns:
        return None
    return {"columns": columns, "rows": [(m["name"], [c[i] for c in cells]) for i, m in enumerate(models)]}


def fidelity(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """What each model kept of the reference's answers: quantities × models."""
    models = [m for m in content["models"] if m.get("fidelity") and m["name"] != content.get("reference")]
    names = list(dict.fromkeys(name for m in models for name in m["fidelity"]))
    rows = []
    for name in names:
        about = content["metrics"].get(name, {})
        values = [m["fidelity"].get(name) for m in models]
        cells = column(values, about.get("unit", ""), digits_for(values, about.get("unit", "")))
        if any(cells):
            rows.append({"name": name, "unit": about.get("unit", ""), "help": about.get("help", ""), "cells": cells})
    return {"models": [m["name"] for m in models], "rows": rows} if rows else None


def size(count: float | None) -> str:
    """A number of bytes as a person says it."""
    if count is None:
        return "–"
    power = min(int(math.log10(max(count, 1)) // 3), len(SIZES) - 1)
    return f"{count / 1000**power:.3g} {SIZES[power]}"


def times(taken: Mapping[str, float] | None, base: float | None) -> dict[str, str]:
    """Latency and throughput as text, and how many times faster than the base it is."""
    if not taken:
        return {}
    faster = f"{base / taken['p50']:,.1f}×" if base and taken["p50"] else ""
    return {key: written(x) for key, x in taken.items()} | {"faster": faster}


def speed(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parameters, file size, latency and throughput by model, and how much faster than the reference it is."""
    models = [m for m in content["models"] if m.get("speed") or m.get("parameters") or m.get("bytes")]
    batches = list(dict.fromkeys(batch for m in models for batch in m.get("speed") or {}))
    reference = next((m.get("speed") or {} for m in models if m["name"] == content.get("reference")), {})
    rows = []
    for m in models:
        own = m.get("speed") or {}
        bases = {batch: None if own is reference else reference.get(batch, {}).get("p50") for batch in batches}
        rows.append(
            {
                "name": m["name"],
                "parameters": "–" if m.get("parameters") is None else f"{m['parameters']:,}",
                "bytes": size(m.get("bytes")),
                "times": [times(own.get(batch), bases[batch]) for batch in batches],
            }
        )
    return {"batches": batches, "rows": rows} if rows else None


def verdicts(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What to deploy, with a chip for the state of each thing."""
    found = []
    for verdict in content.get("verdicts") or []:
        chips = [(k, s, SYMBOLS[s], STATES[s]) for k, s in verdict["states"].items()]
        found.append({**verdict, "chips": chips})
    return found


def figures(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pictures that the task draws, each once: its name, title and caption."""
    found = {f["name"]: f for curves in content.get("curves", {}).values() for f in curves.get("figures", {}).values()}
    return list(found.values())


def colours(content: Mapping[str, Any]) -> dict[str, str]:
    """One colour for each model on the whole page; the reference is drawn in ink."""
    others = [m["name"] for m in content["models"] if m["name"] != content.get("reference")]
    numbered = {name: str(1 + i % COLOURS) for i, name in enumerate(others)}
    return {m["name"]: numbered.get(m["name"], "reference") for m in content["models"]}


def page(content: Mapping[str, Any]) -> str:
    """The content of a report (`report.json`) as one HTML text that needs no other file and no network."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise ImportError("the report's page is made with jinja2: pip install 'solera[report]'") from None
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": written, "share": share}
    scripts = [asset("charts.js"), asset("examples.js"), asset("report.js")]
    return environment.from_string(asset("report.html")).render(
        content=content,
        colours=colours(content),
        verdicts=verdicts(content),
        comparison=table(content, "metrics"),
        differences=table(content, "difference"),
        fidelity=fidelity(content),
        speed=speed(content),
        figures=figures(content),
        style=asset("report.css"),
        scripts=scripts,
        data=embedded({**content, "colours": colours(content)}),
        plotly=packed_plotly(),
        policy=policy([*scripts, plotly()]),
    )
