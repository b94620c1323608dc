"""Hydra on MNIST: fifty small networks, their students, and what becomes of model uncertainty as images shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.distributions import Prediction
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.evaluation.stream import Predictor
from solera.methods import EnD, EnD2, Hydra, Method, ProxyDirichlet
from solera.metrics import mean_absolute_difference, rank_correlation
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import grey, load_npz, require_files, rotated, translated
from solera.recipes.hydra_mnist_page import ANGLES, PIXELS, Numbers, draw, page
from solera.recipes.page import pyplot
from solera.tasks import mean_of
from solera.teachers import Ensemble, Teacher, capture
from solera.training import Student, Training, distill

FILES = ["images/mnist.npz", "images/fashion_mnist.npz"]
STUDENTS: dict[str, Method] = {
    "EnD": EnD(),
    "EnD²": EnD2(),
    "Proxy": ProxyDirichlet(as_published=True),
    "Hydra": Hydra(head=3),
    "Hydra, T = 4": Hydra(head=3, temperature=4.0),
}


@dataclass(frozen=True)
class HydraMnist(Recipe):
    """The Hydra paper's MNIST study: an ensemble of MLPs [200, 200], students, and Hydra with heads of [100, 100, 10].

    Accuracy, NLL, Brier score, model uncertainty and its distance from the ensemble's on MNIST, translated, rotated and
    Fashion-MNIST; parameters and FLOPs; curves against the shift. About half an hour on two cores.
    """

    data: str = "../shared/data"
    members: int = 50
    images: int = 0  # use only the first so many training images; 0: all
    epochs: int = 4
    student_epochs: int = 8
    repeats: int = 3  # students differ in initial weights and in the order of the data; the ensemble is one

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs", "repeats"):
            require_positive(name, getattr(self, name))
        if self.images < 0:
            raise ValueError(f"images must be 0 (all) or more, got {self.images}")

    def run(self, work: Workspace) -> str:
        require_files(self.data, FILES)
        pyplot()
        arrays = load_npz(self.data, FILES[0])
        limit = self.images or len(arrays["x_train"])
        x, y = grey(arrays["x_train"][:limit]), torch.from_numpy(arrays["y_train"][:limit]).long()
        work.say(f"training {self.members} networks on {len(x)} images")
        batches = Batches(x, y, batch_size=128)
        ensemble = train_ensemble(
            lambda: MLP(784, 10, (200, 200)),
            batches,
            self.members,
            Training(epochs=self.epochs, lr=2e-3, seed=self.seed),
            folder=work.folder / "ensemble",
            stacked=True,
        )
        work.say(f"remembering what they say about {len(x)} images")
        teacher = capture(ensemble, batches, work.folder / "transfer-set")
        sets = self._sets(arrays)
        reference = {name: ensemble.predict(images) for name, (images, _) in sets.items()}
        found: dict[str, list[Numbers]] = {}
        one = Student(ensemble.models[0], EnD())
        for name, model in {"one member": one, "ensemble": ensemble}.items():
            found[name] = [work.remember(f"metrics {name}", lambda model=model: measure(model, sets, reference))]
        for name, method in STUDENTS.items():
            found[name] = []
            for repeat in range(self.repeats):
                student = self._student(teacher, batches, name, method, repeat, work)
                found[name].append(
                    work.remember(f"metrics {name} {repeat}", lambda s=student: measure(s, sets, reference))
                )
        sizes = {name: size(model) for name, model in self._shapes(ensemble).items()}
        draw(found, work)
        return page(self, found, sizes, work)

    def _sets(self, arrays: dict[str, np.ndarray]) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Test images, turned, moved, and of clothes. Turned and moved: the first 2,000, once for each amount."""
        test, labels = grey(arrays["x_test"]), torch.from_numpy(arrays["y_test"]).long()
        sets: dict[str, tuple[Tensor, Tensor | None]] = {"MNIST": (test, labels)}
        sets |= {f"{angle}°": (rotated(test[:2000], angle), labels[:2000]) for angle in ANGLES}
        sets |= {f"{pixels} pixels": (translated(test[:2000], pixels), labels[:2000]) for pixels in PIXELS}
        return sets | {"Fashion": (grey(load_npz(self.data, FILES[1])["x_test"]), None)}

    def _network(self, method: Method) -> MLP:
        return MLP(784, 10, (200, 200, 100, 100) if isinstance(method, Hydra) else (200, 200))

    def _student(
        self, teacher: Teacher, batches: Batches, name: str, method: Method, repeat: int, work: Workspace
    ) -> Student:
        """Hydra grows from an EnD student of its own shape, as in the paper."""
        work.say(f"distilling {name}, {repeat + 1} of {self.repeats}")
        torch.manual_seed(stream(self.seed, "student", repeat))
        training = Training(epochs=self.student_epochs, lr=2e-3, seed=stream(self.seed, "repeat", repeat))
        folder, network = work.folder / "training" / f"{name}-{repeat}", self._network(method)
        if isinstance(method, Hydra):
            network = distill(teacher, network, batches, EnD(), training, folder=folder / "mean").model
        return distill(teacher, network, batches, method, training, folder=folder)

    def _shapes(self, ensemble: Ensemble) -> dict[str, Any]:
        students = {name: method.student(self._network(method), self.members) for name, method in STUDENTS.items()}
        return {"ensemble": ensemble, **{n: Student(s, STUDENTS[n]) for n, s in students.items()}}


def measure(
    model: Predictor, sets: dict[str, tuple[Tensor, Tensor | None]], reference: Mapping[str, Prediction]
) -> Numbers:
    """Scores, mean knowledge, and its distance from and rank correlation with the ensemble's, on every set."""
    (images, labels), *_ = sets.values()
    others = {name: x if y is None else (x, y) for name, (x, y) in sets.items() if name != "MNIST"}
    said = {"test" if name == "MNIST" else name: model.predict(x) for name, (x, _) in sets.items()}
    theirs_said = {"test" if name == "MNIST" else name: prediction for name, prediction in reference.items()}
    result = evaluate({"model": said, "ensemble": theirs_said}, images, labels, unfamiliar=others)
    found: Numbers = {}
    for name, (_, y) in sets.items():
        place = "test" if name == "MNIST" else name
        columns, numbers = result.columns["model"][place], dict[str, float]()
        if y is not None:
            scores = {"accuracy": "correct", "NLL": "nll", "Brier": "brier"}
            numbers |= {score: mean_of(columns, column) for score, column in scores.items()}
        if "knowledge" in columns:
            own, theirs = columns["knowledge"], result.columns["ensemble"][place]["knowledge"]
            numbers |= {"knowledge": float(own.mean()), "gap": mean_absolute_difference(own, theirs)}
            if own.max() > 0:
                numbers["ρ"] = rank_correlation(own, theirs)
        found[name] = numbers
    return found


def size(model: Any) -> tuple[int, int]:
    """Parameters, and floating-point operations for one image."""
    with FlopCounterMode(display=False) as counter:
        model.predict(torch.zeros(1, 1, 28, 28))
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops()
