"""What an evaluation found: metrics by model, and every model's columns, kept in a folder that others can read too."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from solera.core.disk import in_turn, make_folder
from solera.core.folders import read_version, require_own, write_version
from solera.core.schema import reading, require_form
from solera.evaluation import columns_csv
from solera.evaluation.evidence import difference_of, interval_of
from solera.evaluation.glossary import unit
from solera.evaluation.intervals import Draws, Interval, bootstrap
from solera.evaluation.json_values import plain, told
from solera.evaluation.latency import Cost
from solera.evaluation.measure import Sets, fidelity, measure
from solera.evaluation.stream import Elements
from solera.tasks import Row, Task, entry_of, task_named

KIND, VERSION = "evaluation", 2
FORM = {  # of metrics.json, as far as it is read
    "task": dict,
    "kinds": {str: str},
    "costs": {str: dict},
    **dict.fromkeys(("reference", "single", "baseline"), (None, str)),
    "students": [str],
    "labels": (None, [(str, float)]),
    "examples": [dict],
    "made": str,
    "files": {"columns.csv": str, "resamples.csv": str},
}
COSTS = ("parameters", "µs/example")  # the last columns of the table: what a model costs, not how good it is


@dataclass(frozen=True)
class Evaluation:
    """Metrics by model, and every model's columns by set, for plots and closer looks.

    `students` are judged beside the `reference` (the ensemble), a `single` member and a `baseline`, if there are any.
    """

    task: Task
    rows: dict[str, Row]
    columns: dict[str, Sets]  # model -> set ("test" or an unfamiliar one) -> columns
    reference: str | None = None
    fidelity: dict[str, Row] = field(default_factory=dict)  # what each model kept of the reference's answers
    draws: Draws = field(default_factory=dict)  # metrics of resampled examples, where they were asked for
    single: str | None = None
    baseline: str | None = None
    students: tuple[str, ...] = ()
    elements: dict[str, Elements] = field(default_factory=dict)  # whose the columns' elements are, and their targets
    class_names: Sequence[str] | None = None
    costs: dict[str, Cost] = field(default_factory=dict)
    examples: Sequence[Mapping[str, Any]] = ()  # a few to look at, as the report shows them
    made: str = ""

    def interval(self, model: str, metric: str) -> Interval | None:
        """A metric with its interval: see `solera.evaluation.evidence`."""
        return interval_of(self, model, metric)

    def difference(self, model: str, other: str, metric: str) -> Interval | None:
        """`model`'s metric less `other`'s, on the same examples."""
        return difference_of(self, model, other, metric)

    def markdown(self) -> str:
        """The table as Markdown."""
        names = sorted(dict.fromkeys(key for row in self.rows.values() for key in row), key=COSTS.__contains__)
        lines = ["| model | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for model, row in self.rows.items():
            lines.append(f"| {model} | " + " | ".join(display(name, row.get(name), self.task) for name in names) + " |")
        return "\n".join(lines)

    @property
    def sizes(self) -> dict[str, int]:
        """How many examples each set has."""
        return {name: facts.examples for name, facts in self.elements.items()}

    @property
    def target(self) -> np.ndarray:
        """Of the test set's elements."""
        found = self.elements["test"].target
        return np.empty(0) if found is None else found

    def role(self, model: str) -> str:
        """`reference`, `student` or `other`."""
        return "reference" if model == self.reference else "student" if model in self.students else "other"

    def numbers(self, model: str) -> dict[str, Any]:
        """All that was measured of a model, as JSON values: with intervals, and beside the reference."""
        row, cost = self.rows[model], self.costs.get(model, Cost())
        measured = [name for name in row if name not in COSTS]
        found = {name: self.interval(model, name) or Interval(_nan(row[name]), *2 * [_nan(None)]) for name in measured}
        gaps = {} if self.reference in (None, model) else {n: self._gap(model, self.reference, n) for n in found}
        return plain(
            {
                "name": model,
                "role": self.role(model),
                "metrics": {name: _entry(value) for name, value in found.items() if not np.isnan(value.value)},
                "difference": {name: _entry(value) for name, value in gaps.items() if value is not None},
                "fidelity": {n: {"value": told(v)} for n, v in self.fidelity.get(model, {}).items() if v is not None},
                "speed": cost.speed or None,
                "parameters": cost.parameters,
                "bytes": cost.bytes,
            }
        )

    def _gap(self, model: str, other: str, metric: str) -> Interval | None:
        """The difference with its interval; an infinite one has none."""
        ends = [_nan(self.rows[name].get(metric)) for name in (model, other)]
        if self.draws and np.isinf(ends).any() and ends[0] != ends[1] and not np.isnan(ends).any():
            return Interval(ends[0] - ends[1], _nan(None), _nan(None))
        return self.difference(model, other, metric)

    def save(self, folder: str | Path) -> Path:
        """`columns.csv` (`solera.evaluation.columns_csv`), `resamples.csv` and `metrics.json`, which vouches for both.

        A report is made of these. An evaluation that is there is replaced at once; files of others are not, that is a
        ValueError."""
        folder, manifest = Path(folder), Path(folder) / "metrics.json"
        files = {
            "columns.csv": [columns_csv.written(self.columns, self.elements)],
            "resamples.csv": [_written(self.draws)],
        }
        kept = {
            "solera": version("solera"),
            "task": entry_of(self.task),
            **{key: getattr(self, key) for key in ("reference", "single", "baseline", "students", "made")},
            "labels": self.class_names,
            "models": [self.numbers(model) for model in self.rows],
            "kinds": columns_csv.kinds_of(self.columns, self.elements),
            "costs": {model: asdict(cost) for model, cost in self.costs.items()},
            "examples": plain(self.examples),
        }
        make_folder(folder)
        with in_turn(folder):
            require_own(manifest, KIND, files)
            write_version(manifest, KIND, VERSION, kept, files)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Evaluation":
        """Reads what `save` wrote; files that are missing or were changed are refused by name."""
        manifest = Path(folder) / "metrics.json"
        kept, files = read_version(manifest, KIND, VERSION)
        require_form(manifest, kept, FORM)
        with reading(manifest, "columns.csv with kinds"):
            columns, elements = columns_csv.read(files["columns.csv"], kept["kinds"])
        with reading(manifest, "costs"):
            costs = {model: Cost(**cost) for model, cost in kept["costs"].items()}
        with reading(manifest, "task"):
            task = task_named(**kept["task"])
        with reading(manifest, "columns.csv with task and reference"):
            found = assembled(task, columns, elements, kept["reference"], costs)
        with reading(manifest, "resamples.csv"):
            draws = _read(files["resamples.csv"])
        rest = {key: kept[key] for key in ("single", "baseline", "examples", "made")} | {"class_names": kept["labels"]}
        return replace(found, draws=draws, students=tuple(kept["students"]), **rest)


def _entry(found: Interval) -> dict[str, float | str]:
    return {"value": told(found.value), "low": found.low, "high": found.high}


def _nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _written(draws: Draws) -> bytes:
    """One line per model and resample, a column a metric."""
    names = list(dict.fromkeys(name for drawn in draws.values() for name in drawn))
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["model", "resample", *map(columns_csv.quoted, names)])
    for model, drawn in draws.items():
        count = len(next(iter(drawn.values())))
        cells = [drawn[name].tolist() if name in drawn else [""] * count for name in names]
        writer.writerows(zip([columns_csv.quoted(model)] * count, range(count), *cells, strict=True))
    return file.getvalue().encode()


def _read(content: bytes | bytearray) -> Draws:
    header, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    header, by_model = [columns_csv.unquoted(name) for name in header], {}
    for line in lines:
        by_model.setdefault(columns_csv.unquoted(line[0]), []).append(line)
    return {
        model: {
            name: np.array(cells, dtype=np.float64)
            for name, cells in zip(header, zip(*some, strict=True), strict=True)
            if name not in ("model", "resample") and cells[0] != ""
        }
        for model, some in by_model.items()
    }


def assembled(
    task: Task,
    columns: dict[str, Sets],
    elements: dict[str, Elements],
    reference: str | None,
    costs: Mapping[str, Cost],
    resamples: int = 0,
) -> Evaluation:
    """Metrics, fidelity and resampled metrics, all from the columns."""
    labelled = [name for name, facts in elements.items() if facts.target is not None]

    def rows_of(every: Mapping[str, Sets]) -> dict[str, Row]:
        theirs = every[reference] if reference is not None else None
        return {name: measure(own, theirs, task, labelled) for name, own in every.items()}

    rows = rows_of(columns)
    kept: dict[str, Row] = {}
    if reference is not None:
        theirs = columns[reference], rows[reference]
        kept = {name: fidelity(own, theirs[0], rows[name], theirs[1], task) for name, own in columns.items()}
    draws = bootstrap(columns, elements, rows_of, resamples)
    for name, row in rows.items():
        cost = costs.get(name, Cost())
        row |= dict(zip(COSTS, (cost.parameters, cost.microseconds), strict=True))
    return Evaluation(task, rows, columns, reference, kept, draws, elements=elements, costs=dict(costs))


def display(name: str, value: float | None, task: Task) -> str:
    """A number as a person would want it; a dash where there is none."""
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    if name == "parameters":
        return f"{value:,.0f}"
    if name.startswith("µs"):
        return f"{value:.1f}" if value < 100 else f"{value:.0f}"
    if name.partition(" on ")[0] not in ("ECE", "coverage error") and unit(name, task) == "%":
        return f"{100 * value:.1f}"
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"
