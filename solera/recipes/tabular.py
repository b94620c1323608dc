"""A tabular team's job: five-fold LightGBM and random forests into one small network."""

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.checks import require_fraction, require_positive
from solera.core.seeds import generator, stream
from solera.data import Batches
from solera.distributions.base import Prediction
from solera.ensembles import fold_ids
from solera.evaluation import evaluate
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import load_npz, require_files
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.tasks import Row
from solera.teachers import Ensemble, Teacher, capture
from solera.teachers.base import saw_from_folds
from solera.training import Student, Training, distill, fit

Table = tuple[Tensor, Tensor, Tensor, Tensor]  # training inputs and labels, test inputs and labels
STUDENTS: dict[str, Method] = {"EnD": EnD(), "Proxy": ProxyDirichlet(as_published=True)}
LABELS = "MLP on labels"
BUDGET = 5.0  # milliseconds a row may take


@dataclass(frozen=True)
class Tabular(Recipe):
    """Adult, letter and satellite: k-fold LightGBM and forests into one MLP, with and without out-of-fold targets.

    Beside the students: the ensemble, one of its members, a single LightGBM refitted on all rows, and the same MLP
    trained on the labels; accuracy, NLL, ECE, PRR and the latency of one row.
    """

    data: str = "../shared/data"
    sets: tuple[str, ...] = ("satellite", "letter", "adult")
    folds: int = 5
    trees: int = 100
    repeats: int = 2  # networks differ in initial weights and in the order of the rows; the trees are one
    hidden: tuple[int, ...] = (256, 256)
    dropout: float = 0.1
    batch_size: int = 256
    steps: int = 2000  # of the optimiser, rounded to whole epochs: a small set needs as many as a large one
    rows: int = 0  # use only the first so many training rows; 0: all
    held: float = 0.0  # judge on this fraction of the training rows, not on the test rows: to choose settings by

    def __post_init__(self) -> None:
        for name in ("trees", "repeats", "batch_size", "steps"):
            require_positive(name, getattr(self, name))
        require_fraction("held", self.held)

    def run(self, work: Workspace) -> str:
        for name in self.sets:
            path(self.data, name)
        pyplot()
        found = {name: work.remember(name, lambda name=name: self._one(name, work)) for name in self.sets}
        draw(found, work)
        return page(self, found, origin(self, "tabular", work))

    def _one(self, name: str, work: Workspace) -> dict[str, Any]:
        x, y, x_test, y_test = split(load(self.data, name, self.rows), self.held, self.seed)
        work.say(f"{name}: training {2 * self.folds} teachers on {len(x)} rows of {x.shape[1]} features")
        folds = fold_ids(len(x), self.folds, self.seed)
        estimators = self._teachers(x.numpy(), y.numpy(), folds.numpy())
        saw = torch.cat([saw_from_folds(folds, self.folds)] * 2, dim=1)
        fixed: dict[str, Any] = {
            "ensemble": Ensemble(estimators),
            "one member": Ensemble(estimators[:1]),
            "refit": Ensemble([self._boosting().fit(x.numpy(), y.numpy()).set_params(n_jobs=1)]),
        }
        batches = Batches(x, y, batch_size=self.batch_size)
        work.say(f"{name}: training the network on the labels")
        trained = {LABELS: [self._network(LABELS, r, batches, work.folder / name) for r in range(self.repeats)]}
        for kind, teacher in (("in sample", fixed["ensemble"]), ("out of fold", Ensemble(estimators, saw=saw))):
            memory = capture(teacher, batches, work.folder / name / kind.replace(" ", "-"), "mean")
            for label, method in STUDENTS.items():
                known = f"{label}, {kind}"
                work.say(f"{name}: distilling {known}")
                trained[known] = [
                    self._network(known, r, batches, work.folder / name, memory, method) for r in range(self.repeats)
                ]
        numbered = {f"{known} {r}": model for known, each in trained.items() for r, model in enumerate(each)}
        rows = evaluate({**fixed, **numbered}, x_test, y_test).rows
        first = {**fixed, **{known: each[0] for known, each in trained.items()}}
        return {
            "sizes": [len(x), len(x_test), x.shape[1], int(y.max()) + 1],
            "scores": {known: [rows[known]] for known in fixed}
            | {known: [rows[f"{known} {r}"] for r in range(self.repeats)] for known in trained},
            "speed": latency({known: model.predict for known, model in first.items()}, x_test),
            "taught": taught(estimators, saw, batches, x_test),
        }

    def _boosting(self) -> Any:
        try:
            import lightgbm
        except ImportError:
            raise ImportError("the teachers are LightGBM's: pip install 'solera[recipes]'") from None
        settings = {"n_estimators": self.trees, "learning_rate": 0.08, "num_leaves": 31, "n_jobs": 2, "verbose": -1}
        repeatable = {"random_state": self.seed, "deterministic": True, "force_row_wise": True}
        return lightgbm.LGBMClassifier(**settings, **repeatable)

    def _teachers(self, x: np.ndarray, y: np.ndarray, folds: np.ndarray) -> list[Any]:
        from sklearn.ensemble import RandomForestClassifier

        def forest(fold: int) -> Any:
            seed = stream(self.seed, fold) % 2**31
            return RandomForestClassifier(self.trees, min_samples_leaf=2, n_jobs=2, random_state=seed)

        kinds: list[Callable[[int], Any]] = [lambda fold: self._boosting(), forest]
        fitted = [kind(f).fit(x[folds != f], y[folds != f]) for kind in kinds for f in range(self.folds)]
        return [model.set_params(n_jobs=1) for model in fitted]  # for one row, threads cost more than they save

    def _network(
        self,
        known: str,
        repeat: int,
        batches: Batches,
        folder: Path,
        teacher: Teacher | None = None,
        method: Method = STUDENTS["EnD"],
    ) -> Student:
        """One network, taught by the teacher or, without one, by the labels; a tenth of the rows picks the epoch."""
        train, held = batches.split(0.1, self.seed)
        training = Training(
            epochs=max(1, round(self.steps / len(train))),
            lr=4e-3,
            weight_decay=1e-3,
            seed=stream(self.seed, "repeat", repeat),
        )
        place = folder / "networks" / f"{known.replace(', ', '-').replace(' ', '-')}-{repeat}"
        assert batches.all.target is not None
        torch.manual_seed(stream(self.seed, "student", repeat))
        network = MLP.for_inputs(batches.all.inputs, int(batches.all.target.max()) + 1, self.hidden, self.dropout)
        if teacher is None:
            return Student(fit(network, train, training, validation=held, folder=place), method)
        return distill(teacher, network, train, method, training, validation=held, folder=place)


def split(whole: Table, held: float, seed: int) -> Table:
    """The table as it is or, to choose settings by, a part of its training rows in the place of its test rows."""
    x, y, _, _ = whole
    if not held:
        return whole
    order = torch.randperm(len(x), generator=generator(seed, "held"))
    test, train = order[: round(held * len(x))], order[round(held * len(x)) :]
    return x[train], y[train], x[test], y[test]


def taught(estimators: list[Any], saw: Tensor, batches: Batches, x_test: Tensor) -> dict[str, dict[str, float]]:
    """The teacher's mean uncertainties on training rows, in sample and out of fold, and on test rows."""
    sides = {
        "training rows, in sample": Ensemble(estimators)(batches.all),
        "training rows, out of fold": Ensemble(estimators, saw=saw)(batches.all),
        "test rows": Ensemble(estimators).predict(x_test),
        "test rows, one pair": Ensemble([estimators[0], estimators[len(estimators) // 2]]).predict(x_test),
    }
    return {
        name: {measure: float(getattr(said, measure).mean()) for measure in ("total", "data", "knowledge")}
        for name, said in sides.items()
    }


def latency(models: dict[str, Callable[[Tensor], Prediction]], x: Tensor, calls: int = 200) -> dict[str, list[float]]:
    """Milliseconds of one-row predictions, p50 and p95; the models take turns."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    for call in range(calls + 5):
        for name, predict in models.items():
            start = time.perf_counter()
            predict(x[call % len(x)][None])
            taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: np.percentile(times[5:], [50, 95]).tolist() for name, times in taken.items()}


def mean(found: dict[str, Any], name: str, model: str, metric: str) -> float:
    """A metric of a model on a set, over its repeats; accuracy in per cent."""
    values = [row[metric] for row in found[name]["scores"][model]]
    return float(np.mean(values)) * (100 if metric == "accuracy" else 1)


def cell(rows: list[Row], metric: str) -> str:
    """A number with its spread; a dash where there is none."""
    values = [value for row in rows if (value := row[metric]) is not None and not np.isnan(value)]
    per_cent = metric in ("accuracy", "PRR")
    return spread(values, 1 if per_cent else 3, 100 if per_cent else 1) if values else "–"


def section(name: str, one: dict[str, Any]) -> str:
    """The table a tabular team reads, and what the teacher says about which rows."""
    wanted = ["accuracy", "NLL", "ECE", "PRR", "ρ knowledge"]
    rows = [
        [known, *(cell(each, metric) for metric in wanted), *(f"{value:.2f}" for value in one["speed"][known])]
        for known, each in one["scores"].items()
    ]
    said = [[side, *(f"{value:.4f}" for value in numbers.values())] for side, numbers in one["taught"].items()]
    train, test, features, classes = one["sizes"]
    error = one["scores"]["ensemble"][0]["accuracy"]
    return SECTION.format(
        name=name.capitalize(),
        sizes=f"{train:,} training rows, {test:,} test rows, {features} features, {classes} classes",
        noise=f"{100 * (error * (1 - error) / test) ** 0.5:.2f}",
        table=table(["model", *wanted, "p50 ms", "p95 ms"], rows),
        taught=table(["what the teacher says about", "total", "data", "knowledge"], said),
    )


def beats(found: dict[str, Any], claim: str, metric: str, one: str, other: str, slack: float = 0.0) -> str:
    """Whether a model is better than another on every set, or not worse by more than `slack`; with the numbers."""
    pairs = {name: [mean(found, name, model, metric) for model in (one, other)] for name in found}
    digits, sign = (1, -1) if metric == "accuracy" else (3, 1 if metric == "NLL" else -1)
    numbers = ", ".join(f"{name} {a:.{digits}f} and {b:.{digits}f}" for name, (a, b) in pairs.items())
    return verdict(f"{claim}: {numbers}", all(sign * (a - b) <= slack for a, b in pairs.values()))


def claims(found: dict[str, Any]) -> list[str]:
    """What held and what did not, from the numbers."""
    student, honest = "EnD, in sample", "EnD, out of fold"
    speeds = np.array([one["speed"][known] for one in found.values() for known in one["speed"] if "," in known])
    usual, slow = speeds.max(0)
    ratios = [one["speed"]["ensemble"][0] / one["speed"][student][0] for one in found.values()]
    speed = f"every student answers one row within {BUDGET:g} ms on a CPU at p50; the slowest takes {usual:.2f} ms"
    sides = ("training rows, in sample", "training rows, out of fold", "test rows", "test rows, one pair")
    known = {name: [one["taught"][side]["knowledge"] for side in sides] for name, one in found.items()}
    low = ", ".join(f"{name} {a:.3f} and {b:.3f}" for name, (a, _, b, _) in known.items())
    pair = ", ".join(f"{name} {a:.3f} and {b:.3f}" for name, (_, a, _, b) in known.items())
    within = "EnD in sample is within 1 point of the ensemble's accuracy on every set; EnD and ensemble"
    ranking = "out-of-fold targets improve the ranking by knowledge, ρ of Proxy; out of fold and in sample"
    return [
        beats(found, within, "accuracy", student, "ensemble", 1.0),
        beats(found, "distilling beats refitting, in accuracy; EnD in sample and refit", "accuracy", student, "refit"),
        beats(found, "... and in NLL", "NLL", student, "refit"),
        beats(found, "the teacher helps, in accuracy; EnD in sample and MLP on labels", "accuracy", student, LABELS),
        beats(found, "... and in NLL", "NLL", student, LABELS),
        beats(found, "Proxy pays nothing in NLL for its knowledge; Proxy and EnD", "NLL", "Proxy, in sample", student),
        verdict(
            f"{speed}, EnD is {min(ratios):.0f} to {max(ratios):.0f} times as fast as its teacher", usual <= BUDGET
        ),
        verdict(f"... and at p95, while others used the same cores; the slowest takes {slow:.2f} ms", slow <= BUDGET),
        verdict(
            f"in sample, the teacher's knowledge uncertainty is lower than on test rows; training and test: {low}",
            all(a < b for a, _, b, _ in known.values()),
        ),
        verdict(
            f"out of fold, it is within 10 % of what one pair of members says of test rows; training and test: {pair}",
            all(abs(a - b) < 0.1 * b for _, a, _, b in known.values()),
        ),
        beats(found, "out-of-fold targets improve EnD's NLL; out of fold and in sample", "NLL", honest, student),
        beats(found, ranking, "ρ knowledge", "Proxy, out of fold", "Proxy, in sample"),
    ]


def page(recipe: Tabular, found: dict[str, Any], made: str) -> str:
    """All of it."""
    where = f"**Judged on {recipe.held:.0%} of the training rows, not on the test rows.** " if recipe.held else ""
    intro = INTRO.format(where=where, **vars(recipe))
    sections = [section(name, one) for name, one in found.items()]
    return "\n\n".join([intro, "\n".join(claims(found)), *sections, made]) + "\n"


def draw(found: dict[str, Any], work: Workspace) -> None:
    """Error against the time one row takes."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(found), figsize=(4.6 * len(found), 4.4), layout="constrained", squeeze=False)
    for panel, (name, one) in zip(panels[0], found.items(), strict=True):
        panel.axvline(BUDGET, color="0.8", linewidth=1, zorder=0)
        for known, rows in one["scores"].items():
            errors = 100 - 100 * np.array([row["accuracy"] for row in rows])
            bar = errors.std(ddof=1) if len(errors) > 1 else 0.0
            panel.errorbar(one["speed"][known][0], errors.mean(), bar, label=known, capsize=3, **MARKS[known])
        panel.set_xscale("log")
        panel.set(title=name, xlabel="milliseconds for one row (p50)", ylabel="test error in per cent")
        panel.grid(alpha=0.25)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, work.folder / "tabular.png")
    plt.close(figure)


MARKS: dict[str, dict[str, Any]] = {
    "ensemble": {"color": "black", "marker": "*", "markersize": 12},
    "one member": {"color": "0.6", "marker": "^"},
    "refit": {"color": "0.3", "marker": "s"},
    LABELS: {"color": "#b8860b", "marker": "v"},
    "EnD, in sample": {"color": "#d95f02", "marker": "o"},
    "EnD, out of fold": {"color": "#d95f02", "marker": "o", "markerfacecolor": "white"},
    "Proxy, in sample": {"color": "#1b6ca8", "marker": "D"},
    "Proxy, out of fold": {"color": "#1b6ca8", "marker": "D", "markerfacecolor": "white"},
}

INTRO = """# Tabular

{where}{folds}-fold LightGBM and random forests ({trees} trees), one of each per fold, distilled into one MLP
{hidden} with dropout {dropout}: AdamW, batches of {batch_size}, {steps:,} steps whatever the size of the set, learning
rate 0.004, a tenth of the rows held out to pick the epoch. In sample, every member answers for rows it was trained on,
where it is surer than on new rows; out of fold, a row's targets come only from the pair of members that did
not see it. "Refit" is a single LightGBM on all rows, "one member" the first of the ensemble's.

Networks: mean and standard deviation over {repeats} seeds. Accuracy and PRR in per cent; ρ knowledge: rank correlation
with the ensemble's on the test rows; latency: one row at a time, p50 and p95 of 200 calls of `predict`, in turns, on a
machine that others use too.

![Error against latency](tabular.png)

The networks' setting, one for all sets, was chosen on a fifth of the training rows, held out, with one seed (`held=0.2`
does the like), not on the test rows, though what made us look was a short run's 85 % on satellite's test rows. Held-out
accuracy of EnD in sample, with batches of 64 and a rate of 0.002: on satellite 89.9 % with (128, 128), 90.4 % with
(256, 256), 91.0 % with dropout as well (ensemble 90.8 %), but 89.1 % with (128, 128), batches of 256 and 800 steps: the
small set may have been stopped too soon, but one standard error on those 887 rows is 1 point.
On letter, batches of 128: 94.5 % without and 95.1 % with dropout (8,000 of its
rows; ensemble 93.8 %). On adult (12,000 of its rows) nothing tried made a difference: 85.5 to 86.2 % with fewer steps,
other widths and batches, with dropout or without, or with logarithms of the features (ensemble 87.7 %). (512, 512) with
dropout 0.2 had 91.7 % on satellite and was not tried elsewhere. The batches of 256 at twice the rate, which see as much
as 4,000 steps of 128, were taken for the sake of time, and tried before on adult alone."""

SECTION = """## {name}

{sizes}. One standard error of an accuracy here is {noise} points.

{table}

{taught}"""


def path(data: str, name: str) -> Path:
    """The file of a set; missing data is named before any work starts."""
    file = "tabular/adult.train.csv.gz" if name == "adult" else f"tabular/{name}.npz"
    require_files(data, [file])
    return Path(data) / file


def load(data: str, name: str, rows: int = 0) -> Table:
    """Numbers as they are; adult's categories one-hot, in the order of the training file."""
    if name == "adult":
        x, y, x_test, y_test = _adult(path(data, name))
    else:
        arrays = load_npz(data, path(data, name).relative_to(data).as_posix())
        x, y, x_test, y_test = (arrays[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    limit = rows or len(x)
    inputs = [torch.tensor(np.asarray(a, dtype=np.float32)) for a in (x[:limit], x_test)]
    labels = [torch.tensor(np.asarray(a, dtype=np.int64)) for a in (y[:limit], y_test)]
    return inputs[0], labels[0], inputs[1], labels[1]


def _adult(file: Path) -> tuple[np.ndarray, ...]:
    parts = []
    for name in (file, file.with_name("adult.test.csv.gz")):
        with gzip.open(name, "rt", encoding="utf-8") as lines:
            header, *body = [line.strip().rstrip(".").split(",") for line in lines if line.strip()]
        parts.append([[cell.strip() for cell in row] for row in body])
    train, test = (np.array(part) for part in parts)
    numbers = [i for i, h in enumerate(header) if h != "income" and all(_is_number(v) for v in train[:50, i])]
    columns: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(len(header) - 1):
        if i in numbers:
            columns.append((train[:, i].astype(float), test[:, i].astype(float)))
        else:
            columns += [
                ((train[:, i] == v).astype(float), (test[:, i] == v).astype(float)) for v in np.unique(train[:, i])
            ]
    x, x_test = (np.stack(side, 1) for side in zip(*columns, strict=True))
    return x, (train[:, -1] == ">50K").astype(int), x_test, (test[:, -1] == ">50K").astype(int)


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()
