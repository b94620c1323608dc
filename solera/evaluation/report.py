"""The report: one page for people, and the same content for machines."""

import json
from pathlib import Path

from solera.core.disk import read_json, remove_leftovers, write_bytes
from solera.evaluation.evaluation import Evaluation
from solera.evaluation.report_data import TITLE, content
from solera.evaluation.report_html import page
from solera.evaluation.thresholds import threshold_table

REJECTED = (0.05, 0.10, 0.20)


def report(evaluation: Evaluation, path: str | Path = "report.html", title: str = TITLE) -> Path:
    """Writes the page, one file that opens offline, and beside it the same content as `.json`; returns the page's path.

    Verdicts need intervals and an ensemble: `evaluate(..., resamples=200)`.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"a report is a page: name it {path.with_suffix('.html').name}, not {path.name}")
    other = path.with_suffix(".json")
    remove_leftovers(path.parent)
    if other.exists() and not _is_ours(other):
        raise ValueError(f"{other} is not from a report and would be lost: choose another name for {path.name}")
    found = content(evaluation, title)
    text = page(found)
    write_bytes(other, json.dumps(found, ensure_ascii=False, allow_nan=False).encode())
    write_bytes(path, text.encode())
    return path


def _is_ours(file: Path) -> bool:
    """Whether it is the content of a report."""
    try:
        return {"schema", "models", "metrics"} <= read_json(file).keys()
    except ValueError:
        return False


def card_numbers(evaluation: Evaluation, model: str) -> tuple[dict[str, float], dict[str, float]]:
    """A model's metrics, and thresholds that reject 5, 10 and 20 % of inputs like the test ones: for its model card."""
    numbers = evaluation.numbers(model)["metrics"]
    table = threshold_table(evaluation.columns[model]["test"], evaluation.task, REJECTED, resamples=0)
    thresholds = {
        f"{measure}, rejects {100 * share:.0f} %": row.threshold
        for measure, rows in table.items()
        for share, row in zip(REJECTED, rows, strict=True)
    }
    return {name: float(value["value"]) for name, value in numbers.items()}, thresholds
