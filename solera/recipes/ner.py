"""Named entities: independent and CRF taggers, their ensembles, and one tagger that stands in for them."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from solera import metrics
from solera.calibration import fit_temperature
from solera.core.checks import require_positive
from solera.core.seeds import stream as seed_of
from solera.data import Sequences
from solera.distributions.base import Prediction
from solera.ensembles import train_ensemble, train_snapshots
from solera.evaluation.examples import by_example
from solera.evaluation.stream import Elements, stream
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import Tagger
from solera.recipes.base import SO_FAR, Recipe, Workspace, settings_of
from solera.recipes.data import require_files
from solera.recipes.ner_page import page
from solera.recipes.ner_text import OUTSIDE, WORDS, Text, text_of
from solera.recipes.page import pyplot, told_apart
from solera.tasks import Columns, Tagging
from solera.teachers import Ensemble, capture
from solera.training import Student, Training, distill

LABELS = 1 / 6  # the weight of true labels: 1 − β with the paper's β = 5/6
TEACHERS = ("5 IID", "5 CRF", "mixed")
SINGLES = ("IID", "CRF")


@dataclass(frozen=True)
class Ner(Recipe):
    """Named entities in WikiNEuRal: five independent and five CRF taggers, distilled into one; unfamiliar text beside.

    Every ensemble teaches independent (IID) students, with and without true labels mixed in; snapshots of one training
    and temperature scaling for comparison. `sentences`, `test_sentences` and `other_sentences` take the first so many
    for training, test and each unfamiliar set; 0 takes all.
    """

    data: str = "../shared/data"
    language: Literal["en", "de"] = "en"
    members: int = 5
    epochs: int = 4
    student_epochs: int = 3  # after a member's, from whose weights every student starts
    copies: int = 2  # of every training sentence, with some words exchanged, which the students learn from, too
    snapshot_epochs: int = 2  # of each cycle
    sentences: int = 4000
    test_sentences: int = 4000
    other_sentences: int = 1000
    studies: int = 3
    workers: int = 2  # processes of one thread each

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs", "snapshot_epochs", "studies", "workers"):
            require_positive(name, getattr(self, name))
        if self.copies < 0:
            raise ValueError(f"copies must be at least 0, got {self.copies}")

    def run(self, work: Workspace) -> str:
        files = [f"ner/wikineural_{self.language}.{part}" for part in ("val", "test")]
        files += [f"ner/{name}" for name in OUTSIDE[self.language].values()]
        words = [f"words/{name}.npz" for name in WORDS[self.language].values()]
        require_files(self.data, [*(f"{name}.conll.gz" for name in files), *words])
        pyplot()
        text, found = "", {name: [] for name in self.models}
        for number in range(self.studies):
            work.say(f"study {number + 1} of {self.studies}: training")
            self._together(_teach, [(self, work.folder, number, kind) for kind in ("5 IID", "5 CRF", "snapshots")])
            work.say("distilling")
            self._together(_distil, [(self, work.folder, number, teacher) for teacher in TEACHERS])
            work.say("looking at the test sets")
            rows = self._together(_judge, [(self, work.folder, number, name) for name in self.models])
            for name, row in zip(self.models, rows, strict=True):
                found[name].append(row)
            text = page(self, found, list(OUTSIDE[self.language]), work)
            work.write(SO_FAR, text)
        return text

    @property
    def models(self) -> list[str]:
        """The rows of the table."""
        students = [f"{teacher} → IID{labels}" for teacher in TEACHERS for labels in (" + labels", "")]
        tempered = ["IID, T", "5 IID, T", "5 IID → IID + labels, T"]
        return [*SINGLES, *TEACHERS, "snapshots", *students, "5 IID → EnD + labels", *tempered]

    def _together(self, job: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
        """The job for each of these, in so many processes; each keeps what it has finished."""
        if self.workers == 1:
            return [job(*each) for each in arguments]
        with ProcessPoolExecutor(self.workers, get_context("spawn"), _one_thread) as pool:
            return list(pool.map(job, *zip(*arguments, strict=True)))


def _one_thread() -> None:
    torch.set_num_threads(1)


class Study:
    """One repetition: its data are those of all, its seeds its own."""

    def __init__(self, recipe: Ner, folder: Path, number: int) -> None:
        self.recipe, self.folder, self.text = recipe, folder / f"study-{number}", text_of(recipe)
        self.seed = seed_of(recipe.seed, "study", number)
        settings = {k: v for k, v in settings_of(recipe).items() if k not in ("studies", "workers", "data")}
        self.work = Workspace(self.folder, {**settings, "study": number})

    def network(self, crf: bool = False) -> Tagger:
        """The architecture of members and students."""
        return Tagger(self.text.words, self.text.tags, crf=crf)

    def training(self, epochs: int, labels: float = 0.0, lr: float = 2e-3) -> Training:
        """Settings that were chosen on the validation block."""
        return Training(epochs, lr=lr, weight_decay=0.01, clip=1.0, label_weight=labels, seed=self.seed)

    def ensemble(self, kind: str) -> Ensemble:
        """Trained, or as it was trained before."""
        recipe, place, data = self.recipe, self.folder / kind, self.text.train
        if kind == "mixed":
            half = (recipe.members + 1) // 2
            some = [*self.ensemble("5 IID").models[:half], *self.ensemble("5 CRF").models[: recipe.members - half]]
            return Ensemble(some)
        if kind == "snapshots":
            training = self.training(recipe.snapshot_epochs * recipe.members)
            return train_snapshots(self.network, data, recipe.members, training, task=self.text.task, folder=place)
        training, crf = self.training(recipe.epochs), kind == "5 CRF"
        return train_ensemble(
            lambda: self.network(crf), data, recipe.members, training, task=self.text.task, folder=place
        )

    def distil(self, kind: str) -> None:
        """The students of a teacher, from what it remembers of training and validation text."""
        wanted: dict[str, tuple[Method, float]]
        wanted = {f"{kind} → IID + labels": (ProxyDirichlet(), LABELS), f"{kind} → IID": (ProxyDirichlet(), 0.0)}
        if kind == "5 IID":
            wanted["5 IID → EnD + labels"] = (EnD(), LABELS)
        missing = {name: how for name, how in wanted.items() if not (self._place(name) / "config.json").exists()}
        if not missing:
            return
        kept = capture(self.ensemble(kind), self.text.every, self.folder / f"{kind} remembered", "mean")
        first = Student(self.ensemble("5 IID").models[0], EnD())  # students of CRFs are IID taggers, too
        for name, (method, labels) in missing.items():
            student = distill(
                kept,
                self.network(),
                self.text.shown,
                method,
                self.training(self.recipe.student_epochs, labels, lr=1e-3),  # it starts from a trained tagger
                task=self.text.task,
                validation=self.text.held,
                start=first,
                folder=self.folder / "training" / name,
            )
            student.save(self._place(name))

    def _place(self, name: str) -> Path:
        return self.folder / "students" / name

    def model(self, name: str) -> Any:
        """A row's model, trained."""
        if name.endswith(", T"):
            return Tempered(self.model(name.removesuffix(", T")), self.text)
        if name in SINGLES:
            return self.ensemble(f"5 {name}").member(0)
        return Student.load(self._place(name)) if "→" in name else self.ensemble(name)

    def judged(self, name: str) -> dict[str, Any]:
        """The metrics of a row; of a single tagger the mean over all members."""
        text = self.text
        if name not in SINGLES:
            return measured(self.model(name), text.sets, text.task)
        whole = self.ensemble(f"5 {name}")
        rows = [measured(whole.member(m), text.sets, text.task) for m in range(whole.members)]
        known = {key: [v for row in rows if (v := row["scores"][key]) is not None] for key in rows[0]["scores"]}
        return {**rows[0], "scores": {key: float(np.mean(values)) if values else None for key, values in known.items()}}


class Tempered:
    """A model whose probabilities are softmax(ln p̄ / T), T fitted on the validation block."""

    def __init__(self, model: Any, text: Text) -> None:
        self.model, self.task = model, text.task
        logs, labels = [], []
        for batch in text.held:
            assert batch.target is not None
            assert batch.weight is not None
            counts = batch.weight > 0
            logs.append(model.predict(batch.inputs).mean.double().log()[counts])
            labels.append(batch.target[counts])
        self.temperature = fit_temperature(torch.cat(logs), torch.cat(labels))

    def predict(self, inputs: Any) -> Prediction:
        """Without data and knowledge: one temperature for all says nothing of them."""
        found = self.task.recalibrated(self.model.predict(inputs), torch.full((len(inputs),), self.temperature))
        assert found is not None
        return found


def measured(model: Any, sets: dict[str, Sequences], task: Tagging) -> dict[str, Any]:
    """Scores on the test set, F1 and the AUROC of every unfamiliar set, by token and by sentence, and the curves."""
    own: dict[str, tuple[Elements, Columns]] = {}
    for name, batches in sets.items():
        elements, columns = stream({"model": model}, name, batches, task, None)
        own[name] = elements, columns["model"]
    facts, test = own["test"]
    cells = np.stack([test[f"p({kind})"] for kind in task.tags.types], -1)
    labels = test["type"][:, None] == np.arange(len(task.tags.types))
    scores: dict[str, Any] = dict(zip(("BS+", "BS−"), metrics.stratified_brier(cells, labels), strict=True))
    scores |= task.scores(test)
    for name, (elements, columns) in own.items():
        if name == "test":
            continue
        there = task.scores(columns)
        scores |= {f"{key} on {name}": there[key] for key in ("F1", "entity ECE")}
        for key in ("total", "knowledge"):
            if key in test and test[key].any():  # one member knows of no other: its knowledge is 0
                scores[f"{name} {key}"] = told_apart(by_example(test[key], facts), by_example(columns[key], elements))
                scores[f"{name} {key} of tokens"] = told_apart(test[key], columns[key])
    figures = {figure.name: [figure.x.tolist(), figure.y.tolist()] for figure in task.figures(test, np.empty(0))}
    return {"scores": scores, "figures": figures, "temperature": getattr(model, "temperature", None)}


def _teach(recipe: Ner, folder: Path, number: int, kind: str) -> None:
    Study(recipe, folder, number).ensemble(kind)


def _distil(recipe: Ner, folder: Path, number: int, teacher: str) -> None:
    Study(recipe, folder, number).distil(teacher)


def _judge(recipe: Ner, folder: Path, number: int, model: str) -> Any:
    study = Study(recipe, folder, number)
    return study.work.remember(f"metrics {model}", lambda: study.judged(model))
