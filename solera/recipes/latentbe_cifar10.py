"""LatentBE on CIFAR-10: students of four networks, merged or not, with and without perturbed inputs."""

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from solera import metrics
from solera.calibration import calibrated_ece, calibrated_nll
from solera.core.seeds import generator, stream
from solera.data import Augmented, Batches
from solera.distributions import Mixture
from solera.ensembles import train_ensemble
from solera.evaluation.stream import Predictor
from solera.methods import AEKD, BatchEnsemble, EnD, LatentBE, Method, ProxyDirichlet
from solera.nn import WideResNet
from solera.perturbations import ConfODS, Perturbation, TDivSDiv
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import colour, load_cifar, load_colour, require_cifar, require_files
from solera.recipes.images import CORRUPTIONS, SEVERITIES, augmented, channels_last, corrupted
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.teachers import Ensemble
from solera.training import Student, Training, distill
from solera.training.loop import Watch

Size = Literal["quick", "laptop", "paper"]
Sets = dict[str, tuple[Tensor, Tensor | None]]  # images and, where there are any, labels
Numbers = dict[str, Any]  # a model's metrics
Found = dict[str, list[Numbers]]  # model -> one for each repeat


@dataclass(frozen=True)
class Scale:
    """What a study costs."""

    depth: int
    width: int
    side: int  # of the images: 32, or fewer pixels by averaging
    images: int  # for training; 0: all but those for validation
    validation: int  # images that find the temperature of the calibrated metrics
    epochs: int  # of members and of students
    batch_size: int
    lr: float  # at its peak
    warm_up: float
    repeats: int  # whole studies, each with its own four networks
    corrupted: int  # test images under each corruption at each severity; 0: all
    without: tuple[str, ...] = ()  # students left out


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


WAYS = {
    "KD": Way(EnD(temperature=4.0)),
    "AE-KD": Way(AEKD(temperature=4.0)),
    "Proxy-EnD²": Way(ProxyDirichlet(as_published=True)),
    "LatentBE": Way(Subnetworks()),
    "LatentBE + ConfODS": Way(Subnetworks(), ConfODS(temperature=4.0)),
    "LatentBE + TDiv−SDiv": Way(Subnetworks(), TDivSDiv()),
    "BE": Way(BatchEnsemble(temperature=4.0)),
    "BE + ConfODS": Way(BatchEnsemble(temperature=4.0), ConfODS(temperature=4.0)),
    "BE + TDiv−SDiv": Way(BatchEnsemble(temperature=4.0), TDivSDiv()),
}
MEMBERS = 4
SCORES = ("ACC", "NLL", "ECE", "cNLL", "cECE")


@dataclass(frozen=True)
class LatentbeCifar10(Recipe):
    """The weight-averaging paper's Tables 2 and 4 and Figure 5: KD, AE-KD, Proxy-EnD², LatentBE and BatchEnsemble.

    scale=quick takes minutes; laptop, over an hour on one core, shrinks the images to 16×16 and takes 4,000 of them;
    paper is the paper's own (WRN-28-1, 200 epochs, four seeds), for a GPU.
    """

    data: str = "../shared/data"
    scale: Size = "laptop"

    name: ClassVar[str] = "latentbe-cifar10"
    classes: ClassVar[int] = 10
    other: ClassVar[int] = 100  # the CIFAR that is unfamiliar
    scales: ClassVar[dict[str, Scale]] = {
        "quick": Scale(10, 1, 16, 1_000, 500, 6, 32, 0.05, 0.3, 2, 10),
        "laptop": Scale(10, 1, 16, 4_000, 2_000, 15, 64, 0.05, 0.3, 3, 100, without=("BE + ConfODS",)),
        "paper": Scale(28, 1, 32, 0, 5_000, 200, 128, 0.1, 0.025, 4, 0),
    }
    # ACC, NLL, ECE, cNLL, cECE of students from DE-4 (Table 2), and ACC, NLL, ECE under corruption (Table 4)
    paper: ClassVar[dict[str, str]] = {
        "KD": "93.70 / 0.270 / 0.042 / 0.201 / 0.011",
        "AE-KD": "93.67 / 0.278 / 0.042 / 0.205 / 0.010",
        "Proxy-EnD²": "93.67 / 0.270 / 0.042 / 0.200 / 0.011",
        "LatentBE": "93.98 / 0.263 / 0.041 / 0.194 / 0.011",
        "LatentBE + ConfODS": "93.95 / 0.223 / 0.032 / 0.186 / 0.008",
        "LatentBE + TDiv−SDiv": "93.95 / 0.205 / 0.028 / 0.181 / 0.008",
        "BE": "93.77 / 0.275 / 0.043 / 0.201 / 0.011",
        "BE + ConfODS": "94.06 / 0.223 / 0.031 / 0.188 / 0.006",
        "BE + TDiv−SDiv": "93.74 / 0.213 / 0.028 / 0.189 / 0.006",
    }
    paper_corrupted: ClassVar[dict[str, str]] = {
        "DE-4": "73.18 / 1.025 / 0.092",
        "KD": "72.49 / 1.492 / 0.202",
        "AE-KD": "72.06 / 1.540 / 0.207",
        "Proxy-EnD²": "71.05 / 1.600 / 0.217",
        "LatentBE": "72.73 / 1.522 / 0.203",
        "LatentBE + ConfODS": "70.18 / 1.477 / 0.200",
        "LatentBE + TDiv−SDiv": "73.22 / 1.237 / 0.171",
    }
    paper_time: ClassVar[dict[str, str]] = {}

    @property
    def at(self) -> Scale:
        """The settings of this scale."""
        return self.scales[self.scale]

    def run(self, work: Workspace) -> str:
        for classes in (self.classes, self.other):
            require_cifar(self.data, classes)
        require_files(self.data, ["images/gtsrb_test2k_32x32.npz"])
        pyplot()
        x, y, *held = self.parts()
        sets = self._sets() | {"validation": (held[0], held[1])}
        batches, found = Batches(x, y, batch_size=self.at.batch_size), Found()
        for repeat in range(self.at.repeats):
            for model, numbers in self._study(repeat, batches, sets, work).items():
                found.setdefault(model, []).append(numbers)
        draw(self, found, work)
        return page(self, found, work)

    def training(self, seed: int) -> Training:
        """As in the paper's appendix B.2, for members and students."""
        return Training(
            epochs=self.at.epochs, lr=self.at.lr, optimizer="sgd", weight_decay=5e-4, warm_up=self.at.warm_up, seed=seed
        )

    def network(self) -> WideResNet:
        """The architecture of members and students."""
        shape = (3, self.at.side, self.at.side)
        return channels_last(WideResNet(self.at.depth, self.at.width, shape, self.classes))

    def augment(self, images: Tensor, random: torch.Generator) -> Tensor:
        """Shifted by up to an eighth of the side, and flipped."""
        seen = augmented(images, random, pixels=self.at.side // 8, degrees=0.0)
        return seen.contiguous(memory_format=torch.channels_last)

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Images and labels for training, then for validation; the data's order is shuffled once and for all."""
        images, labels = load_cifar(self.data, self.classes, "train")
        order = torch.randperm(len(labels), generator=generator(0, "parts"))
        end = len(labels) - self.at.validation
        train, held = order[: min(self.at.images or end, end)].numpy(), order[end:].numpy()
        x = [colour(images[rows], self.at.side) for rows in (train, held)]
        y = [torch.from_numpy(labels[rows]) for rows in (train, held)]
        return x[0], y[0], x[1], y[1]

    def ensemble(self, members: int, batches: Batches, repeat: int, work: Workspace) -> Ensemble:
        """The networks of one study."""
        work.say(f"{repeat + 1} of {self.at.repeats}: training {members} networks on {batches.examples} images")
        folder = work.folder / f"repeat-{repeat}" / "ensemble"
        return train_ensemble(
            self.network, batches, members, self.training(self.seed_of(repeat)), folder=folder, augment=self.augment
        )

    def seed_of(self, repeat: int) -> int:
        """Of a whole study."""
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
            ensemble,
            self.network(),
            Augmented(batches, self.augment, seed),
            way.method,
            self.training(stream(seed, "distil")),
            perturbation=way.perturbation,
            watch=watch,
            folder=work.folder / f"repeat-{repeat}" / name,
        )

    def _study(self, repeat: int, batches: Batches, sets: Sets, work: Workspace) -> dict[str, Numbers]:
        """Four networks and all their students."""
        start = time.process_time()
        ensemble = self.ensemble(MEMBERS, batches, repeat, work)
        seconds = time.process_time() - start
        found: dict[str, Numbers] = {}

        def keep(name: str, model: Predictor, trained: float | None) -> None:
            found[name] = work.remember(f"{repeat} {name}", lambda: {**measure(model, sets), "training": trained})

        keep("one member", Student(ensemble.models[0], EnD()), seconds / MEMBERS)
        keep("DE-4", ensemble, seconds)
        for name, way in WAYS.items():
            if name in self.at.without:
                continue
            start = time.process_time()
            student = self.student(ensemble, batches, name, way, repeat, work)
            trained = time.process_time() - start
            if isinstance(way.method, Subnetworks):
                together = f"{name}, subnetworks"
                keep(together, Student(student.model, BatchEnsemble()), None)
                found[together] |= work.remember(f"{repeat} {name}, each", lambda s=student: apart(s, *sets["test"]))
                student = Student(LatentBE().finalize(student.model).eval(), LatentBE())
            keep(name, student, trained)
        return found

    def _sets(self) -> Sets:
        """Test images, the same corrupted in every way, and two kinds of unfamiliar images."""
        images, labels = load_cifar(self.data, self.classes, "test")
        sets: Sets = {"test": (colour(images, self.at.side), torch.from_numpy(labels))}
        count = self.at.corrupted or len(images)
        whole, marked = colour(images[:count]), torch.from_numpy(labels[:count])
        for corruption in CORRUPTIONS:
            for severity in SEVERITIES:
                spoilt = corrupted(whole, corruption, severity)
                small = torch.nn.functional.avg_pool2d(spoilt, 32 // self.at.side)
                sets[f"{corruption.__name__} {severity}"] = small, marked
        unfamiliar = load_cifar(self.data, self.other, "test")[0]
        sets[f"CIFAR-{self.other}"] = colour(unfamiliar[:2000], self.at.side), None
        sets["GTSRB"] = colour(load_colour(self.data, "images/gtsrb_test2k_32x32.npz")[0], self.at.side), None
        return sets


def measure(model: Predictor, sets: Sets) -> Numbers:
    """Scores as they are and after temperature scaling, means under corruption, entropies, and time per image."""
    said = {name: model.predict(images).mean.double().numpy() for name, (images, _) in sets.items()}
    labels = {name: y.numpy() for name, (_, y) in sets.items() if y is not None}

    def scores(name: str) -> Numbers:
        probs, y = said[name], labels[name]
        return {"ACC": 100 * metrics.accuracy(probs, y), "NLL": metrics.nll(probs, y), "ECE": metrics.ece(probs, y)}

    with np.errstate(divide="ignore"):
        logits = {name: np.log(said[name]) for name in ("validation", "test")}
    calibrated = logits["validation"], labels["validation"], logits["test"], labels["test"]
    found: Numbers = {
        **scores("test"),
        "cNLL": calibrated_nll(*calibrated),
        "cECE": calibrated_ece(*calibrated),
    }
    spoilt = [scores(name) for name in labels if name not in ("test", "validation")]
    found["corrupted"] = {key: float(np.mean([row[key] for row in spoilt])) for key in spoilt[0]}
    entropies = {name: entropy(said[name]) for name in ("test", *(set(sets) - set(labels)))}
    edges = np.linspace(0, np.log(said["test"].shape[-1]), 31)
    found["histogram"] = {name: (np.histogram(e, edges)[0] / len(e)).tolist() for name, e in entropies.items()}
    found["AUROC"] = {
        name: metrics.auroc(np.concatenate([entropies["test"], e]), np.repeat([0, 1], [len(entropies["test"]), len(e)]))
        for name, e in entropies.items()
        if name != "test"
    }
    start = time.process_time()
    model.predict(sets["test"][0][:1024])
    found["ms/image"] = 1e3 * (time.process_time() - start) / 1024
    return found


@torch.no_grad()
def apart(student: Student, images: Tensor, labels: Tensor | None) -> Numbers:
    """The subnetworks' NLL, each by itself, on average."""
    assert labels is not None
    said = Student(student.model, BatchEnsemble()).predict(images)
    assert isinstance(said, Mixture)
    each = said.members.log_prob(labels.unsqueeze(-1).expand(-1, MEMBERS))
    return {"NLL of each": float(-each.double().mean())}


def entropy(probs: np.ndarray) -> np.ndarray:
    """Of each row, in nats."""
    return -np.where(probs > 0, probs * np.log(np.where(probs > 0, probs, 1)), 0).sum(-1)


def compared(found: Found, one: str, other: str, key: str) -> tuple[str, bool]:
    """`one`'s metric less `other`'s in the same repeat: in words, and whether it is not above on average.

    The key "NLL of each" compares `one`'s NLL with that of `other`'s subnetworks, each by itself.
    """
    own = "NLL" if key == "NLL of each" else key
    differences = [a[own] - b[key] for a, b in zip(found[one], found[other], strict=True)]
    below = sum(d <= 0 for d in differences)
    words = f"{spread(differences, 4)}, so in {below} of {len(differences)} studies"
    return words, float(np.mean(differences)) <= 0


def claims(found: Found) -> str:
    """The paper's orderings, and whether they came out here."""
    best, merged = "LatentBE + TDiv−SDiv", ("LatentBE", "LatentBE, subnetworks")
    wanted = [
        ("KD's NLL is no higher than one member's", "KD", "one member", "NLL"),
        ("LatentBE's NLL is no higher than KD's", "LatentBE", "KD", "NLL"),
        ("LatentBE's calibrated NLL is no higher than KD's", "LatentBE", "KD", "cNLL"),
        ("TDiv−SDiv lowers LatentBE's NLL", best, "LatentBE", "NLL"),
        ("TDiv−SDiv lowers LatentBE's ECE", best, "LatentBE", "ECE"),
        ("TDiv−SDiv lowers LatentBE's calibrated NLL", best, "LatentBE", "cNLL"),
        ("TDiv−SDiv does better than ConfODS in NLL", best, "LatentBE + ConfODS", "NLL"),
        ("the merged network's NLL is no higher than its subnetworks', each by itself", *merged, "NLL of each"),
        ("with TDiv−SDiv too", best, f"{best}, subnetworks", "NLL of each"),
        ("and no higher than that of their mean prediction, which costs four times as much", *merged, "NLL"),
        ("LatentBE's NLL, for one network's cost, is no higher than BatchEnsemble's", "LatentBE", "BE", "NLL"),
    ]
    bullets = []
    for claim, one, other, key in wanted:
        words, held = compared(found, one, other, key)
        bullets.append(verdict(f"{claim}: {words}", held))
    return "\n".join(bullets)


def page(recipe: LatentbeCifar10, found: Found, work: Workspace) -> str:
    """The paper's tables beside ours, and what held."""

    def cell(name: str, key: str, digits: int, inside: str | None = None) -> str:
        values = [(row[inside] if inside else row)[key] for row in found[name]]
        return "–" if values[0] is None else spread(values, digits)

    shown = [name for name in found if not name.endswith("subnetworks")]
    digits = {"ACC": 2}
    scores = [
        [name, *(cell(name, key, digits.get(key, 3)) for key in SCORES), recipe.paper.get(name, "–")] for name in found
    ]
    spoilt = [
        [
            name,
            *(cell(name, key, digits.get(key, 3), "corrupted") for key in ("ACC", "NLL", "ECE")),
            recipe.paper_corrupted.get(name, "–"),
        ]
        for name in shown
    ]
    unfamiliar = sorted(found["KD"][0]["AUROC"])
    told = [[name, *(cell(name, key, 3, "AUROC") for key in unfamiliar)] for name in shown]
    times = [
        [name, cell(name, "training", 0), cell(name, "ms/image", 3), recipe.paper_time.get(name, "–")] for name in shown
    ]
    at, kind = recipe.at, f"CIFAR-{recipe.classes}"
    images = f"{at.images:,}" if at.images else "all"
    return PAGE.format(
        kind=kind,
        at=at,
        images=images,
        name=recipe.name,
        number=2 if recipe.classes == 10 else 3,
        averaged="" if at.side == 32 else f", averaged to {at.side}×{at.side}",
        scores=table(["model", "ACC %", *SCORES[1:], "paper: " + " / ".join(SCORES)], scores),
        claims=claims(found),
        spoilt_images=f"the first {at.corrupted}" if at.corrupted else "all",
        spoilt=table(["model", "ACC %", "NLL", "ECE", "paper: ACC / NLL / ECE"], spoilt),
        told=table(["model", *unfamiliar], told),
        times=table(["model", "training, CPU seconds", "inference, CPU ms an image", "paper (WRN-28-4)"], times),
        origin=origin(recipe, recipe.name, work),
    )


def draw(recipe: LatentbeCifar10, found: Found, work: Workspace) -> None:
    """Histograms of the predictive entropy, in and out of distribution (the paper's Figures 5 and 6)."""
    chosen = ["DE-4", "KD", "Proxy-EnD²", "LatentBE", "LatentBE + ConfODS", "LatentBE + TDiv−SDiv"]
    unfamiliar = sorted(found["KD"][0]["AUROC"])
    figure, rows = pyplot().subplots(
        len(unfamiliar), len(chosen), figsize=(16, 5.4), layout="constrained", sharex=True, sharey=True
    )
    edges = np.linspace(0, np.log(recipe.classes), 31)
    for row, other in zip(rows, unfamiliar, strict=True):
        for axes, name in zip(row, chosen, strict=True):
            for kind, colour_of in (("test", "C0"), (other, "C3")):
                share = np.mean([numbers["histogram"][kind] for numbers in found[name]], 0)
                label = f"CIFAR-{recipe.classes} test" if kind == "test" else other
                axes.stairs(100 * share, edges, fill=True, alpha=0.45, color=colour_of, label=label)
            axes.set_title(name if other == unfamiliar[0] else "", fontsize=10)
        row[0].set_ylabel("% of images")
        row[-1].legend(frameon=False, fontsize=8)
    for axes in rows[-1]:
        axes.set_xlabel("predictive entropy, nats")
    save_figure(figure, work.folder / f"{recipe.name}.png")


PAGE = """# LatentBE on {kind}

Four WRN-{at.depth}-{at.width} trained on {images} images{averaged}, for {at.epochs} epochs (SGD with Nesterov momentum,
peak rate {at.lr}, batches of {at.batch_size}, weight decay 5·10⁻⁴, shifts and flips), and students of the same
architecture, trained as long, at temperature 4 without labels. Mean ± sample standard deviation over {at.repeats}
studies, each with its own four networks. Images stay in [0, 1]; the paper standardizes them.

## Test images (the paper's Table {number})

{scores}

"subnetworks": the mean prediction of LatentBE's subnetworks before they are merged, at four times the cost.
cNLL and cECE: after temperature scaling on {at.validation:,} held-out images.

{claims}

## Corrupted images (Table 4)

Mean over 17 corruptions at 5 severities of {spoilt_images} test images, written here in the manner of CIFAR-C (not the
published files).

{spoilt}

## Unfamiliar images

AUROC of telling them from test images by predictive entropy; SVHN, LSUN and TinyImageNet of the paper are not at hand.

{told}

![Histograms of the predictive entropy]({name}.png)

## Run time (Table 5)

{times}

CPU time of one process; the paper's hours and milliseconds are of a GPU.

{origin}
"""
