"""Eight problems for the recipes `headline` and `unfamiliar`, each with its ensemble and the student of defaults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from solera.core.seeds import generator, stream
from solera.data import Batches
from solera.ensembles import train_ensemble
from solera.methods import Method
from solera.nn import MLP, ConvNet
from solera.recipes import tabular, uci
from solera.recipes.data import grey, load_npz
from solera.teachers import Ensemble
from solera.training import Distiller, Student, Training
from solera.training.settings import PATIENT

TREES = 8  # members of an ensemble of LightGBMs, each of 100 trees
OTHERS = 2000  # inputs of an unfamiliar set


@dataclass(frozen=True)
class Problem:
    """What is known, what is asked, and who is the ensemble."""

    x: Tensor
    y: Tensor
    test: tuple[Tensor, Tensor]
    unfamiliar: dict[str, Tensor]
    teach: Callable[["Problem", int], Ensemble]  # by a seed
    network: Callable[["Problem"], nn.Module] | None = None  # the student's; None: the default for such inputs
    unlabelled: Tensor | None = None
    validation: tuple[Tensor, Tensor] | None = None  # new to the members: the student's length and size are chosen here

    @property
    def classes(self) -> int:
        """Of a classification."""
        return int(self.y.max()) + 1

    def held_out(self) -> "Problem":
        """A part of the known examples in the place of the test: to choose settings by."""
        rest, part = self._parted(0.2, "held out")
        return replace(rest, test=part)

    def validated(self) -> "Problem":
        """A part of the known examples kept from the members, as people do who have no unlabelled ones."""
        rest, part = self._parted(0.15, "validation")
        return replace(rest, validation=part)

    def _parted(self, share: float, purpose: str) -> tuple["Problem", tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.x), generator=generator(0, purpose))
        part, rest = order[: round(share * len(order))], order[round(share * len(order)) :]
        return replace(self, x=self.x[rest], y=self.y[rest]), (self.x[part], self.y[part])


def distilled(
    problem: Problem,
    ensemble: Ensemble,
    seed: int,
    place: Path,
    method: Method | None = None,
    auxiliary: Tensor | None = None,
) -> Student:
    """By defaults: the network is that of a member where the members are networks for such a task."""
    if (place / "student" / "config.json").exists():
        return Student.load(place / "student")
    torch.manual_seed(stream(seed, "student"))
    model = None if problem.network is None else problem.network(problem)
    distiller = Distiller(model, method, replace(PATIENT, seed=seed), folder=place / "training")
    given = {"unlabelled": problem.unlabelled, "validation": problem.validation}
    student = distiller.fit(ensemble, problem.x, problem.y, auxiliary, **given).student_
    student.save(place / "student")
    return student


def boosted(problem: Problem, seed: int) -> Ensemble:
    """LightGBMs, each of a bag of the rows."""
    from lightgbm import LGBMClassifier

    x, y, members = problem.x.numpy(), problem.y.numpy(), []
    for number in range(TREES):
        rows = np.random.default_rng([seed, number]).integers(0, len(x), len(x))
        model = LGBMClassifier(n_estimators=100, num_leaves=31, n_jobs=2, verbose=-1, seed=number)
        members.append(model.fit(x[rows], y[rows]).set_params(n_jobs=1))
    return Ensemble(members)


def networks(members: int, epochs: int, make: Callable[[Problem], nn.Module]) -> Callable[[Problem, int], Ensemble]:
    """Networks from different weights, each trained on all the known examples."""

    def teach(problem: Problem, seed: int) -> Ensemble:
        training = Training(epochs=epochs, lr=3e-3, seed=seed)
        torch.manual_seed(seed)
        return train_ensemble(lambda: make(problem), Batches(problem.x, problem.y), members, training)

    return teach


def wide(problem: Problem) -> nn.Module:
    """For rows of letters, members and student alike."""
    return MLP.for_inputs(problem.x, problem.classes, (256, 256))


def convnet(problem: Problem) -> nn.Module:
    """For images, members and student alike."""
    return ConvNet(tuple(problem.x.shape[1:]), problem.classes, channels=(8, 16, 32), hidden=64)


def forecaster(problem: Problem) -> nn.Module:
    """A mean and a variance."""
    return MLP.for_inputs(problem.x, 2, (64, 64), targets=problem.y)


def small_forecaster(problem: Problem) -> nn.Module:
    """The same for few rows, which a larger network learns by heart."""
    return MLP.for_inputs(problem.x, 2, (50,), activation="tanh", targets=problem.y)


def letter(data: str) -> Problem:
    """The letters A to V by 16 numbers, 3,000 of them labelled; W to Z are unfamiliar."""
    x, y, x_test, y_test = tabular.load(data, "letter")
    known, asked = y < 22, y_test < 22
    rows = x[known]
    test, other = (x_test[asked], y_test[asked]), {"W–Z": x_test[~asked]}
    return Problem(rows[:3000], y[known][:3000], test, other, networks(8, 40, wide), wide, rows[3000:])


def satellite(data: str) -> Problem:
    """Soils by 36 numbers; the last of six kinds is unfamiliar."""
    x, y, x_test, y_test = tabular.load(data, "satellite")
    known, asked = y < 5, y_test < 5
    return Problem(x[known], y[known], (x_test[asked], y_test[asked]), {"class 6": x_test[~asked]}, boosted).validated()


def adult(data: str) -> Problem:
    """Incomes above a threshold or not, by 14 facts about a person; nobody is unfamiliar."""
    x, y, x_test, y_test = tabular.load(data, "adult")
    return Problem(x, y, (x_test, y_test), {}, boosted).validated()


def images(data: str, name: str, labelled: int, unlabelled: int, epochs: int, other: tuple[str, str, str]) -> Problem:
    """Images of ten classes with few labels; those of another set are unfamiliar."""
    arrays = load_npz(data, f"images/{name}.npz")
    order = torch.randperm(len(arrays["x_train"]), generator=generator(0, name))[: labelled + unlabelled]
    x, y = grey(arrays["x_train"][order.numpy()]), torch.from_numpy(arrays["y_train"].astype(np.int64))[order]
    test = grey(arrays["x_test"]), torch.from_numpy(arrays["y_test"].astype(np.int64))
    title, file, key = other
    unfamiliar = {title: grey(load_npz(data, f"images/{file}.npz")[key][:OTHERS])}
    teach = networks(5, epochs, convnet)
    return Problem(x[:labelled], y[:labelled], test, unfamiliar, teach, convnet, x[labelled:])


def regression(data: str, name: str, epochs: int, make: Callable[[Problem], nn.Module]) -> Problem:
    """A UCI set's first split; test rows moved three to five deviations away are unfamiliar."""
    arrays = load_npz(data, f"regression/{name}.npz")
    (x, y), test = uci.rows(arrays, "train_0"), uci.rows(arrays, "test_0")
    draw = generator(0, name)
    size = 3 + 2 * torch.rand(test[0].shape, generator=draw)
    away = size * torch.where(torch.rand(test[0].shape, generator=draw) < 0.5, -1.0, 1.0)
    moved = test[0] + away * x.std(0)
    known = x, y[:, None], (test[0], test[1][:, None])
    return Problem(*known, {"moved away": moved}, networks(5, epochs, make)).validated()


PROBLEMS: dict[str, Callable[[str], Problem]] = {
    "satellite": satellite,
    "concrete": lambda data: regression(data, "concrete", 180, small_forecaster),
    "power": lambda data: regression(data, "power", 100, forecaster),
    "kin8nm": lambda data: regression(data, "kin8nm", 100, forecaster),
    "letter": letter,
    "MNIST": lambda data: images(data, "mnist", 500, 2000, 60, ("Fashion", "fashion_mnist", "x_test")),
    "Fashion": lambda data: images(data, "fashion_mnist", 1000, 2000, 40, ("MNIST", "mnist", "x_test")),
    "adult": adult,
}
FILES = {
    "letter": ["tabular/letter.npz"],
    "satellite": ["tabular/satellite.npz"],
    "adult": ["tabular/adult.train.csv.gz", "tabular/adult.test.csv.gz"],
    "MNIST": ["images/mnist.npz", "images/fashion_mnist.npz"],
    "Fashion": ["images/mnist.npz", "images/fashion_mnist.npz"],
    **{name: [f"regression/{name}.npz"] for name in ("kin8nm", "power", "concrete")},
}


def described(name: str) -> str:
    """What stands beside the name in the table."""
    kinds = {
        "letter": "rows, 8 MLPs",
        "satellite": f"rows, {TREES} LightGBMs",
        "adult": f"rows, {TREES} LightGBMs",
        "MNIST": "images, 500 labels, 5 convnets",
        "Fashion": "images, 1,000 labels, 5 convnets",
    }
    return kinds.get(name, "continuous target, 5 MLPs")
