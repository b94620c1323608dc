"""MNIST: ten convnets, their students, and inputs that are unfamiliar or shifted."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.evaluation.evaluation import Evaluation, display
from solera.methods import EnD, EnD2, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import blends, grey, load_colour, load_npz, require_files, rotated
from solera.recipes.page import origin, pyplot, save_figure, table, verdict
from solera.tasks import Row
from solera.teachers import Teacher, capture
from solera.training import Student, Training, distill

IMAGES = "images/"
FILES = ["mnist.npz", "fashion_mnist.npz", "omniglot_28x28.npz", "mnist_m_test2k.npz"]
ANGLES = (0, 15, 30, 45, 60, 75, 90)
STUDENTS: dict[str, Method] = {"EnD": EnD(), "EnD²": EnD2(), "Proxy": ProxyDirichlet(as_published=True)}
Models = dict[str, Any]


@dataclass(frozen=True)
class Mnist(Recipe):
    """Ten convnets on MNIST, distilled with and without auxiliary inputs; OOD: Fashion-MNIST and Omniglot.

    Shift: digits over photographs (MNIST-M) and rotation. Auxiliary inputs are blends of two training images.
    """

    data: str = "../shared/data"
    members: int = 10
    epochs: int = 3
    student_epochs: int = 5
    images: int = 0  # use only the first so many training images; 0: all

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs"):
            require_positive(name, getattr(self, name))

    def network(self) -> ConvNet:
        """The architecture of members and students."""
        return ConvNet((1, 28, 28), 10, channels=(8, 16), hidden=64)

    def run(self, work: Workspace) -> str:
        require_files(self.data, [IMAGES + name for name in FILES])
        pyplot()
        mnist = load_npz(self.data, IMAGES + "mnist.npz")
        limit = self.images or len(mnist["x_train"])
        x, y = grey(mnist["x_train"][:limit]), torch.from_numpy(mnist["y_train"][:limit]).long()
        work.say(f"training {self.members} convnets on {len(x)} images")
        ensemble = train_ensemble(
            self.network,
            Batches(x, y, batch_size=256),
            self.members,
            Training(epochs=self.epochs, lr=4e-3, seed=self.seed),
            folder=work.folder / "ensemble",
        )
        models: Models = {"single": Student(ensemble.models[0], EnD()), "ensemble": ensemble}
        kinds = {"": Batches(x, y, batch_size=256)}
        kinds[" + AUX"] = Batches(x, y, auxiliary=blends(x, len(x) // 2, self.seed), batch_size=256)
        for suffix, batches in kinds.items():
            remembered = capture(ensemble, batches, work.folder / f"transfer-set{suffix.replace(' + ', '-')}")
            for name, method in STUDENTS.items():
                work.say(f"distilling {name}{suffix}")
                models[name + suffix] = self._student(remembered, batches, method, name + suffix, work)
        test, labels = grey(mnist["x_test"]), torch.from_numpy(mnist["y_test"]).long()
        work.say("comparing them on the test set, on unfamiliar images and under shift")
        result = evaluate(models, test, labels, unfamiliar=self._unfamiliar())
        work.remember("metrics", lambda: result.rows)
        turned = {angle: evaluate(models, rotated(test[:2000], angle), labels[:2000]) for angle in ANGLES}
        draw(turned, work)
        colour, digits = load_colour(self.data, IMAGES + "mnist_m_test2k.npz")
        shifted = evaluate(models, shrunk(colour), torch.from_numpy(digits))
        return self._page(result, shifted, turned, work)

    def _student(self, teacher: Teacher, batches: Batches, method: Method, name: str, work: Workspace) -> Student:
        torch.manual_seed(stream(self.seed, "student"))
        training = Training(epochs=self.student_epochs, lr=4e-3, seed=self.seed)
        student = distill(teacher, self.network(), batches, method, training, folder=work.folder / "training" / name)
        student.save(work.folder / "students" / name)
        return student

    def _unfamiliar(self) -> dict[str, Tensor]:
        fashion = load_npz(self.data, IMAGES + "fashion_mnist.npz")["x_test"]
        omniglot = load_npz(self.data, IMAGES + "omniglot_28x28.npz")["x"]
        return {"Fashion": grey(fashion), "Omniglot": grey(omniglot)}

    def _page(self, result: Evaluation, shifted: Evaluation, turned: dict[int, Evaluation], work: Workspace) -> str:
        rows, names = result.rows, [name for name in result.rows if name not in PLAIN]
        gaps = {name: 100 * (number(rows["ensemble"], "accuracy") - number(rows[name], "accuracy")) for name in names}
        key, second = "OOD Fashion knowledge", [name for name in names if not name.startswith("EnD ") and name != "EnD"]
        lost = {name: 100 * (number(rows["ensemble"], key) - number(rows[name], key)) for name in second}
        claims = [
            verdict(
                "every student within 0.3 points of the ensemble's accuracy; points lost: "
                + ", ".join(f"{name} {gap:+.2f}" for name, gap in gaps.items()),
                max(gaps.values()) <= 0.3,
            ),
            verdict(
                "AUROC by knowledge on Fashion-MNIST within 3 points of the ensemble's for EnD² or Proxy; points lost: "
                + ", ".join(f"{name} {gap:+.1f}" for name, gap in lost.items()),
                min(lost.values()) <= 3,
            ),
        ]
        wanted = ["accuracy", "NLL", "ECE"]
        moved = [
            [
                name,
                *(display(k, shifted.rows[name][k], result.task) for k in wanted),
                *(display("accuracy", turned[angle].rows[name]["accuracy"], result.task) for angle in ANGLES),
            ]
            for name in rows
        ]
        head = ["model", *(f"MNIST-M {k}" for k in wanted), *(f"{angle}°" for angle in ANGLES)]
        return PAGE.format(
            table=result.markdown(),
            claims="\n".join(claims),
            moved=table(head, moved),
            origin=origin(self, "mnist", work),
            members=self.members,
            images=f"{self.images:,}" if self.images else "all 60,000",
        )


PLAIN = ("single", "ensemble")


def number(row: Row, name: str) -> float:
    """A metric that is sure to be there."""
    value = row[name]
    assert value is not None
    return value


PAGE = """# MNIST

{members} convnets (8 and 16 channels) trained on {images} MNIST images, distilled into one; "+ AUX": with blends of
two training images as unlabelled auxiliary inputs. Accuracy, PRR and OOD AUROC in per cent.

{table}

{claims}

Under shift: digits over photographs (MNIST-M, grey), and accuracy (per cent) after turning the test images.

{moved}

![Accuracy and mean knowledge against the angle](mnist.png)

{origin}
"""


def shrunk(colour: Any) -> Tensor:
    """Grey, and 28 × 28 by averaging."""
    images = torch.from_numpy(colour.astype("float32") / 255).mean(-1, keepdim=True).movedim(-1, 1)
    return torch.nn.functional.interpolate(images, (28, 28), mode="area")


def draw(turned: dict[int, Evaluation], work: Workspace) -> None:
    """Accuracy and mean knowledge as the images turn."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    names = list(next(iter(turned.values())).rows)
    for name in names:
        style = {"linestyle": "--" if "AUX" in name else "-"}
        if name == "ensemble":
            style = {"color": "black", "linewidth": 2.5}
        accuracy = [100 * number(turned[angle].rows[name], "accuracy") for angle in ANGLES]
        left.plot(ANGLES, accuracy, label=name, **style)
        if "knowledge" in turned[0].columns[name]["test"]:
            knowledge = [turned[angle].columns[name]["test"]["knowledge"].mean() for angle in ANGLES]
            right.plot(ANGLES, knowledge, label=name, **style)
    left.set(title="The further they turn, the more is wrong", xlabel="angle in degrees", ylabel="accuracy in per cent")
    right.set(title="... and the less is known", xlabel="angle in degrees", ylabel="mean knowledge uncertainty in nats")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, work.folder / "mnist.png")
