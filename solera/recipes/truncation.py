"""How few classes may a teacher's memory keep? Students of top-k memories beside those of the whole."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.distributions.base import Prediction
from solera.distributions.summary import TopK
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.evaluation.evaluation import display
from solera.methods import EnD, Method, ProxyDirichlet
from solera.nn import ConvNet
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import grey, load_colour, load_npz, require_files
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.tasks import Classification, Row
from solera.teachers import TransferSet, capture
from solera.teachers.codecs import Codec, DenseCodec, MeanCodec, TopKCodec
from solera.training import Training, distill

Images = tuple[Tensor, Tensor, Tensor, Tensor]  # training images and labels, test images and labels
Scores = dict[str, dict[str, list[Row]]]  # memory -> method -> one row per repeat
Facts = dict[str, dict[str, Any]]  # memory -> its size and tail; "ensemble" -> its scores

FILES = {"MNIST": ["mnist.npz"], "CIFAR-100": ["cifar100_train20k.npz", "cifar100_test5k.npz"]}
KEPT = {"MNIST": (1, 5, 10), "CIFAR-100": (5, 10, 20, 100)}  # the last keeps all classes
METHODS: dict[str, Method] = {"EnD": EnD(), "Proxy": ProxyDirichlet(as_published=True)}
METRICS = ("accuracy", "NLL", "ECE", "ρ knowledge")


@dataclass(frozen=True)
class Truncation(Recipe):
    """MNIST and CIFAR-100: students of an ensemble remembered whole, by its mean, and by its few likeliest classes.

    One small ensemble of convnets per set (images at half their size); EnD and Proxy-Dirichlet students, the same
    seeds for every codec, so that only the memory differs.
    """

    data: str = "../shared/data"
    sets: tuple[str, ...] = ("MNIST", "CIFAR-100")
    members: int = 4
    epochs: tuple[int, ...] = (2, 6)  # for each of the sets, of members and of students alike
    repeats: int = 2  # students differ in initial weights and in the order of the data; the ensemble is one
    images: int = 8_000  # the first so many training images, and test images

    def __post_init__(self) -> None:
        for name in ("members", "images"):
            require_positive(name, getattr(self, name))
        if not self.sets or not set(self.sets) <= set(FILES):
            raise ValueError(f"sets must be among {', '.join(FILES)}, got {self.sets}")
        if len(self.epochs) != len(self.sets):
            raise ValueError(f"there must be one number of epochs for each of {self.sets}, got {self.epochs}")
        if self.repeats < 2:
            raise ValueError(f"seeds must be compared: repeats must be at least 2, got {self.repeats}")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [f"images/{file}" for name in self.sets for file in FILES[name]])
        pyplot()
        found = {name: self._set(name, e, work) for name, e in zip(self.sets, self.epochs, strict=True)}
        draw({name: scores for name, (scores, _) in found.items()}, work)
        sections = [section(name, *parts) for name, parts in found.items()]
        text = PAGE.format(**vars(self))
        return "\n\n".join([text, *sections, origin(self, "truncation", work)]) + "\n"

    def _set(self, name: str, epochs: int, work: Workspace) -> tuple[Scores, Facts]:
        """The students' scores, and what each memory costs and leaves out."""
        x, y, x_test, y_test = load(self.data, name, self.images)
        batches = Batches(x, y, batch_size=64)
        make = partial(ConvNet, tuple(x.shape[1:]), KEPT[name][-1], channels=(16, 32), hidden=128)
        work.say(f"{name}: training {self.members} convnets on {len(x)} images")
        training = Training(epochs=epochs, lr=3e-3, seed=self.seed)
        ensemble = train_ensemble(make, batches, self.members, training, folder=work.folder / name / "ensemble")
        said = ensemble.predict(x_test)
        scores: Scores = {}
        facts: Facts = {"ensemble": score(said, said, x_test, y_test)}
        for title, codec in codecs(name).items():
            memory = capture(ensemble, batches, work.folder / name / title, codec)
            facts[title] = weigh(memory, batches)
            work.say(f"{name}: distilling from {title}, {facts[title]['bytes']:.0f} bytes an image")

            def one(method: Method, repeat: int, memory: TransferSet = memory) -> Row:
                torch.manual_seed(stream(self.seed, "student", repeat))
                training = Training(epochs=epochs, lr=3e-3, seed=stream(self.seed, "repeat", repeat))
                student = distill(memory, make(), batches, method, training)
                return score(student.predict(x_test), said, x_test, y_test)

            scores[title] = {
                known: [
                    work.remember(f"{name}/scores/{title}-{known}-{repeat}", partial(one, method, repeat))
                    for repeat in range(self.repeats)
                ]
                for known, method in METHODS.items()
            }
        return scores, facts


def codecs(name: str) -> dict[str, Codec]:
    """Every way to remember this set's ensemble."""
    few = {f"top-{keep}": TopKCodec(keep) for keep in reversed(KEPT[name])}
    return {"dense": DenseCodec(), "mean": MeanCodec(), **few}


def load(data: str, name: str, limit: int) -> Images:
    """The first so many images for training, and for the test, their sides halved by averaging; standardised."""
    if name == "MNIST":
        arrays = load_npz(data, "images/mnist.npz")
        sides = [(grey(arrays[f"x_{side}"][:limit]), arrays[f"y_{side}"]) for side in ("train", "test")]
    else:
        read = [load_colour(data, f"images/{file}") for file in FILES[name]]
        sides = [(torch.from_numpy(x[:limit].astype(np.float32) / 255).movedim(-1, 1), y) for x, y in read]
    (x, y), (x_test, y_test) = (
        (torch.nn.functional.avg_pool2d(images, 2), torch.from_numpy(labels[:limit]).long()) for images, labels in sides
    )
    return (x - x.mean()) / x.std(), y, (x_test - x.mean()) / x.std(), y_test


def score(said: Prediction, ensemble: Prediction, images: Tensor, labels: Tensor) -> Row:
    """What the tables show of one model's predictions, beside the ensemble's."""
    row = evaluate({"model": {"test": said}, "ensemble": {"test": ensemble}}, images, labels).rows["model"]
    return {name: row[name] for name in METRICS}


def weigh(memory: TransferSet, batches: Batches) -> dict[str, float]:
    """Bytes per image on the disk, and the mass of the classes that are not kept: its mean and its 95th percentile."""
    size = sum(file.stat().st_size for file in memory.path.glob("*.safetensors")) / batches.examples
    said = memory(batches.all)
    tail = said.tail.numpy() if isinstance(said, TopK) else np.zeros(1)
    return {"bytes": size, "tail": float(tail.mean()), "tail, 95 %": float(np.percentile(tail, 95))}


def column(rows: list[Row], metric: str) -> np.ndarray:
    """One metric, along the repeats; NaN where there is none, which no comparison heeds and no plot shows."""
    return np.array([row[metric] for row in rows], dtype=float)


def cell(rows: list[Row], metric: str) -> str:
    """A number with its spread; a dash where there is none."""
    digits, scale = (2, 100) if metric == "accuracy" else (3, 1)
    return "–" if rows[0][metric] is None else spread(column(rows, metric).tolist(), digits, scale)


def change(scores: Scores, codec: str, method: str, metric: str) -> tuple[float, float]:
    """How much worse than from the dense memory, seed by seed; the deviation between seeds, pooled over memories."""
    worse = column(scores[codec][method], metric) - column(scores["dense"][method], metric)
    variances = [column(each[method], metric).var(ddof=1) for each in scores.values()]
    return float(worse.mean()) * (1 if metric in ("NLL", "ECE") else -1), float(np.mean(variances)) ** 0.5


def losses(scores: Scores, codec: str, method: str) -> list[str]:
    """The metrics that are worse than from the dense memory by more than two standard deviations between seeds."""
    found = []
    for metric in METRICS:
        worse, deviation = change(scores, codec, method, metric)
        if worse > 2 * deviation:
            amount = f"{100 * worse:.2f} points" if metric == "accuracy" else f"{worse:.3f}"
            times = f"{worse / deviation:.1f}" if deviation else "infinitely many"
            found.append(f"{metric} by {amount} ({times} deviations)")
    return found


def section(name: str, scores: Scores, facts: Facts) -> str:
    """One set's tables, and when truncation was safe on it."""
    task = Classification()
    rows = [["ensemble", "", "", "", *(display(metric, facts["ensemble"][metric], task) for metric in METRICS)]]
    for codec, each in scores.items():
        known = facts[codec]
        cells = [f"{known['bytes']:.0f}", f"{100 * known['tail']:.1f} ({100 * known['tail, 95 %']:.1f})"]
        rows += [[codec, *cells, method, *(cell(row, metric) for metric in METRICS)] for method, row in each.items()]
    head = ["memory", "bytes per image", "tail, % (95th percentile)", "student", *METRICS]
    claims = []
    for codec in list(scores)[1:]:
        lost = {method: losses(scores, codec, method) for method in METHODS}
        what = "; ".join(f"{method} loses {', '.join(each)}" for method, each in lost.items() if each)
        claims.append(verdict(f"{codec} is as good as dense{': ' + what if what else ''}", not what))
    return f"## {name}\n\n{table(head, rows)}\n\n" + "\n".join(claims) + f"\n\n{answer(name, scores, facts)}"


def answer(name: str, scores: Scores, facts: Facts) -> str:
    """When truncation was safe here, in a few sentences made from the numbers."""
    *some, everything = KEPT[name]
    whole = [(codec, method) for codec in ("mean", f"top-{everything}") for method in METHODS]
    points, nats = (max(abs(change(scores, *pair, metric)[0]) for pair in whole) for metric in ("accuracy", "NLL"))
    noise = f"up to {100 * points:.2f} points of accuracy and {nats:.3f} of NLL away from dense's: that much is noise."
    said = [f"Controls: mean and top-{everything} leave nothing out, yet their students are {noise}"]
    for method in METHODS:
        safe = [keep for keep in some if not any(losses(scores, f"top-{k}", method) for k in some if k >= keep)]
        if safe:
            fact = facts[f"top-{safe[0]}"]
            said.append(
                f"For {method}, {safe[0]} of {everything} classes were enough: {100 * fact['tail']:.1f} % of the mass "
                f"was left out on average (of one image in twenty, {100 * fact['tail, 95 %']:.1f} % or more), and an "
                f"image took {fact['bytes']:.0f} bytes instead of {facts['dense']['bytes']:.0f}."
            )
        said += [] if safe else [f"For {method}, no truncation here was without loss."]
    return " ".join(said)


def draw(found: dict[str, Scores], work: Workspace) -> None:
    """Each metric against the number of classes kept; the band is the dense memory."""
    plt = pyplot()
    size = (14, 3.4 * len(found))
    figure, grid = plt.subplots(len(found), len(METRICS), figsize=size, layout="constrained", squeeze=False)
    for (name, scores), line in zip(found.items(), grid, strict=True):
        for metric, axes in zip(METRICS, line, strict=True):
            for method, colour in COLOURS.items():
                values = [column(scores[f"top-{keep}"][method], metric) for keep in KEPT[name]]
                dense, scale = column(scores["dense"][method], metric), 100 if metric == "accuracy" else 1
                middle, width = scale * dense.mean(), scale * dense.std(ddof=1)
                axes.axhspan(middle - width, middle + width, color=colour, alpha=0.15, linewidth=0)
                axes.axhline(middle, color=colour, linestyle="--", linewidth=1, label=f"{method}, dense")
                means, deviations = ([scale * f(v) for v in values] for f in (np.mean, lambda v: v.std(ddof=1)))
                look = {"color": colour, "marker": "o", "capsize": 3, "label": f"{method}, top-k"}
                axes.errorbar(KEPT[name], means, deviations, **look)
            axes.set_xscale("log")
            axes.set_xticks(KEPT[name], [str(keep) for keep in KEPT[name]])
            axes.minorticks_off()
            axes.set(title=f"{name}: {metric}{', %' if metric == 'accuracy' else ''}", xlabel="classes kept")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, work.folder / "truncation.png")
    plt.close(figure)


COLOURS = {"EnD": "#d95f02", "Proxy": "#1b6ca8"}

PAGE = """# Truncation

How few classes may the memory of an ensemble keep? {members} small convnets per set, trained on {images:,} images at
half their size, are remembered whole (`dense`: every member), by their mean (`mean`), and by the mean's k likeliest
classes (`top-k`: of the rest, only its mass). From each memory, EnD and Proxy-Dirichlet students with the same
{repeats} seeds; mean and standard deviation over the seeds; the ensemble is one. EnD counts the tail as one event,
Proxy-Dirichlet spreads it evenly over the classes that were not kept. Every memory holds the knowledge uncertainty as
it was over all classes; ρ knowledge is the rank correlation of a student's with the ensemble's on the test images.
The images' number, batches and standardising were set after a first try with 12 % on CIFAR-100's test images.

![Metrics against the number of classes kept](truncation.png)

"As good as dense" means: no metric worse than from the dense memory, seed by seed, by more than two standard deviations
between seeds (pooled over the memories)."""
