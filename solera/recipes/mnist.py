"""MNIST: ten convnets, their students, and inputs that are unfamiliar or shifted."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches, Views
from solera.data.augment import OneOf, Plain, Shift
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, EnD2, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import blends, grey, load_colour, load_npz, require_files, rotated, shrunk
from solera.recipes.mnist_page import ANGLES, Found, draw, page
from solera.recipes.page import origin, pyplot
from solera.teachers import Teacher, capture
from solera.training import Student, Training, distill

IMAGES = "images/"
FILES = ["mnist.npz", "fashion_mnist.npz", "omniglot_28x28.npz", "mnist_m_test2k.npz"]
STUDENTS: dict[str, Method] = {"EnD": EnD(), "EnD²": EnD2(), "Proxy": ProxyDirichlet()}
HELD = 12  # one in so many training images, the first of them, is shown to no member
SEEN = OneOf(Plain(), Shift(3))  # what students see of an image: half of the times as it is, otherwise shifted
VIEWS = 4  # of every image, in turns
CLIP = 1.0  # of students' gradients
Models = dict[str, Any]


@dataclass(frozen=True)
class Mnist(Recipe):
    """Ten convnets on MNIST, distilled with and without auxiliary inputs; OOD: Fashion-MNIST and Omniglot.

    Students see every image in four views, as it is and shifted. Shift: digits over photographs (MNIST-M) and rotation.
    Auxiliary inputs are blends of two training images. Half an hour on a core.
    """

    data: str = "../shared/data"
    members: int = 10
    epochs: int = 8
    student_epochs: int = 24
    images: int = 0  # use only the first so many training images; 0: all
    resamples: int = 200

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "student_epochs", "resamples"):
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
        every = Batches(x, y, batch_size=256)
        held, train = every.of(torch.arange(len(x) // HELD)), every.of(torch.arange(len(x) // HELD, len(x)))
        work.say(f"training {self.members} convnets on {train.examples} images")
        ensemble = train_ensemble(
            self.network,
            train,
            self.members,
            Training(epochs=self.epochs, lr=4e-3, seed=self.seed),
            folder=work.folder / "ensemble",
        )
        models: Models = {"single": Student(ensemble.models[0], EnD()), "ensemble": ensemble}
        blended = blends(train.all.inputs, train.examples // 2, self.seed)
        kinds = {"": train, " + AUX": train.with_unlabelled(blended, elsewhere=True)}
        for suffix, batches in kinds.items():
            place = work.folder / f"transfer-set{suffix.replace(' + ', '-')}"
            shown = Views(batches, SEEN, VIEWS, self.seed)
            capture(ensemble, shown, place)
            remembered = capture(ensemble, held, place)
            for name, method in STUDENTS.items():
                work.say(f"distilling {name}{suffix}")
                models[name + suffix] = self._student(remembered, shown, held, method, name + suffix, work)
        test, labels = grey(mnist["x_test"]), torch.from_numpy(mnist["y_test"]).long()
        work.say("comparing them on the test set, on unfamiliar images and under shift")
        result = evaluate(models, test, labels, unfamiliar=self._unfamiliar(), resamples=self.resamples)
        result.save(work.folder / "evaluation")
        turned = {angle: evaluate(models, rotated(test[:2000], angle), labels[:2000]) for angle in ANGLES}
        draw(turned, work)
        colour, digits = load_colour(self.data, IMAGES + "mnist_m_test2k.npz")
        shifted = evaluate(models, shrunk(colour), torch.from_numpy(digits))
        return page(self, Found(result, shifted, turned), origin(self, "mnist", work))

    def _student(
        self, teacher: Teacher, shown: Views, held: Batches, method: Method, name: str, work: Workspace
    ) -> Student:
        torch.manual_seed(stream(self.seed, "student"))
        training = Training(epochs=self.student_epochs, lr=4e-3, seed=self.seed, clip=CLIP)
        place = work.folder / "training" / name
        student = distill(teacher, self.network(), shown, method, training, validation=held, folder=place)
        student.save(work.folder / "students" / name)
        return student

    def _unfamiliar(self) -> dict[str, Tensor]:
        fashion = load_npz(self.data, IMAGES + "fashion_mnist.npz")["x_test"]
        omniglot = load_npz(self.data, IMAGES + "omniglot_28x28.npz")["x"]
        return {"Fashion": grey(fashion), "Omniglot": grey(omniglot)}
