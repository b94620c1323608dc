"""Studies of LatentBE on CIFAR: their settings, networks and students, trained as in the weight-averaging paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from solera.core.hardware import multiplies_bfloat16
from solera.core.seeds import generator, stream
from solera.data import Augmented, Batches
from solera.data.batch import UNLABELLED
from solera.distributions import Mixture
from solera.ensembles import train_ensemble
from solera.methods import LatentBE, Method
from solera.nn import WideResNet
from solera.perturbations import Perturbation
from solera.recipes.base import Workspace
from solera.recipes.data import colour, load_cifar
from solera.recipes.images import augmented, channels_last
from solera.teachers import Ensemble
from solera.teachers.ensemble import AskedIn
from solera.training import Student, Training, distill
from solera.training.loop import Watch

Size = Literal["laptop", "paper"]
Sets = dict[str, tuple[Tensor, Tensor | None]]  # images and, where there are any, labels
MEMBERS = 4


@dataclass(frozen=True)
class Scale:
    """What a study costs."""

    depth: int
    width: int
    images: int  # with labels, for the members; 0: all but those for validation
    validation: int  # images that find the temperature of the calibrated metrics
    epochs: int  # of members
    student_epochs: int
    batch_size: int
    lr: float  # at its peak
    warm_up: float
    repeats: int  # whole studies, each with its own networks
    corrupted: int  # test images under each corruption at each severity; 0: all
    stride: int = 1  # of the first convolution
    precision: Literal["auto", "bf16-mixed"] = "auto"  # of training; "bf16-mixed": of the members as teachers, too
    unlabelled: bool = True  # whether all other training images are there for the students, without labels
    without: tuple[str, ...] = ()  # students left out
    chosen: str = "as in the paper"  # how the number of the students' epochs was

    @property
    def networks(self) -> str:
        """What they are called."""
        whole = f"WRN-{self.depth}-{self.width}"
        return whole if self.stride == 1 else f"{whole} with a first convolution of stride {self.stride}"

    @property
    def asked_in(self) -> AskedIn:
        """The precision in which members answer students."""
        return "bf16-mixed" if self.precision == "bf16-mixed" else "32-true"


LAPTOP = Scale(
    depth=10,
    width=1,
    images=5_000,
    validation=2_000,
    epochs=24,
    student_epochs=12,
    batch_size=64,
    lr=0.1,
    warm_up=0.3,
    repeats=3,
    corrupted=100,
    stride=2,
    precision="bf16-mixed" if multiplies_bfloat16() else "auto",
    without=("BE + ConfODS", "BE + TDiv−SDiv"),
    chosen="by KD's NLL on CIFAR-10's held-out images: 1.079, 1.031 and 0.990 after 4, 8 and 12 epochs, where members "
    "had 1.017 to 1.059; 16 would have gained 0.002 more",
)
PAPER_SCALE = Scale(  # its appendix B.2
    depth=28,
    width=4,
    images=0,
    validation=5_000,
    epochs=200,
    student_epochs=200,
    batch_size=128,
    lr=0.1,
    warm_up=0.025,
    repeats=4,
    corrupted=0,
    unlabelled=False,
)


@dataclass(frozen=True)
class Setting:
    """A data set, what a study of it costs at each scale, and what the paper found."""

    name: str  # of the recipe
    classes: int
    scales: Mapping[str, Scale]
    other: int = 0  # the classes of the CIFAR that is unfamiliar
    paper: Mapping[str, str] = field(default_factory=dict)  # ACC, NLL, ECE, cNLL, cECE of students from DE-4
    paper_corrupted: Mapping[str, str] = field(default_factory=dict)  # ACC, NLL, ECE under corruption (Table 4)
    paper_tiny: Mapping[str, str] = field(default_factory=dict)  # ACC, NLL, ECE on TinyImageNet (Table 6)
    paper_time: Mapping[str, str] = field(default_factory=dict)  # hours of training, milliseconds an image (Table 5)


@dataclass(frozen=True)
class Way:
    """One way to make a student."""

    method: Method
    perturbation: Perturbation | None = None


class Subnetworks(LatentBE):
    """LatentBE up to the last step: what is returned are the subnetworks, to be measured beside the merged network."""

    def finalize(self, student: Any) -> Any:
        return student

    def predict(self, output: Tensor) -> Mixture:
        return self.predict_in_training(output)


@dataclass(frozen=True)
class Parts:
    """Training images: with labels, for the members; all that students see; and for validation."""

    labelled: Batches
    seen: Batches
    held: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Study:
    """The images, networks and students of a study; `repeat` tells its repetitions apart."""

    data: str
    classes: int
    at: Scale
    seed: int

    def training(self, epochs: int, seed: int) -> Training:
        """As in the paper's appendix B.2, for members and students."""
        at = self.at
        return Training(
            epochs=epochs,
            lr=at.lr,
            optimizer="sgd",
            weight_decay=5e-4,
            warm_up=at.warm_up,
            seed=seed,
            precision=at.precision,
        )

    def network(self) -> WideResNet:
        """The architecture of members and students."""
        at = self.at
        return channels_last(WideResNet(at.depth, at.width, (3, 32, 32), self.classes, stride=at.stride))

    def augment(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Shifted by up to four pixels, and flipped."""
        seen = augmented(images, random, degrees=0.0)
        return seen.contiguous(memory_format=torch.channels_last)

    def parts(self) -> Parts:
        """The training images, whose order is shuffled once and for all, by who sees them."""
        images, labels = load_cifar(self.data, self.classes, "train")
        order = torch.randperm(len(labels), generator=generator(0, "parts"))
        end = len(labels) - self.at.validation
        own = min(self.at.images or end, end)
        seen, held = order[:end].numpy(), order[end:].numpy()
        given = torch.from_numpy(labels[seen]).clone()
        given[own:] = UNLABELLED
        every = Batches(colour(images[seen]), given, batch_size=self.at.batch_size)
        labelled = every.of(torch.arange(own))
        return Parts(
            labelled,
            every if self.at.unlabelled else labelled,
            (colour(images[held]), torch.from_numpy(labels[held])),
        )

    def ensemble(self, members: int, batches: Batches, repeat: int, work: Workspace) -> Ensemble:
        """The networks of one repetition."""
        work.say(f"{repeat + 1} of {self.at.repeats}: training {members} networks on {batches.examples} images")
        folder = work.folder / f"repeat-{repeat}" / "ensemble"
        return train_ensemble(
            self.network,
            batches,
            members,
            self.training(self.at.epochs, self.seed_of(repeat)),
            folder=folder,
            augment=self.augment,
        )

    def seed_of(self, repeat: int) -> int:
        """Of a whole repetition."""
        return stream(self.seed, "repeat", repeat)

    def student(
        self,
        ensemble: Ensemble,
        batches: Batches,
        name: str,
        way: Way,
        repeat: int,
        work: Workspace,
        watch: Watch | None = None,
    ) -> Student:
        """One student of them."""
        work.say(f"{repeat + 1} of {self.at.repeats}: distilling {name}")
        seed = self.seed_of(repeat)
        torch.manual_seed(stream(seed, "student"))
        return distill(
            Ensemble(list(ensemble.models), precision=self.at.asked_in),
            self.network(),
            Augmented(batches, self.augment, seed),
            way.method,
            self.training(self.at.student_epochs, stream(seed, "distil")),
            perturbation=way.perturbation,
            watch=watch,
            folder=work.folder / f"repeat-{repeat}" / name,
        )
