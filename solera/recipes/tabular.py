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

from solera.core.batch import Batches
from solera.core.seeds import stream
from solera.distributions.base import Prediction
from solera.ensembles import fold_ids
from solera.evaluation.evaluate import display, evaluate
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace, versions
from solera.recipes.data import require_files
from solera.teachers import Ensemble, capture
from solera.teachers.base import saw_from_folds
from solera.training import Student, Training, distill

Table = tuple[Tensor, Tensor, Tensor, Tensor]  # training inputs and labels, test inputs and labels
STUDENTS: dict[str, Method] = {"EnD": EnD(), "Proxy": ProxyDirichlet()}


@dataclass(frozen=True)
class Tabular(Recipe):
    """Adult, letter and satellite: k-fold LightGBM and forests into one MLP, with and without out-of-fold targets.

    Beside the students: the ensemble, one of its members, and a single LightGBM refitted on all rows; accuracy, NLL,
    ECE, PRR and the latency of one row.
    """

    data: str = "../shared/data"
    sets: tuple[str, ...] = ("satellite", "letter", "adult")
    folds: int = 5
    trees: int = 150
    epochs: int = 60
    rows: int = 0  # use only the first so many training rows; 0: all

    def run(self, work: Workspace) -> str:
        for name in self.sets:
            path(self.data, name)
        pages = [work.remember(name, lambda name=name: self._one(name, work)) for name in self.sets]
        intro = "k-fold LightGBM and random forests, one of each per fold, distilled into one MLP (128, 128).\n\n"
        command = f"solera run tabular --data {self.data}, seed {self.seed}, {versions()}"
        return f"# Tabular\n\n{intro}" + "\n\n".join(pages) + f"\n\n{NOTE}\n\n{command}\n"

    def _one(self, name: str, work: Workspace) -> str:
        x, y, x_test, y_test = load(self.data, name, self.rows)
        classes = int(y.max()) + 1
        work.say(f"{name}: training {2 * self.folds} teachers on {len(x)} rows of {x.shape[1]} features")
        folds = fold_ids(len(x), self.folds, self.seed)
        estimators = self._teachers(x.numpy(), y.numpy(), folds.numpy())
        saw = torch.cat([saw_from_folds(folds, self.folds)] * 2, dim=1)
        models: dict[str, Any] = {
            "one member": Ensemble(estimators[:1]),
            "refit": Ensemble([self._boosting().fit(x.numpy(), y.numpy())]),
            "ensemble": Ensemble(estimators),
        }
        batches = Batches(x, y, batch_size=256)
        for kind, teacher in (("in sample", Ensemble(estimators)), ("out of fold", Ensemble(estimators, saw=saw))):
            remembered = capture(teacher, batches, work.folder / name / kind.replace(" ", "-"))
            for label, method in STUDENTS.items():
                work.say(f"{name}: distilling {label}, {kind}")
                models[f"{label}, {kind}"] = self._student(x, classes, remembered, batches, method)
        table = evaluate(models, x_test, y_test)
        speed = latency({key: model.predict for key, model in models.items()}, x_test)
        taught = knowledge_table(estimators, saw, batches, x_test)
        return f"## {name}\n\n{merge(table.rows, speed)}\n\n{taught}"

    def _boosting(self) -> Any:
        import lightgbm

        settings = {"n_estimators": self.trees, "learning_rate": 0.08, "num_leaves": 31, "n_jobs": 2, "verbose": -1}
        return lightgbm.LGBMClassifier(random_state=self.seed, **settings)

    def _teachers(self, x: np.ndarray, y: np.ndarray, folds: np.ndarray) -> list[Any]:
        from sklearn.ensemble import RandomForestClassifier

        def forest(fold: int) -> Any:
            seed = stream(self.seed, fold) % 2**31
            return RandomForestClassifier(self.trees, min_samples_leaf=2, n_jobs=2, random_state=seed)

        kinds: list[Callable[[int], Any]] = [lambda fold: self._boosting(), forest]
        return [kind(f).fit(x[folds != f], y[folds != f]) for kind in kinds for f in range(self.folds)]

    def _student(self, x: Tensor, classes: int, teacher: Any, batches: Batches, method: Method) -> Student:
        torch.manual_seed(stream(self.seed, "student"))
        train, held = batches.split(0.1, self.seed)
        training = Training(epochs=self.epochs, lr=2e-3, weight_decay=1e-3, seed=self.seed)
        return distill(teacher, MLP.for_inputs(x, classes, (128, 128)), train, method, training, validation=held)


NOTE = (
    "In sample, every member answers for rows it was trained on, where it is surer than it has a right to be; out of "
    "fold, a row's targets come only from the members that did not see it. Latency: one row at a time, p50 and p95 of "
    "200 calls of `predict`, in turns."
)


def knowledge_table(estimators: list[Any], saw: Tensor, batches: Batches, x_test: Tensor) -> str:
    """What out-of-fold honesty changes: the teacher's mean uncertainties on training rows, beside the test rows'."""
    sides = {
        "training rows, in sample": Ensemble(estimators)(batches.all),
        "training rows, out of fold": Ensemble(estimators, saw=saw)(batches.all),
        "test rows": Ensemble(estimators).predict(x_test),
    }
    lines = ["| what the teacher says about | total | data | knowledge |", "|---|---|---|---|"]
    for name, said in sides.items():
        numbers = " | ".join(f"{getattr(said, m).mean():.4f}" for m in ("total", "data", "knowledge"))
        lines.append(f"| {name} | {numbers} |")
    return "\n".join(lines)


def latency(models: dict[str, Callable[[Tensor], Prediction]], x: Tensor, calls: int = 200) -> dict[str, np.ndarray]:
    """Milliseconds of one-row predictions, p50 and p95; the models take turns."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    for call in range(calls + 5):
        for name, predict in models.items():
            start = time.perf_counter()
            predict(x[call % len(x)][None])
            taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: np.percentile(times[5:], [50, 95]) for name, times in taken.items()}


def merge(rows: dict[str, dict[str, float | None]], speed: dict[str, np.ndarray]) -> str:
    """The table a tabular team reads."""
    wanted = ["accuracy", "NLL", "ECE", "PRR", "ρ knowledge"]
    lines = ["| model | " + " | ".join(wanted) + " | p50 ms | p95 ms |", "|---" * (len(wanted) + 3) + "|"]
    for name, row in rows.items():
        cells = [display(key, row[key]) for key in wanted] + [f"{value:.2f}" for value in speed[name]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
        arrays = np.load(path(data, name), allow_pickle=False)
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
