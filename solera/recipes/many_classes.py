"""Many classes: Omniglot's characters in four rotations, 4,000 tokens of captions, and who can still be distilled."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, EnD2, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes import next_token
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import grey, load_cifar, load_npz, require_cifar, require_files, shrunk
from solera.recipes.many_classes_page import CLAIMS, CLIP, PUBLISHED, TOKENS_HOW, WITH_AUX, Found, draw, page
from solera.recipes.page import origin, pyplot
from solera.training import Student, Training, distill

OMNIGLOT, FASHION = "images/omniglot_28x28.npz", "images/fashion_mnist.npz"
TURNS, EACH, TEST = 4, 20, 4  # rotations of a character, images of a class, and how many of these are for the test
METHODS: dict[str, Method] = {"EnD": EnD(), "EnD²": EnD2(), "Proxy": ProxyDirichlet(), WITH_AUX: ProxyDirichlet()}
UNFAMILIAR = 2000  # images of each unfamiliar set
CAPTION_EPOCHS, CAPTION_LR = {"members": 4, "student": 6}, 3e-3
LEAST_TOKENS = 300  # 256 bytes, special tokens, and some pairs


@dataclass(frozen=True)
class Characters:
    """Images of the first so many classes, for training and for the test, and alphabets that none of them is from."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    other: Tensor | None  # None where every alphabet is in use


@dataclass(frozen=True)
class Question:
    """Everything about one number of classes but the models."""

    title: str  # and the folder's name
    train: Batches
    held: Batches  # no member sees them: they pick a student's epoch and give its uncertainty its size
    test: tuple[Tensor, Tensor]
    unfamiliar: dict[str, Tensor]
    network: Callable[[], nn.Module]  # of members and students
    training: Callable[[Batches, str], Training]  # by what is seen, and by whom
    photographs: Tensor | None = None  # auxiliary; None: there are no students with them, and no views


@dataclass(frozen=True)
class ManyClasses(Recipe):
    """Omniglot's 242 characters in four rotations: convnets on 60, 242 and 968 classes, and their students.

    EnD, EnD² and the proxy, whose paper says that EnD² fails where there are many classes. Students see shifted images,
    too, and "+ AUX" photographs beside them. The same for networks that tell the next of 4,000 tokens. About an hour.
    """

    data: str = "../shared/data"
    classes: tuple[int, ...] = (60, 242, 968)
    members: int = 5
    epochs: int = 15  # at least, of a member and of a student
    steps: int = 600  # at least, where an epoch is short
    batch_size: int = 128
    lr: float = 4e-3
    tokens: int = 4000  # of captions; 0: only images are asked about
    places: int = 100_000  # in captions, to learn the next token from
    resamples: int = 100  # of the test examples, for the intervals
    judged_on: str = "test"  # or "validation": settings are chosen on validation examples

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "steps", "batch_size", "lr", "places", "resamples"):
            require_positive(name, getattr(self, name))
        if self.judged_on not in ("test", "validation"):
            raise ValueError(f"judged_on must be 'test' or 'validation', got {self.judged_on!r}")
        if not self.classes or min(self.classes) < 2:
            raise ValueError(f"classes must be numbers of at least 2, got {self.classes}: 60,242,968, say")
        if self.tokens and self.tokens < LEAST_TOKENS:
            raise ValueError(f"tokens must be 0 (none) or at least {LEAST_TOKENS}, got {self.tokens}: 4000, say")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [OMNIGLOT, FASHION, *(next_token.FILES if self.tokens else [])])
        require_cifar(self.data, 10)
        pyplot()
        found: Found = {}
        for classes in self.classes:
            ask = partial(self.characters, classes)
            found[f"{classes} classes"] = work.remember(f"{classes}", partial(self._answered, ask, work))
        draw(found, work)
        how = ""
        if self.tokens:
            found[f"{self.tokens:,} tokens"] = work.remember("tokens", partial(self._answered, self.captions, work))
            how = TOKENS_HOW.format(recipe=self, epochs=CAPTION_EPOCHS, rate=CAPTION_LR, size=2 * self.batch_size)
        return page(self, found, how, origin(self, "many-classes", work))

    def _answered(self, ask: Callable[[], Question], work: Workspace) -> dict[str, Any]:
        """Members, students, their rows, and intervals of these and of their differences."""
        question = ask()
        title, train, place = question.title, question.train, work.folder / question.title
        work.say(f"{title}: training {self.members} networks on {train.examples} examples")
        training = question.training(train, "members")
        ensemble = train_ensemble(question.network, train, self.members, training, folder=place / "members")
        models: dict[str, Any] = {"single": Student(ensemble.models[0], EnD()), "ensemble": ensemble}
        for name, method in METHODS.items():
            if name == WITH_AUX and question.photographs is None:
                continue
            work.say(f"{title}: distilling {name}")
            seen = train.with_unlabelled(question.photographs, elsewhere=True) if name == WITH_AUX else train
            torch.manual_seed(stream(self.seed, "student"))
            models[name] = distill(
                ensemble,
                question.network(),
                seen,
                method,
                replace(question.training(seen, "student"), clip=CLIP),
                validation=question.held,
                views=None if question.photographs is None else "auto",
                folder=place / "students" / name,
            )
        models[PUBLISHED] = Student(models["Proxy"].model, ProxyDirichlet(as_published=True))
        held = question.held.all
        x, y = question.test if self.judged_on == "test" else (held.inputs, held.target)
        work.say(f"{title}: comparing them on {len(x)} examples")
        found = evaluate(models, x, y, unfamiliar=question.unfamiliar, resamples=self.resamples)
        return {"examples": [len(train.all), len(held), len(x)], "rows": found.rows, "gaps": gaps(found)}

    def characters(self, classes: int) -> Question:
        """Images of so many classes."""
        found = load(self.data, classes)
        batches = Batches(*found.train, batch_size=self.batch_size)
        train, held = batches.split(TEST / 2 / (EACH - TEST), self.seed)
        far = {"Fashion": grey(load_npz(self.data, FASHION)["x_test"][:UNFAMILIAR])}
        if found.other is not None:
            far["alphabets"] = found.other
        return Question(
            f"{classes}-classes",
            train,
            held,
            found.test,
            far,
            lambda: ConvNet((1, 28, 28), classes, channels=(8, 16, 32), hidden=128),
            self._long,
            shrunk(load_cifar(self.data, 10, "train")[0][: train.examples // 2]),
        )

    def captions(self) -> Question:
        """Places in captions of photographs: which token is the next?"""
        found = next_token.load(self.data, self.tokens, self.places, self.seed)
        train, held = (Batches(*part, batch_size=2 * self.batch_size) for part in (found.train, found.held))
        network = partial(next_token.network, self.tokens)
        return Question("tokens", train, held, found.test, found.unfamiliar, network, self._short)

    def _long(self, batches: Batches, who: str) -> Training:
        epochs = max(self.epochs, -(-self.steps // len(batches)))
        return Training(epochs, self.lr, weight_decay=1e-2, seed=stream(self.seed, who))

    def _short(self, batches: Batches, who: str) -> Training:
        """Captions: after a few epochs members know their places by heart."""
        return Training(CAPTION_EPOCHS[who], CAPTION_LR, weight_decay=1e-2, seed=stream(self.seed, who))


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
    for one, other in sorted({pair for pair, *_ in CLAIMS.values() if set(pair) <= set(found.rows)}):
        result[f"{one} − {other}"] = {}
        for metric in found.rows[one]:
            gap = found.difference(one, other, metric)
            if gap is not None:
                result[f"{one} − {other}"][metric] = [gap.low, gap.value, gap.high]
    return result
