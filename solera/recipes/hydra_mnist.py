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
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.tasks import mean_of
from solera.teachers import Ensemble, Teacher, capture
from solera.training import Student, Training, distill

FILES = ["images/mnist.npz", "images/fashion_mnist.npz"]
ANGLES = (0, 15, 30, 45, 60, 75, 90)
PIXELS = (0, 2, 4, 6, 8, 10, 12)
STUDENTS: dict[str, Method] = {
    "EnD": EnD(),
    "EnD²": EnD2(),
    "Proxy": ProxyDirichlet(as_published=True),
    "Hydra": Hydra(head=3),
    "Hydra, T = 4": Hydra(head=3, temperature=4.0),
}
# the paper's Table 1 (mean absolute difference of model uncertainty; its prior network is EnD²) and Table 2
PAPER_GAPS = {
    "MNIST": ("2.6e-05", "3.1e-05"),
    "translated": ("0.194", "0.155"),
    "rotated": ("0.294", "0.053"),
    "Fashion": ("0.164", "0.272"),
}
PAPER = {
    "ensemble": ("98.51", "0.0439", "0.0220", "9.97e-06"),
    "EnD": ("98.43", "0.0497", "0.0236", "–"),
    "EnD²": ("98.42", "0.0521", "0.0715", "0.116"),
    "Hydra": ("98.57", "0.0465", "0.0224", "2.28e-05"),
}
PAPER_SIZE = {
    "ensemble": ("9,960,500", "9.0e+07"),
    "EnD": ("199,210", "1.8e+06"),
    "EnD²": ("199,210", "1.8e+06"),
    "Hydra": ("1,757,700", "2.5e+07"),
}
Numbers = dict[str, dict[str, float]]  # set of images -> metric -> value


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


def mean(numbers: Numbers, kind: str, metric: str) -> float:
    """Over all amounts of a shift: `rotated` and `translated` stand for every angle and distance above 0."""
    names = {
        "rotated": [f"{angle}°" for angle in ANGLES[1:]],
        "translated": [f"{pixels} pixels" for pixels in PIXELS[1:]],
    }.get(kind, [kind])
    return float(np.mean([numbers[name][metric] for name in names]))


def page(
    recipe: HydraMnist, found: dict[str, list[Numbers]], sizes: dict[str, tuple[int, int]], work: Workspace
) -> str:
    """The paper's Tables 1, 2 and 5 beside ours, and what held."""

    def cell(name: str, kind: str, metric: str, digits: int, scale: float = 1.0) -> str:
        if metric not in found[name][0]["MNIST"]:
            return "–"
        return spread([mean(numbers, kind, metric) for numbers in found[name]], digits, scale)

    dashes = ("–",) * 4
    scores = [
        [
            name,
            cell(name, "MNIST", "accuracy", 2, 100),
            cell(name, "MNIST", "NLL", 4),
            cell(name, "MNIST", "Brier", 4),
            cell(name, "MNIST", "knowledge", 5),
            cell(name, "MNIST", "ρ", 3),
            " / ".join(PAPER.get(name, dashes)),
        ]
        for name in found
    ]
    second = [name for name in STUDENTS if "gap" in found[name][0]["MNIST"]]
    gaps = [
        [kind, *(cell(name, kind, "gap", 4) for name in second), " / ".join(PAPER_GAPS[kind])] for kind in PAPER_GAPS
    ]
    whole = sizes["ensemble"]
    capacity = [
        [
            name,
            f"{parameters:,} ({100 * parameters / whole[0]:.1f} %)",
            f"{flops:.2g} ({100 * flops / whole[1]:.1f} %)",
            " / ".join(PAPER_SIZE.get(name, ("–", "–"))),
        ]
        for name, (parameters, flops) in sizes.items()
    ]

    def gap(name: str, kind: str) -> float:
        return float(np.mean([mean(numbers, kind, "gap") for numbers in found[name]]))

    claims = []
    for name in [name for name, method in STUDENTS.items() if isinstance(method, Hydra)]:
        closer = [kind for kind in PAPER_GAPS if gap(name, kind) < gap("EnD²", kind)]
        follows = float(np.mean([numbers["MNIST"]["ρ"] for numbers in found[name]]))
        claims += [
            verdict(
                f"{name}: model uncertainty is closer to the ensemble's than EnD²'s on most rows: on "
                + (", ".join(closer) or "none"),
                len(closer) > len(PAPER_GAPS) / 2,
            ),
            verdict(f"{name}: knowledge follows the ensemble's on test images, ρ ≥ 0.9: {follows:.3f}", follows >= 0.9),
        ]
    return PAGE.format(
        recipe=recipe,
        images=f"{recipe.images:,}" if recipe.images else "all 60,000",
        scores=table(
            ["model", "accuracy %", "NLL", "Brier", "knowledge", "ρ", "paper: ACC / NLL / Brier / MU"], scores
        ),
        gaps=table(["images", *second, "paper: prior network / Hydra"], gaps),
        capacity=table(["model", "parameters", "FLOPs", "paper: parameters / FLOPs"], capacity),
        claims="\n".join(claims),
        origin=origin(recipe, "hydra-mnist", work),
    )


def draw(found: dict[str, list[Numbers]], work: Workspace) -> None:
    """Every metric against the shift: accuracy, NLL, Brier score and mean knowledge (the paper's Figure 3)."""
    figure, panels = pyplot().subplots(2, 4, figsize=(15, 6.6), layout="constrained")
    shifts = {"angle in degrees": (ANGLES, "{}°"), "moved by, in pixels": (PIXELS, "{} pixels")}
    metrics = {"accuracy": "accuracy", "NLL": "NLL", "Brier": "Brier score", "knowledge": "mean knowledge, in nats"}
    for row, (label, (amounts, form)) in zip(panels, shifts.items(), strict=True):
        for axes, (metric, title) in zip(row, metrics.items(), strict=True):
            for number, (name, runs) in enumerate(found.items()):
                if metric not in runs[0]["MNIST"] or (metric == "knowledge" and name == "one member"):
                    continue
                values = [np.mean([numbers[form.format(a)][metric] for numbers in runs]) for a in amounts]
                style: dict[str, Any] = {"color": f"C{number}"}  # a model keeps its colour in every panel
                style = {"color": "black", "linewidth": 2.5} if name == "ensemble" else style
                axes.plot(amounts, values, marker="o", markersize=3, label=name, **style)
            axes.set(title=title, xlabel=label)
    panels[0, 0].legend(frameon=False, fontsize=8)
    save_figure(figure, work.folder / "hydra-mnist.png")


PAGE = """# Hydra on MNIST

{recipe.members} networks with hidden layers of 200 and 200 units, trained on {images} images for {recipe.epochs}
epochs; students of the same shape, and Hydra with {recipe.members} heads of [100, 100, 10] on one body, grown from an
EnD student; once at temperature 1 and once at 4, where members' small differences weigh more (tried after a first
look at the results). Mean ± sample standard deviation over {recipe.repeats} students. The ensemble, the
pre-processing and the shifts are ours, so compare orders, not digits. (The paper prints the Brier score less one.)

## Test images

{scores}

ρ: rank correlation of knowledge with the ensemble's.

## Mean absolute difference of model uncertainty (knowledge) from the ensemble's

Rotated: the mean over 15° to 90°; translated: over 2 to 12 pixels to the right.

{gaps}

{claims}

## Size

{capacity}

## Against the shift

![Metrics against rotation and translation](hydra-mnist.png)

{origin}
"""
