"""A tabular team's job: five-fold LightGBM and random forests into one small network."""

import gzip
import time
from collections.abc import Callable, Mapping
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
from solera.recipes.page import Resampled, origin, paired_gap, pyplot
from solera.recipes.tabular_page import LABELS, PAIRS, PLAIN, draw, page
from solera.teachers import Ensemble, Teacher, capture
from solera.teachers.base import saw_from_folds
from solera.training import Student, Training, distill, fit

Table = tuple[Tensor, Tensor, Tensor, Tensor]  # training inputs and labels, test inputs and labels
STUDENTS: dict[str, Method] = {"EnD": EnD(), "Proxy": ProxyDirichlet()}


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
    pieces: int = 48  # of a feature, by its values, and by its distinct values
    dropout: float = 0.1
    batch_size: int = 256
    steps: int = 2000  # of the optimiser, rounded to whole epochs: a small set needs as many as a large one
    rows: int = 0  # use only the first so many training rows; 0: all
    resamples: int = 200  # of the test rows, for the intervals
    held: float = 0.0  # judge on this fraction of the training rows, not on the test rows: to choose settings by

    def __post_init__(self) -> None:
        for name in ("trees", "repeats", "batch_size", "steps", "resamples"):
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
            asked = {f"{label}, {kind}": (method, self.pieces) for label, method in STUDENTS.items()}
            asked |= {PLAIN: (STUDENTS["EnD"], 0)} if kind == "in sample" else {}
            for known, (method, pieces) in asked.items():
                work.say(f"{name}: distilling {known}")
                trained[known] = [
                    self._network(known, r, batches, work.folder / name, memory, method, pieces)
                    for r in range(self.repeats)
                ]
        numbered = {f"{known} {r}": model for known, each in trained.items() for r, model in enumerate(each)}
        result = evaluate({**fixed, **numbered}, x_test, y_test, resamples=self.resamples)
        rows = result.rows
        first = {**fixed, **{known: each[0] for known, each in trained.items()}}
        return {
            "sizes": [len(x), len(x_test), x.shape[1], int(y.max()) + 1],
            "scores": {known: [rows[known]] for known in fixed}
            | {known: [rows[f"{known} {r}"] for r in range(self.repeats)] for known in trained},
            "gaps": gaps(result, fixed, self.repeats),
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
        pieces: int | None = None,
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
        classes, cut = int(batches.all.target.max()) + 1, self.pieces if pieces is None else pieces
        network = MLP.for_inputs(batches.all.inputs, classes, self.hidden, self.dropout, pieces=cut)
        if teacher is None:
            return Student(fit(network, train, training, validation=held, folder=place), method)
        return distill(teacher, network, train, method, training, validation=held, folder=place)


def gaps(result: Any, fixed: Mapping[str, Any], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Paired differences with their 95 % intervals [low, value, high], by "one − other" and metric."""

    def drawn(model: str, metric: str) -> list[Resampled]:
        names = [model] if model in fixed else [f"{model} {r}" for r in range(repeats)]
        return [(result.rows[name][metric], result.draws[name][metric]) for name in names]

    return {
        f"{one} − {other}": {m: list(paired_gap(drawn(one, m), drawn(other, m))) for m in ("accuracy", "NLL")}
        for one, other in PAIRS
    }


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
