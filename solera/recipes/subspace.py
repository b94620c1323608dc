"""Between two subnetworks: is there a barrier, and what do perturbations do to their diversity?"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera import metrics
from solera.core.seeds import generator
from solera.distributions.categorical import Categorical
from solera.methods import BatchEnsemble
from solera.nn.batch_ensemble import merge
from solera.perturbations import ConfODS, TDivSDiv, diversity
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import colour, load_cifar, require_cifar
from solera.recipes.latentbe import LAPTOP, PAPER_SCALE, Parts, Scale, Setting, Size, Study, Subnetworks, Way
from solera.recipes.page import judged_cell, origin, over_repeats, pyplot, save_figure, spread, table
from solera.teachers import Ensemble

SUBSPACE = Setting(
    name="subspace",
    classes=100,
    scales={"laptop": replace(LAPTOP, images=8_000, epochs=16), "paper": PAPER_SCALE},
)
LOOKED_AT = {"laptop": 1_000, "paper": 10_000}  # training and test images, at most
PLACES = tuple(round(-0.5 + 0.1 * step, 1) for step in range(21))  # on the line; 0 and 1 are the subnetworks
WAYS = {
    "BE": Way(BatchEnsemble(temperature=4.0)),
    "LatentBE": Way(Subnetworks()),
    "LatentBE + ConfODS": Way(Subnetworks(), ConfODS(temperature=4.0)),
    "LatentBE + TDiv−SDiv": Way(Subnetworks(), TDivSDiv()),
}
CURVES = {
    "diversity, training": "subnetworks' diversity, training images",
    "diversity, test": "subnetworks' diversity, test images",
    "NLL": "test NLL of the merged network",
    "teachers": "perturbation: teachers' diversity changes by",
    "students": "perturbation: subnetworks' diversity changes by",
}
Labelled = tuple[Tensor, Tensor]  # images and labels
Line = dict[str, list[float]]  # metric -> one number for each place
Epochs = list[dict[str, float]]
Found = dict[str, list[dict[str, Any]]]  # student -> one for each repeat: its line and its epochs


@dataclass(frozen=True)
class Subspace(Recipe):
    """Error and NLL along the line between two subnetworks (the weight-averaging paper's Figure 2), on CIFAR-100.

    BatchEnsemble against LatentBE, students of two networks; and diversity during the training, with and without
    perturbed inputs (Figures 3 and 4). scale=laptop takes an hour on a core with bfloat16; paper is for a GPU.
    """

    data: str = "../shared/data"
    scale: Size = "laptop"

    def run(self, work: Workspace) -> str:
        require_cifar(self.data, SUBSPACE.classes)
        pyplot()
        at = SUBSPACE.scales[self.scale]
        study = Study(self.data, SUBSPACE.classes, at, self.seed)
        parts = study.parts()
        x, y = parts.labelled.all.inputs, parts.labelled.all.target
        assert y is not None
        images, labels = load_cifar(self.data, SUBSPACE.classes, "test")
        count = LOOKED_AT[self.scale]
        test = colour(images[:count]), torch.from_numpy(labels[:count])
        found: Found = {name: [] for name in WAYS}
        for repeat in range(at.repeats):
            for name, numbers in lines(study, repeat, parts, (x[:count], y[:count]), test, work).items():
                found[name].append(numbers)
        draw(found, work)
        sizes = {"labelled": len(x), "seen": parts.seen.examples, "looked": min(count, len(x), len(images))}
        return page(self, at, found, sizes, work)


def lines(
    study: Study, repeat: int, parts: Parts, seen: Labelled, test: Labelled, work: Workspace
) -> dict[str, dict[str, Any]]:
    """Two networks and their students, followed through their training."""
    ensemble = study.ensemble(2, parts.labelled, repeat, work)
    found: dict[str, dict[str, Any]] = {}
    for name, way in WAYS.items():

        def watch(epoch: int, student: Any, name: str = name, way: Way = way) -> None:
            look = partial(diversities, student, ensemble, way, seen[0], *test)
            work.remember(f"{repeat} {name} epoch {epoch}", look)

        student = study.student(ensemble, parts.seen, name, way, repeat, work, watch).model
        line = work.remember(f"{repeat} {name} line", partial(along, student, *seen, *test))
        epochs = [work.remember(f"{repeat} {name} epoch {n}", dict) for n in range(study.at.student_epochs)]
        found[name] = {"line": line, "epochs": epochs}
    return found


@torch.no_grad()
def along(student: Any, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> Line:
    """Error on training images, error and NLL on test images, for networks (1 − t)·first + t·second (eq. 15)."""
    found: Line = {"training error": [], "test error": [], "NLL": []}
    for t in PLACES:
        network = merge(student, shares=(1 - t, t)).eval()
        seen, new = (Categorical(network(images)) for images in (x, x_test))
        found["training error"].append(100 - 100 * metrics.accuracy(seen.mean.numpy(), y.numpy()))
        found["test error"].append(100 - 100 * metrics.accuracy(new.mean.numpy(), y_test.numpy()))
        found["NLL"].append(float(-new.log_prob(y_test).double().mean()))
    return found


def diversities(
    student: Any, ensemble: Ensemble, way: Way, x: Tensor, x_test: Tensor, y_test: Tensor
) -> dict[str, float]:
    """Of subnetworks, and what the perturbation changes in theirs and the teachers' (eq. 6, 16 and 17)."""

    def apart(model: Any, images: Tensor) -> float:
        with torch.no_grad():
            return float(diversity(model(images)).double().mean())

    def teachers(images: Tensor) -> Tensor:
        return torch.stack([ensemble.ask(number, images) for number in range(ensemble.members)], -2)

    found = {"diversity, training": apart(student, x), "diversity, test": apart(student, x_test)}
    with torch.no_grad():
        merged = Categorical(merge(student).eval()(x_test))
        found["NLL"] = float(-merged.log_prob(y_test).double().mean())
    if way.perturbation is not None:
        moved = way.perturbation(x, ensemble, student, generator(0, "look"))
        found["teachers"] = apart(teachers, moved) - apart(teachers, x)
        found["students"] = apart(student, moved) - found["diversity, training"]
    return found


def barrier(line: Line, metric: str) -> float:
    """How far the middle lies above the mean of the two ends."""
    values = dict(zip(PLACES, line[metric], strict=True))
    return values[0.5] - (values[0.0] + values[1.0]) / 2


def barriers(found: Found, name: str) -> list[float]:
    """In test NLL, study by study."""
    return [barrier(runs["line"], "NLL") for runs in found[name]]


def claims(found: Found) -> str:
    """What the paper shows, and whether it came out here, with 95 % intervals over the studies."""
    ours, plain, other = "LatentBE + TDiv−SDiv", "LatentBE", "LatentBE + ConfODS"

    def last(name: str, key: str) -> list[float]:
        return [runs["epochs"][-1][key] for runs in found[name]]

    def during(name: str, key: str) -> np.ndarray:
        return np.array([np.mean([epoch[key] for epoch in runs["epochs"]]) for runs in found[name]])

    more = np.subtract(last(ours, "diversity, test"), last(plain, "diversity, test"))
    wanted = [
        ("BatchEnsemble has a barrier in test NLL", barriers(found, "BE")),
        ("LatentBE has none: the middle lies below its ends", [-hurdle for hurdle in barriers(found, plain)]),
        ("TDiv−SDiv makes the subnetworks more diverse on test images, at the end by", more),
        ("TDiv−SDiv raises the teachers' diversity, over the training by", during(ours, "teachers")),
        ("... and lowers the subnetworks', by", -during(ours, "students")),
        (
            "ConfODS changes the subnetworks' diversity less than TDiv−SDiv does, by",
            abs(during(ours, "students")) - abs(during(other, "students")),
        ),
    ]
    rows = [[claim, judged_cell(*over_repeats(list(map(float, values))), 0.0, 1, 4)] for claim, values in wanted]
    return table(["claim", "how much"], rows)


KINDS = {
    "BE": "subnetworks that begin far apart (BatchEnsemble, BE)",
    "LatentBE": "those that begin as one network (LatentBE)",
    "LatentBE + TDiv−SDiv": "the same, shown images on which their teachers disagree (TDiv−SDiv)",
}


def answer(found: Found) -> str:
    """What came out, in a sentence."""
    told = []
    for name, kind in KINDS.items():
        low, middle, high = over_repeats(barriers(found, name))
        sure = "surely a barrier" if low > 0 else "surely none" if high < 0 else "not sure"
        told.append(f"{'+' if middle > 0 else ''}{spread(barriers(found, name), 3)} for {kind} ({sure})")
    return f"Half-way between two subnetworks the test NLL, less the mean of its two ends, is {', '.join(told)}."


def page(recipe: Subspace, at: Scale, found: Found, sizes: dict[str, int], work: Workspace) -> str:
    """Ends, middle and barrier; what held."""

    def cell(name: str, metric: str, place: float) -> str:
        return spread([runs["line"][metric][PLACES.index(place)] for runs in found[name]], 2)

    rows = [
        [
            name,
            f"{cell(name, 'test error', 0.0)} / {cell(name, 'test error', 0.5)} / {cell(name, 'test error', 1.0)}",
            f"{cell(name, 'NLL', 0.0)} / {cell(name, 'NLL', 0.5)} / {cell(name, 'NLL', 1.0)}",
            spread([barrier(runs["line"], "test error") for runs in found[name]], 2),
            spread(barriers(found, name), 3),
        ]
        for name in WAYS
    ]

    return PAGE.format(
        at=at,
        sizes={name: f"{size:,}" for name, size in sizes.items()},
        rows=table(
            ["student", "test error %, t = 0 / ½ / 1", "test NLL, t = 0 / ½ / 1", "barrier, error", "barrier, NLL"],
            rows,
        ),
        answer=answer(found),
        claims=claims(found),
        origin=origin(recipe, SUBSPACE.name, work),
    )


def draw(found: Found, work: Workspace) -> None:
    """The line above, the training below."""
    figure, panels = pyplot().subplots(2, 5, figsize=(19, 7.2), layout="constrained")
    for axes, metric in zip(panels[0], ("training error", "test error", "NLL"), strict=False):
        for name in ("BE", "LatentBE"):
            lines = np.array([runs["line"][metric] for runs in found[name]])
            colour_of = f"C{list(WAYS).index(name)}"
            axes.fill_between(PLACES, lines.min(0), lines.max(0), color=colour_of, alpha=0.15, linewidth=0)
            axes.plot(PLACES, lines.mean(0), color=colour_of, marker="o", markersize=3, label=name)
        for place in (0, 1):
            axes.axvline(place, color="0.7", linewidth=0.8, linestyle=":")
        title = "test NLL" if metric == "NLL" else f"{metric}, %"
        axes.set(title=title, xlabel="t: 0 and 1 are the subnetworks")
    panels[0, 0].legend(frameon=False)
    for axes in panels[0, 3:]:
        axes.axis("off")
    for axes, (key, title) in zip(panels[1], CURVES.items(), strict=True):
        for number, name in enumerate(WAYS):
            if name == "BE" or key not in found[name][0]["epochs"][0]:
                continue
            curves = np.array([[epoch[key] for epoch in runs["epochs"]] for runs in found[name]])
            epochs = np.arange(1, curves.shape[1] + 1)
            axes.fill_between(epochs, curves.min(0), curves.max(0), color=f"C{number}", alpha=0.15, linewidth=0)
            axes.plot(epochs, curves.mean(0), color=f"C{number}", label=name)
        axes.set(xlabel="epoch")
        axes.set_title(title, fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, work.folder / f"{SUBSPACE.name}.png")


PAGE = """# The line between two subnetworks

May the weights of two subnetworks be averaged, or does the loss rise on the way between them? {answer}

{rows}

Barrier: the middle less the mean of the two ends. Mean ± sample standard deviation over {at.repeats} studies.

![Along the line, and during the training](subspace.png)

Above, the paper's Figure 2; below, its Figures 3 and 4. Bands: from the lowest to the highest study.

## What the paper shows, and whether it held

With 95 % intervals over the studies (Student's t), which are wide with so few. The paper (WRN-28-4) shows curves, not
numbers.

{claims}

## How

Two {at.networks} learn {sizes[labelled]} labelled CIFAR-100 images for {at.epochs} epochs; students of two
subnetworks see {sizes[seen]} images, without labels, for {at.student_epochs} epochs. θ_t =
(1 − t)·W ∘ s₁r₁ᵀ + t·W ∘ s₂r₂ᵀ (eq. 15 of the weight-averaging paper), with the batch norms as they were trained, on
{sizes[looked]} training and as many test images. Earlier runs of this page had shown them.

{origin}
"""
