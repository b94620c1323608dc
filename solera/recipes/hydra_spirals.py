"""Hydra's toy study (Tran et al., 2020, section 3.1): ten small networks on spirals, and one with ten heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera import metrics
from solera.core.checks import require_positive
from solera.core.seeds import generator, stream
from solera.data import Batches
from solera.distributions.base import SecondOrder
from solera.ensembles import train_ensemble
from solera.methods import EnD, Hydra, Method, ProxyDirichlet
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.page import origin, over_repeats, pyplot, save_figure, spread, table, word
from solera.recipes.spirals import ARMS, spirals
from solera.teachers import Ensemble, Teacher, capture
from solera.training import Student, Training, distill

SIDE = 9.0  # the plotted square reaches from −9 to 9 on both axes; the outermost training points lie near 6
SHORT, DEEP = "Hydra, 1 layer", "Hydra, 2 layers"  # how many of the last layers every head has of its own
METHODS: dict[str, Method] = {
    "EnD": EnD(),
    SHORT: Hydra(head=1),
    DEEP: Hydra(head=2),
    "Proxy": ProxyDirichlet(as_published=True),
}
AUX = " + AUX"
KINDS = ("total", "data", "knowledge")
MEASURES = {"knowledge": "mean", "difference": "difference", "ρ": "ρ"}  # of knowledge, and what they are called
Students = dict[str, list[Student]]  # method -> one student per repeat
Found = dict[str, list[dict[str, float]]]  # model -> one row per repeat


def network() -> MLP:
    """The paper's: two hidden layers of 100 units, for members and students alike."""
    return MLP(2, ARMS, (100, 100))


def square(points: int, seed: int) -> Float[Tensor, "N 2"]:
    """Auxiliary inputs: spread evenly over the plotted square."""
    return SIDE * (2 * torch.rand(points, 2, generator=generator(seed, "square")) - 1)


def grid(steps: int) -> Float[Tensor, "N 2"]:
    """Every point of a grid over the plotted square."""
    side = torch.linspace(-SIDE, SIDE, steps)
    return torch.cartesian_prod(side, side)


@dataclass(frozen=True)
class HydraSpirals(Recipe):
    """The Hydra paper's toy: ten MLPs [100, 100] on spirals, and students with a head for each of them.

    Draws total, data and knowledge uncertainty of the ensemble and of Hydra side by side (Figure 2), without and with
    auxiliary inputs; about ten minutes on two busy cores.
    """

    seed: int = 1  # the settings of the spirals were tuned on seed 0
    members: int = 10
    points: int = 300  # per arm
    noise: float = 0.55
    epochs: int = 60
    steps: int = 2000  # of every student; Hydra takes as many again, on an EnD student
    repeats: int = 5  # students differ in initial weights and in the order of the data; the ensemble is one

    def __post_init__(self) -> None:
        for name in ("members", "points", "noise", "epochs", "steps", "repeats"):
            require_positive(name, getattr(self, name))
        if self.members < 2:
            raise ValueError(f"members={self.members} cannot disagree: take 2 or more")

    def run(self, work: Workspace) -> str:
        pyplot()
        x, y = spirals(self.points, self.noise, self.seed, "train")
        work.say(f"training {self.members} networks on {len(x)} points of {ARMS} spiral arms")
        training, labelled = Training(epochs=self.epochs, lr=1e-2, seed=self.seed), Batches(x, y, batch_size=50)
        ensemble = train_ensemble(network, labelled, self.members, training, folder=work.folder / "ensemble")
        # with twice the inputs, batches of twice the size: either way a step sees about 100 training points
        batches = {"": Batches(x, y, batch_size=100)}
        batches[AUX] = Batches(x, y, auxiliary=square(len(x), self.seed), batch_size=200)
        students: Students = {}
        for suffix, each in batches.items():
            folder = work.folder / f"students{suffix.replace(' + ', '-')}"
            teacher = capture(ensemble, each, folder / "transfer-set")
            work.say(f"distilling {self.repeats} × {', '.join(METHODS)} on {each.examples} inputs")
            for repeat in range(self.repeats):
                for title, student in self._students(teacher, each, repeat, folder).items():
                    students.setdefault(title + suffix, []).append(student)
        work.say("comparing them on test points and on a grid")
        found = work.remember("metrics", lambda: self._measure(ensemble, students))
        draw({"Ensemble": ensemble, DEEP: students[DEEP][0], DEEP + AUX: students[DEEP + AUX][0]}, x, y, work)
        return page(self, found, work)

    def _students(self, teacher: Teacher, batches: Batches, repeat: int, folder: Path) -> dict[str, Student]:
        """One student of every method; Hydra's grow from the EnD student, as in the paper."""
        epochs = max(1, self.steps // len(batches))
        training = Training(epochs=epochs, lr=5e-3, seed=stream(self.seed, "repeat", repeat))
        made: dict[str, Student] = {}
        for title, method in METHODS.items():
            torch.manual_seed(stream(self.seed, "student", repeat))
            start = made["EnD"].model if isinstance(method, Hydra) else network()
            place = folder / f"{title}-{repeat}".replace(" ", "")
            made[title] = distill(teacher, start, batches, method, training, folder=place)
        return made

    def _measure(self, ensemble: Ensemble, students: Students) -> Found:
        """Every model on test points and on a grid, beside the ensemble; one row per repeat (or member)."""
        x, y = spirals(1000, self.noise, self.seed, "test")
        sets = {"test": x, "grid": grid(91)}
        reference = {name: ensemble.predict(points).knowledge for name, points in sets.items()}
        models = {"one member": [Student(each, EnD()) for each in ensemble.models], "ensemble": [ensemble], **students}
        return {name: [compare(each, sets, y, reference) for each in some] for name, some in models.items()}


def compare(model: Any, sets: dict[str, Tensor], y: Tensor, reference: dict[str, Tensor]) -> dict[str, float]:
    """Accuracy and NLL on the test points; on every set, mean knowledge and how it departs from the reference's."""
    mean = model.predict(sets["test"]).mean
    row = {"accuracy": metrics.accuracy(mean, y), "NLL": metrics.nll(mean, y)}
    row["parameters"] = sum(p.numel() for p in model.parameters())
    for name, points in sets.items():
        said = model.predict(points)
        if isinstance(said, SecondOrder):
            row[f"{name} mean"] = float(said.knowledge.mean())
            row[f"{name} difference"] = metrics.mean_absolute_difference(reference[name], said.knowledge)
            row[f"{name} ρ"] = metrics.rank_correlation(reference[name], said.knowledge)
    return row


def page(recipe: HydraSpirals, found: Found, work: Workspace) -> str:
    """The table, the figure and what held."""

    def column(name: str, key: str, digits: int = 3, scale: float = 1.0) -> str:
        return spread([row[key] for row in found[name]], digits, scale) if key in found[name][0] else "–"

    measures = {f"{where}: {title}": f"{where} {key}" for where in ("test", "grid") for title, key in MEASURES.items()}
    whole = found["ensemble"][0]["parameters"]
    size = {name: f"{n:,.0f} ({100 * n / whole:.0f} %)" for name in found for n in [found[name][0]["parameters"]]}
    rows = [
        [n, column(n, "accuracy", 2, 100), column(n, "NLL"), *(column(n, key) for key in measures.values()), size[n]]
        for n in found
    ]
    text = PAGE.format(
        recipe=recipe,
        points=ARMS * recipe.points,
        answer=answer(found),
        table=table(["model", "accuracy in %", "NLL", *measures, "parameters"], rows),
        sizes=[size[SHORT], size[DEEP]],
        claims=["\n".join(verdicts(found, name)) for name in (SHORT, DEEP)],
    )
    return f"{text}\n{origin(recipe, 'hydra-spirals', work)}\n"


def verdicts(found: Found, name: str) -> list[str]:
    """What the paper says of its figure, and what one would hope for, of Hydra with these heads; over the repeats."""

    def column(key: str, model: str = name) -> np.ndarray:
        return np.array([row[key] for row in found[model]])

    def claim(text: str, values: np.ndarray, least: float, digits: int = 3, scale: float = 1.0) -> str:
        low, middle, high = over_repeats(values.tolist())
        numbers = " to ".join(f"{scale * end:.{digits}f}" for end in (low, high))
        return f"- **{word(low, middle, least)}**: {text}: {scale * middle:.{digits}f} ({numbers})"

    whole, aux = found["ensemble"][0], name + AUX
    lost = column("accuracy") - whole["accuracy"]
    left = column("test mean") / whole["test mean"]
    nearer = column("test difference", "Proxy") - column("test difference")
    return [
        claim("at most half a point less accurate than the ensemble", lost, -0.005, 2, 100),
        claim("knowledge ranks the test points as the ensemble's does, ρ at least 0.9", column("test ρ"), 0.9),
        claim(
            "its size decreases slightly (the paper's words): to 75 % of the ensemble's at least", left, 0.75, 0, 100
        ),
        claim("nearer to the ensemble's on test points than Proxy's, by", nearer, 0, 4),
        claim("AUX brings it nearer on the grid, by", column("grid difference") - column("grid difference", aux), 0, 4),
        claim("AUX costs at most 0.01 of ρ on test points", column("test ρ", aux) - column("test ρ"), -0.01),
    ]


def answer(found: Found) -> str:
    """What came out, in two sentences."""

    def mean(key: str, model: str) -> float:
        return float(np.mean([row[key] for row in found[model]]))

    whole = found["ensemble"][0]
    told = [
        f"with heads of {layers} ({100 * found[name][0]['parameters'] / whole['parameters']:.0f} % of the ensemble's "
        f"parameters) its knowledge ranks test points as the ensemble's with ρ = {mean('test ρ', name):.2f} and has "
        f"{100 * mean('test mean', name) / whole['test mean']:.0f} % of its size"
        for layers, name in (("one layer", SHORT), ("two", DEEP))
    ]
    return (
        f"Its accuracy is {100 * mean('accuracy', SHORT):.1f} or {100 * mean('accuracy', DEEP):.1f} % (the ensemble's "
        f"{100 * whole['accuracy']:.1f} %); {'; '.join(told)}."
    )


def draw(models: dict[str, Any], x: Float[Tensor, "N 2"], y: Int[Tensor, " N"], work: Workspace) -> None:
    """Figure 2: the data, and each model's uncertainties over the plane; students' knowledge against the ensemble's."""
    steps, points = 181, grid(181)
    said = {name: model.predict(points) for name, model in models.items()}
    tops = {kind: max(float(getattr(p, kind).max()) for p in said.values()) for kind in KINDS}
    figure, panels = pyplot().subplots(3, 4, figsize=(13.2, 10.6), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
    panels[0, 0].scatter(*x.T.numpy(), c=[f"C{arm}" for arm in y.tolist()], s=5, linewidths=0)
    panels[0, 0].set(title="training data, a colour per class", xlim=(-SIDE, SIDE), ylim=(-SIDE, SIDE), aspect="equal")
    for row, (name, prediction) in enumerate(said.items()):
        for panel, kind in zip(panels[row, 1:], KINDS, strict=True):
            place = {"origin": "lower", "extent": [-SIDE, SIDE] * 2, "cmap": "YlGnBu", "vmin": 0, "vmax": tops[kind]}
            image = panel.imshow(getattr(prediction, kind).reshape(steps, steps).T.numpy(), **place)
            panel.scatter(*x.T.numpy(), s=1, color="black", alpha=0.25, linewidths=0)
            panel.set(title=f"{name}: {kind}", xticks=[-5, 0, 5], yticks=[-5, 0, 5])
            if row == 2:
                figure.colorbar(image, location="bottom", shrink=0.8, label=f"{kind} uncertainty in nats")
        if row:
            near, corner = points.norm(dim=1) < 6, [0, tops["knowledge"]]
            for where, some in (("grid points away from the data", ~near), ("among the data (radius below 6)", near)):
                both = said["Ensemble"].knowledge[some].numpy(), prediction.knowledge[some].numpy()
                panels[row, 0].scatter(*both, s=1, alpha=0.4, linewidths=0, label=where)
            panels[row, 0].plot(corner, corner, color="black", linewidth=1)
            panels[row, 0].set(title=f"{name}: knowledge", xlabel="ensemble's", ylabel="student's", aspect="equal")
            panels[row, 0].legend(frameon=False, fontsize=8, markerscale=5, loc="upper left")
    save_figure(figure, work.folder / "hydra-spirals.png")


PAGE = """\
# Hydra on spirals

Does a network with one head per member keep the ensemble's uncertainty and its split into data and knowledge?
{answer}

{table}

![Total, data and knowledge uncertainty of the ensemble, of Hydra, and of Hydra with AUX](hydra-spirals.png)

Hydra here has heads of two layers.

What held, with 95 % intervals over {recipe.repeats} students. Heads of one layer, parameters: {sizes[0]}:

{claims[0]}

Heads of two layers, parameters: {sizes[1]}:

{claims[1]}

Heads of two of three layers save next to nothing: so shallow a network has little body to share. Far away these ReLU
members disagree in three wedges alone, so most of the grid is near 0, where ρ says little; without AUX the wedges lie
elsewhere. Nor has the ensemble itself the seam of knowledge around all data that the paper describes.

## How

The toy study of *Hydra: Preserving Ensemble Diversity for Model Distillation* (Tran et al., 2020, section 3.1). The
paper has a figure and no numbers, and does not say how its spirals were drawn; ours are those of the spirals page
(noise {recipe.noise}), {points} training points. {recipe.members} networks with two hidden layers of 100 units
({recipe.epochs} epochs) teach students of the same shape: EnD, Proxy, and Hydra, grown from the EnD student with heads
of the last one or two layers ({recipe.steps} steps for each training). AUX: as many unlabelled points again, drawn
evenly from the plotted square.

Knowledge in nats on 3,000 test points and on a grid over the square: its mean, its mean absolute difference from the
ensemble's, and its rank correlation ρ with it. ± is the standard deviation over {recipe.repeats} students of different
initial weights and data order; the ensemble is one ("one member": over its members).

Settings were chosen on seed 0, looking at its test points: 100, 300 and 1,000 points per arm (members that saw 1,000
hardly disagree: 0.005 nats; ρ was 0.77 and 0.92 there for the two kinds of heads, 0.86 and 0.91 with 100), and 1,500 to
2,000 steps. EnD² students of this size erred in 32 % there, so Proxy stands here.
"""
