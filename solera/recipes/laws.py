"""When is a Dirichlet not enough? EnD², a mixture of Dirichlets and a logistic-normal, on members of two kinds."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from solera.calibration import calibrate
from solera.core.checks import require_positive
from solera.core.seeds import generator, stream
from solera.data import Batches
from solera.data.augment import Jitter
from solera.distributions.base import SecondOrder
from solera.distributions.density import smoothed_log_probs
from solera.ensembles import train_ensemble
from solera.methods import DirichletMixture, EnD2, LogisticNormal, Method
from solera.metrics import accuracy, auroc, nll, rank_correlation
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import load_npz, require_files
from solera.recipes.laws_page import Found, draw, page, samples
from solera.recipes.page import origin, pyplot
from solera.teachers import Ensemble, capture
from solera.training import Student, Training, distill

# all by plain likelihood: with so few classes EnD²'s softened start helps neither Dirichlet
LAWS: dict[str, Method] = {
    "Dirichlet (EnD²)": EnD2(initial_temperature=1.0),
    "mixture of Dirichlets": DirichletMixture(),
    "logistic-normal": LogisticNormal(),
}
SETS = ("annotators", "satellite")
FILE = "tabular/satellite.npz"
DISPUTED = (0.0, 0.0)  # where the two annotators differ


@dataclass(frozen=True)
class Problem:
    """A set with its members: inputs and labels of three parts, unlabelled inputs, unfamiliar ones, and who teaches."""

    train: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]  # to pick the epoch and to give uncertainty its size
    test: tuple[Tensor, Tensor]
    auxiliary: Tensor  # unlabelled, unlike the training inputs: the teacher speaks for them
    unfamiliar: Tensor  # what knowledge must tell from the test inputs
    ensemble: Ensemble
    classes: int


@dataclass(frozen=True)
class Laws(Recipe):
    """EnD², a mixture of Dirichlets and a logistic-normal: which law do members of two kinds follow?

    Made-up data labelled by two annotators who differ, and satellite images seen by forests and networks. Ten minutes.
    """

    data: str = "../shared/data"
    members: int = 4  # of each of the two kinds
    repeats: int = 5  # each with members, students and splits of its own
    steps: int = 3000  # of a student
    rows: int = 600  # of the made-up set
    trees: int = 30

    def __post_init__(self) -> None:
        for name in ("members", "steps", "rows", "trees"):
            require_positive(name, getattr(self, name))
        if self.repeats < 3:
            raise ValueError(f"repeats must be at least 3 to have a paired interval, got {self.repeats}")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [FILE])
        pyplot()
        found: Found = {name: {model: [] for model in ("ensemble", *LAWS)} for name in SETS}
        for name in SETS:
            for repeat in range(self.repeats):
                work.say(f"{name}: repeat {repeat + 1} of {self.repeats}")
                rows = work.remember(f"{name}-{repeat}", partial(self._repeat, name, repeat, work))
                for model, row in rows.items():
                    found[name][model].append(row)
        draw(work.remember("disputed", partial(self._disputed, work)), work)
        return page(self, found, origin(self, "laws", work))

    def _repeat(self, name: str, repeat: int, work: Workspace) -> dict[str, dict[str, float]]:
        problem = self._problem(name, repeat)
        students = self._students(problem, name, repeat, work)
        return {"ensemble": measured(problem, None), **{law: measured(problem, s) for law, s in students.items()}}

    def _problem(self, name: str, repeat: int) -> Problem:
        seed = stream(self.seed, name, repeat)
        return self._annotators(seed) if name == "annotators" else self._satellite(seed)

    def _students(self, problem: Problem, name: str, repeat: int, work: Workspace) -> dict[str, Student]:
        x, y = problem.train
        batches = Batches(x, y, auxiliary=problem.auxiliary, batch_size=64)
        place = work.folder / f"{name}-{repeat}"
        held = Batches(*problem.held, batch_size=512)
        memory, held_memory = (
            capture(problem.ensemble, batches, place / "train"),
            capture(problem.ensemble, held, place / "held"),
        )
        students = {}
        for law, method in LAWS.items():
            torch.manual_seed(stream(self.seed, "student", repeat))
            network = MLP.for_inputs(x, method.outputs(problem.classes), (128, 128))
            order = stream(self.seed, "order", repeat)
            epochs = max(1, self.steps // len(batches))
            training = Training(epochs, lr=3e-3, weight_decay=1e-3, clip=1.0, seed=order)
            student = distill(memory, network, batches, method, training)
            students[law] = calibrate(student, held_memory, held, show=False)
        return students

    def _annotators(self, seed: int) -> Problem:
        """Three clouds of a class each, and a fourth that one annotator calls class 0 and the other class 1.

        Both err in 15 % of the labels, so a member is never quite sure. A test label comes from either of them.
        """
        random = generator(seed, "annotators")
        x, labels = annotated(3 * self.rows, random)
        parts = [slice(0, self.rows), slice(self.rows, 2 * self.rows), slice(2 * self.rows, None)]
        kinds = [
            train_ensemble(
                partial(MLP, 2, 3, (32,)),
                Batches(x[parts[0]], labels[kind][parts[0]], batch_size=100),
                self.members,
                Training(epochs=30, lr=1e-2, weight_decay=1e-2, seed=stream(seed, kind)),
            )
            for kind in (0, 1)
        ]
        either = torch.where(torch.rand(len(x), generator=random) < 0.5, labels[0], labels[1])
        auxiliary, far = (8 * torch.randn(count, 2, generator=random) for count in (self.rows // 2, self.rows))
        far = far[far.norm(dim=1) > 6]
        ensemble = Ensemble([model for kind in kinds for model in kind.models])
        train, held, test = ((x[part], either[part]) for part in parts)
        return Problem(train, held, test, auxiliary, far, ensemble, 3)

    def _satellite(self, seed: int) -> Problem:
        """Forests and networks on five kinds of ground; the sixth, cotton crop, is what nobody has seen."""
        from sklearn.ensemble import RandomForestClassifier

        arrays = load_npz(self.data, FILE)
        x, y, x_test, y_test = (torch.tensor(arrays[key]) for key in ("x_train", "y_train", "x_test", "y_test"))
        x, x_test, y, y_test = x.float(), x_test.float(), y.long() - 1, y_test.long() - 1  # cotton crop becomes −1
        unfamiliar, x, y = x_test[y_test < 0], x[y >= 0], y[y >= 0]
        order = torch.randperm(len(x), generator=generator(seed, "split"))
        held, train = order[: len(x) // 10], order[len(x) // 10 :]
        forests = [
            RandomForestClassifier(self.trees, min_samples_leaf=2, random_state=stream(seed, m) % 2**31)
            for m in range(self.members)
        ]
        networks = train_ensemble(
            partial(MLP.for_inputs, x, 5, (64,)),
            Batches(x[train], y[train], batch_size=128),
            self.members,
            Training(epochs=15, lr=4e-3, weight_decay=1e-3, seed=seed),
        )
        trees = [forest.fit(x[train].numpy(), y[train].numpy()) for forest in forests]
        test = y_test >= 0
        parts = (x[train], y[train]), (x[held], y[held]), (x_test[test], y_test[test])
        random, half = generator(seed, "auxiliary"), len(train) // 2
        auxiliary = torch.cat([beyond(x[train], half, random), Jitter(x[train], 2.0)(x[train][:half], random)])
        return Problem(*parts, auxiliary, unfamiliar, Ensemble([*trees, *networks.models]), 5)

    def _disputed(self, work: Workspace) -> dict[str, list[float]]:
        """p(class 0) of every member and of samples of every law, at the middle of the disputed cloud."""
        problem = self._problem("annotators", 0)
        at = torch.tensor([DISPUTED])
        said = {"members": problem.ensemble.predict(at).members.mean[0, :, 0].tolist()}
        for law, student in self._students(problem, "annotators", 0, work).items():
            said[law] = samples(as_trained(student, law, at), generator(self.seed, "samples"))
        return said


def beyond(x: Tensor, count: int, random: torch.Generator) -> Tensor:
    """x_i + a·(x_j − x_i) with a from −1 to 2: between two rows of a table, or past one of them."""
    first, second = (x[torch.randint(len(x), (count,), generator=random)] for _ in range(2))
    return first + (3 * torch.rand(count, 1, generator=random) - 1) * (second - first)


def annotated(count: int, random: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Inputs in four clouds and the labels of two annotators."""
    centres = torch.tensor([[-2.5, -1.0], [2.5, -1.0], [0.0, 3.0], DISPUTED])
    cloud = torch.randint(4, (count,), generator=random)
    x = centres[cloud] + 0.7 * torch.randn(count, 2, generator=random)
    labels = []
    for kind in (0, 1):
        slips = torch.randint(3, (count,), generator=random)
        label = torch.where(cloud == 3, kind, cloud)
        labels.append(torch.where(torch.rand(count, generator=random) < 0.15, slips, label))
    return x, labels


def as_trained(student: Student, law: str, x: Tensor) -> Any:
    """What it says without the fitted size: the law that was trained by the likelihood."""
    return Student(student.model, LAWS[law]).predict(x)


def measured(problem: Problem, student: Student | None) -> dict[str, float]:
    """Of a student, or of the ensemble itself; the likelihood is of the smoothed members on the test inputs."""
    x, y = problem.test
    theirs = problem.ensemble.predict(x)
    said, elsewhere = ((student or problem.ensemble).predict(inputs) for inputs in (x, problem.unfamiliar))
    assert isinstance(said, SecondOrder)
    assert isinstance(elsewhere, SecondOrder)
    positive = torch.cat([torch.zeros(len(x)), torch.ones(len(problem.unfamiliar))])
    row = {
        "accuracy": accuracy(said.mean, y),
        "NLL": nll(said.mean, y),
        "knowledge kept": float(said.knowledge.sum() / theirs.knowledge.sum()),
        "ρ knowledge": rank_correlation(theirs.knowledge, said.knowledge),
        "OOD AUROC": auroc(torch.cat([said.knowledge, elsewhere.knowledge]), positive),
    }
    if student is not None:
        law = next(name for name, method in LAWS.items() if type(method) is type(student.method))
        log_probs = smoothed_log_probs(theirs.members.logits, 1e-4)
        row["log-likelihood"] = float(as_trained(student, law, x).log_density(log_probs.float()).mean())
    return row
