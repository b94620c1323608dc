"""Many classes: Omniglot's characters in four rotations, up to 968 classes, and who can still be distilled."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, EnD2, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import grey, load_cifar, load_npz, require_cifar, require_files, shrunk
from solera.recipes.many_classes_page import CLAIMS, PUBLISHED, WITH_AUX, Found, draw, page
from solera.recipes.page import origin, pyplot
from solera.training import Student, Training, distill

OMNIGLOT, FASHION = "images/omniglot_28x28.npz", "images/fashion_mnist.npz"
TURNS, EACH, TEST = 4, 20, 4  # rotations of a character, images of a class, and how many of these are for the test
METHODS: dict[str, Method] = {"EnD": EnD(), "EnD²": EnD2(), "Proxy": ProxyDirichlet(), WITH_AUX: ProxyDirichlet()}
UNFAMILIAR = 2000  # images of each unfamiliar set


@dataclass(frozen=True)
class Characters:
    """Images of the first so many classes, for training and for the test, and alphabets that none of them is from."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    other: Tensor | None  # None where every alphabet is in use


@dataclass(frozen=True)
class ManyClasses(Recipe):
    """Omniglot's 242 characters in four rotations: convnets on 60, 242 and 968 classes, and their students.

    EnD, EnD² and the proxy, whose paper says that EnD² fails where there are many classes. Students see shifted images,
    too, and "+ AUX" photographs beside them. About 40 minutes.
    """

    data: str = "../shared/data"
    classes: tuple[int, ...] = (60, 242, 968)
    members: int = 5
    epochs: int = 15  # at least, of a member and of a student
    steps: int = 600  # at least, where an epoch is short
    batch_size: int = 128
    lr: float = 4e-3
    resamples: int = 100  # of the test images, for the intervals
    judged_on: str = "test"  # or "validation": settings are chosen on validation images

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "steps", "batch_size", "lr", "resamples"):
            require_positive(name, getattr(self, name))
        if self.judged_on not in ("test", "validation"):
            raise ValueError(f"judged_on must be 'test' or 'validation', got {self.judged_on!r}")
        if not self.classes or min(self.classes) < 2:
            raise ValueError(f"classes must be numbers of at least 2, got {self.classes}: 60,242,968, say")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [OMNIGLOT, FASHION])
        require_cifar(self.data, 10)
        pyplot()
        found: Found = {}
        for classes in self.classes:
            found[str(classes)] = work.remember(f"{classes}", partial(self._one, classes, work))
        draw(found, work)
        return page(self, found, origin(self, "many-classes", work))

    def _one(self, classes: int, work: Workspace) -> dict[str, Any]:
        """Everything about one number of classes: rows, and intervals of them and of their differences."""
        characters = load(self.data, classes)
        work.say(f"{classes} classes: training {self.members} convnets on {len(characters.train[0])} images")
        batches = Batches(*characters.train, batch_size=self.batch_size)
        train, held = batches.split(TEST / 2 / (EACH - TEST), self.seed)
        place, network = work.folder / f"{classes}-classes", partial(self.network, classes)
        ensemble = train_ensemble(
            network, train, self.members, self._training(train, "members"), folder=place / "members"
        )
        models: dict[str, Any] = {"single": Student(ensemble.models[0], EnD()), "ensemble": ensemble}
        photographs = shrunk(load_cifar(self.data, 10, "train")[0][: train.examples // 2])
        for name, method in METHODS.items():
            work.say(f"{classes} classes: distilling {name}")
            seen = train.with_unlabelled(photographs, elsewhere=True) if name == WITH_AUX else train
            torch.manual_seed(stream(self.seed, "student"))
            training, folder = self._training(seen, "student"), place / "students" / name
            models[name] = distill(
                ensemble, network(), seen, method, training, validation=held, views="auto", folder=folder
            )
        models[PUBLISHED] = Student(models["Proxy"].model, ProxyDirichlet(as_published=True))
        x, y = characters.test if self.judged_on == "test" else (held.all.inputs, held.all.target)
        work.say(f"{classes} classes: comparing them on {len(x)} images")
        sets = {"Fashion": grey(load_npz(self.data, FASHION)["x_test"][:UNFAMILIAR])}
        if characters.other is not None:
            sets["alphabets"] = characters.other
        found = evaluate(models, x, y, unfamiliar=sets, resamples=self.resamples)
        return {"images": [len(train.all), len(held.all), len(x)], "rows": found.rows, "gaps": gaps(found)}

    def network(self, classes: int) -> ConvNet:
        """The architecture of members and students."""
        return ConvNet((1, 28, 28), classes, channels=(8, 16, 32), hidden=128)

    def _training(self, batches: Batches, who: str) -> Training:
        epochs = max(self.epochs, -(-self.steps // len(batches)))
        return Training(epochs, self.lr, weight_decay=1e-2, seed=stream(self.seed, who))


def load(folder: str | Path, classes: int) -> Characters:
    """The first so many classes, a character and a rotation each, character by character in four rotations.

    Of every character the last four drawings are for the test, in all their rotations.
    """
    arrays = load_npz(str(folder), OMNIGLOT)
    images, character = grey(arrays["x"]), torch.from_numpy(arrays["character"].astype("int64"))
    alphabet = torch.from_numpy(arrays["alphabet"].astype("int64"))
    count = int(character.max()) + 1
    if classes > TURNS * count:
        raise ValueError(f"{count} characters in {TURNS} rotations are {TURNS * count} classes, not {classes}")
    place = torch.cat([torch.arange(int(n)) for n in character.bincount()])[character.argsort(stable=True).argsort()]
    parts: dict[bool, list[tuple[Tensor, Tensor]]] = {False: [], True: []}
    for turn in range(TURNS):
        label = TURNS * character + turn
        for test in parts:
            rows = (label < classes) & ((place >= EACH - TEST) == test)
            parts[test].append((images[rows].rot90(turn, (-2, -1)), label[rows]))
    train, test = (tuple(torch.cat(side) for side in zip(*part, strict=True)) for part in parts.values())
    unused = ~torch.isin(alphabet, alphabet[TURNS * character < classes])
    other = images[unused]
    thin = other[:: max(1, -(-len(other) // UNFAMILIAR))]
    return Characters(train, test, thin if len(thin) else None)  # type: ignore[arg-type]


def gaps(found: Any) -> dict[str, dict[str, list[float]]]:
    """Paired differences with their 95 % intervals [low, value, high], by "one − other" and metric."""
    result: dict[str, dict[str, list[float]]] = {}
    for one, other in sorted({pair for pair, *_ in CLAIMS.values()}):
        result[f"{one} − {other}"] = {}
        for metric in found.rows[one]:
            gap = found.difference(one, other, metric)
            if gap is not None:
                result[f"{one} − {other}"][metric] = [gap.low, gap.value, gap.high]
    return result
