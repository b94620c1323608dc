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
from solera.recipes.page import COLOURS, judged_cell, origin, over_repeats, pyplot, save_figure, spread, table
from solera.tasks import Classification, Row
from solera.teachers import TransferSet, capture
from solera.teachers.codecs import Codec, DenseCodec, MeanCodec, TopKCodec
from solera.training import Training, distill

Images = tuple[Tensor, Tensor, Tensor, Tensor]  # training images and labels, test images and labels
Scores = dict[str, dict[str, list[Row]]]  # memory -> method -> one row per repeat
Facts = dict[str, dict[str, Any]]  # memory -> its size and tail; "ensemble" -> its scores

FILES = {"MNIST": ["mnist.npz"], "CIFAR-100": ["cifar100_train20k.npz", "cifar100_test5k.npz"]}
KEPT = {"MNIST": (1, 5, 10), "CIFAR-100": (5, 10, 20, 100)}  # the last keeps all classes
METHODS: dict[str, Method] = {"EnD": EnD(), "Proxy": ProxyDirichlet()}
METRICS = ("accuracy", "NLL", "ECE", "ρ knowledge")
ALLOWED = {"accuracy": 0.005, "NLL": 0.01}  # as good as dense: half a point less, a hundredth of the NLL more


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
    repeats: int = 5  # students differ in initial weights and in the order of the data; the ensemble is one
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
        return PAGE.format(
            **vars(self),
            answer=" ".join(answer(name, *parts) for name, parts in found.items()),
            claims="\n\n".join(claims(name, scores) for name, (scores, _) in found.items()),
            sections="\n\n".join(section(name, *parts) for name, parts in found.items()),
            made=origin(self, "truncation", work),
        )

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


def gained(scores: Scores, codec: str, method: str, metric: str) -> tuple[float, float, float]:
    """How much better than from the dense memory, seed by seed, between the ends of its interval; NLL as a share."""
    own, dense = (column(scores[each][method], metric) for each in (codec, "dense"))
    return over_repeats((own - dense if metric == "accuracy" else 1 - own / dense).tolist())


def as_good(scores: Scores, codec: str, method: str) -> bool:
    """Surely, in every metric that counts."""
    return all(gained(scores, codec, method, metric)[0] > -allowed for metric, allowed in ALLOWED.items())


def claims(name: str, scores: Scores) -> str:
    """Whether students of each memory are as good as those of the dense one."""
    pairs, rows = [(method, metric) for method in METHODS for metric in ALLOWED], []
    for codec in list(scores)[1:]:
        cells = [judged_cell(*gained(scores, codec, *pair), -ALLOWED[pair[1]], 100, 2) for pair in pairs]
        rows.append([codec, *cells])
    return table([name, *(": ".join(pair) for pair in pairs)], rows)


def answer(name: str, scores: Scores, facts: Facts) -> str:
    """What was enough to remember here: the mean, and how few classes."""
    *some, everything = KEPT[name]
    whole = facts["dense"]["bytes"]
    enough = all(as_good(scores, "mean", method) for method in METHODS)
    said = [f"the mean alone is {'' if enough else 'not '}surely enough ({facts['mean']['bytes']:.0f} bytes an image; "
            f"every member's answer {whole:.0f})"]  # fmt: skip
    for method in METHODS:
        safe = [keep for keep in some if all(as_good(scores, f"top-{k}", method) for k in some if k >= keep)]
        if safe:
            fact = facts[f"top-{safe[0]}"]
            said.append(
                f"for {method} so are its {safe[0]} likeliest of {everything} classes ({fact['bytes']:.0f} bytes; "
                f"{100 * fact['tail']:.1f} % of the mass left out)"
            )
        else:
            said.append(f"for {method} no fewer than all its {everything} classes are")
    return f"On {name} {'; '.join(said)}."


def section(name: str, scores: Scores, facts: Facts) -> str:
    """One set's table."""
    task = Classification()
    rows = [["ensemble", "", "", "", *(display(metric, facts["ensemble"][metric], task) for metric in METRICS)]]
    for codec, each in scores.items():
        known = facts[codec]
        cells = [f"{known['bytes']:.0f}", f"{100 * known['tail']:.1f} ({100 * known['tail, 95 %']:.1f})"]
        rows += [[codec, *cells, method, *(cell(row, metric) for metric in METRICS)] for method, row in each.items()]
    return f"## {name}\n\n" + table(
        ["memory", "bytes per image", "tail, % (95th percentile)", "student", *METRICS], rows
    )


def draw(found: dict[str, Scores], work: Workspace) -> None:
    """Each metric against the number of classes kept; the band is the dense memory."""
    plt = pyplot()
    size = (14, 3.4 * len(found))
    figure, grid = plt.subplots(len(found), len(METRICS), figsize=size, layout="constrained", squeeze=False)
    for (name, scores), line in zip(found.items(), grid, strict=True):
        for metric, axes in zip(METRICS, line, strict=True):
            for method in METHODS:
                colour = COLOURS[method]
                values = [column(scores[f"top-{keep}"][method], metric) for keep in KEPT[name]]
                dense, scale = column(scores["dense"][method], metric), 100 if metric == "accuracy" else 1
                middle, width = scale * dense.mean(), scale * dense.std(ddof=1)
                axes.axhspan(middle - width, middle + width, color=colour, alpha=0.15, linewidth=0)
                axes.axhline(middle, color=colour, linestyle="--", linewidth=1, label=f"{method}, dense")
                means, deviations = ([scale * f(v) for v in values] for f in (np.mean, lambda v: v.std(ddof=1)))
                label = f"{method}, top-k"
                axes.errorbar(KEPT[name], means, deviations, color=colour, marker="o", capsize=3, label=label)
            axes.set_xscale("log")
            axes.set_xticks(KEPT[name], [str(keep) for keep in KEPT[name]])
            axes.minorticks_off()
            axes.set(title=f"{name}: {metric}{', %' if metric == 'accuracy' else ''}", xlabel="classes kept")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, work.folder / "truncation.png")
    plt.close(figure)


PAGE = """# Truncation

How few classes may the memory of an ensemble keep? {answer} Enough: for accuracy and NLL, by the tables below.

![Metrics against the number of classes kept](truncation.png)

Dashed, with a band: students of every member's answer. Bars and bands are standard deviations over the seeds.

As good as from the dense memory: at most half a point less accurate, and at most 1 % more NLL. How much better, in
points and in per cent, with 95 % intervals over {repeats} pairs of students:

{claims}

## How

{members} small convnets per set, trained on {images:,} images at half their size, are remembered whole (`dense`: every
member), by their mean (`mean`), and by the mean's k likeliest classes (`top-k`: of the rest, only its mass). From each
memory, EnD and Proxy-Dirichlet students with the same {repeats} seeds; mean and standard deviation over the seeds; the
ensemble is one. EnD counts the tail as one event, Proxy-Dirichlet spreads it evenly over the classes that were not
kept. Every memory holds the knowledge uncertainty as it was over all classes; ρ knowledge is the rank correlation of a
student's with the ensemble's on the test images. `mean` and the largest k leave nothing out: what sets them apart from
dense is how numbers are rounded on the disk. The images' number, batches and standardising were set after a first try
with 12 % on CIFAR-100's test images; an earlier run had two seeds of each student.

{sections}

{made}
"""
