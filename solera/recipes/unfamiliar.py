"""Why two students of `headline` tell unfamiliar rows worse than their ensembles: the law, the data or the method?"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.distributions import Dirichlet
from solera.distributions.matching import matched_precision
from solera.methods import Hydra
from solera.metrics import accuracy, nll, rank_correlation
from solera.recipes import tabular
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import require_files
from solera.recipes.page import origin, over_repeats, pyplot, save_figure, spread, table, told_apart, with_ends
from solera.recipes.problems import FILES, PROBLEMS, Problem, distilled
from solera.teachers import Ensemble

SETS = ("letter", "satellite")  # where headline's students lose more than two points of AUROC
FITTED, PLAIN, SHOWN, HEADS = "Dirichlets fitted row by row", "default student", "shown unfamiliar rows", "Hydra"
METRICS = {"accuracy": 1, "NLL": 3, "AUROC, total": 1, "AUROC, knowledge": 1, "ρ knowledge": 2}
STEPS = {  # what each explains: one model less another, by AUROC of knowledge
    "the law": (FITTED, "ensemble"),
    "what is left to learning": (PLAIN, FITTED),
    "rows of the unfamiliar classes, unlabelled": (SHOWN, PLAIN),
    "a head for each member in the law's place": (HEADS, PLAIN),
}
Found = dict[str, list[dict[str, dict[str, float]]]]  # set -> study -> model -> metrics


@dataclass(frozen=True)
class Unfamiliar(Recipe):
    """Why students of letter and satellite tell unfamiliar rows worse than their ensembles: law, data or method?

    The ensembles and default students of `headline`, beside Dirichlets that no network had to learn, students that
    were shown rows of the unfamiliar classes, and Hydra. About an hour on one core.
    """

    data: str = "../shared/data"
    studies: int = 3  # members and students anew, on the same examples

    def __post_init__(self) -> None:
        require_positive("studies", self.studies)

    def run(self, work: Workspace) -> str:
        for name in SETS:
            require_files(self.data, FILES[name])
        pyplot()
        found: Found = {}
        for name in reversed(SETS):  # the quick one first
            problem = PROBLEMS[name](self.data)
            found[name] = [
                work.remember(f"{name}-{number}", partial(self._study, name, problem, number, work))
                for number in range(self.studies)
            ]
        found = {name: found[name] for name in SETS}
        draw(found, work.folder / "unfamiliar.png")
        return page(self, found, origin(self, "unfamiliar", work))

    def _study(self, name: str, problem: Problem, number: int, work: Workspace) -> dict[str, dict[str, float]]:
        work.say(f"{name}, study {number + 1} of {self.studies}: training the members")
        seed, place = stream(self.seed, name, number), work.folder / f"{name}-{number}"
        ensemble = problem.teach(problem, seed)
        x, y, _, _ = tabular.load(self.data, name)
        told = {PLAIN: {}, SHOWN: {"auxiliary": x[y >= problem.classes]}, HEADS: {"method": Hydra()}}
        students = {}
        for way, given in told.items():
            work.say(f"{name}, study {number + 1} of {self.studies}: {way}")
            students[way] = distilled(problem, ensemble, seed, place / way, **given)
        inputs = problem.test[0], next(iter(problem.unfamiliar.values()))
        said: dict[str, Any] = {"ensemble": [ensemble.predict(rows) for rows in inputs]}
        said[FITTED] = [fitted(ensemble, rows) for rows in inputs]
        said |= {way: [student.predict(rows) for rows in inputs] for way, student in students.items()}
        theirs, y = said["ensemble"][0], problem.test[1]
        return {model: measured(here, there, theirs, y) for model, (here, there) in said.items()}


def fitted(ensemble: Ensemble, rows: Tensor) -> Dirichlet:
    """The Dirichlets that a student by defaults is trained towards, each from what the members say of its row."""
    theirs = ensemble.predict(rows)
    precision = matched_precision(theirs, "rmi", theirs.mean.shape[-1]).double()
    return Dirichlet.from_logits(theirs.mean.double().log() + precision.log()[:, None], offset=0.0)


def measured(said: Any, elsewhere: Any, theirs: Any, y: Tensor) -> dict[str, float]:
    """What is said of test rows and of unfamiliar ones; `theirs`: what the ensemble says of the test rows."""
    return {
        "accuracy": accuracy(said.mean, y),
        "NLL": nll(said.mean, y),
        "AUROC, total": told_apart(said.total.numpy(), elsewhere.total.numpy()),
        "AUROC, knowledge": told_apart(said.knowledge.numpy(), elsewhere.knowledge.numpy()),
        "ρ knowledge": rank_correlation(theirs.knowledge, said.knowledge),
    }


def cell(studies: list[dict[str, dict[str, float]]], model: str, metric: str) -> str:
    """Over the studies; accuracy and AUROC in per cent."""
    scale = 100 if metric.startswith(("accuracy", "AUROC")) else 1
    return spread([study[model][metric] for study in studies], METRICS[metric], scale)


def gap(studies: list[dict[str, dict[str, float]]], step: str) -> tuple[float, float, float]:
    """In the same studies: the 95 % interval's low end, the mean and the high end."""
    one, other = STEPS[step]
    return over_repeats([study[one]["AUROC, knowledge"] - study[other]["AUROC, knowledge"] for study in studies])


def answer(name: str, studies: list[dict[str, dict[str, float]]]) -> str:
    """Where a set's points are lost, and what brings some back."""

    def below(model: str) -> str:
        lost = np.mean([s["ensemble"]["AUROC, knowledge"] - s[model]["AUROC, knowledge"] for s in studies])
        return f"{abs(100 * lost):.1f} points {'below' if lost > 0 else 'above'} its ensemble's"

    def by(step: str) -> str:
        low, middle, high = gap(studies, step)
        return f"{100 * middle:+.1f}{'' if low * high > 0 else ' (not surely)'}"

    law, learning, shown, _ = map(by, STEPS)
    return (
        f"On {name} the default student's AUROC by knowledge is {below(PLAIN)}: {law} from the Dirichlets "
        f"that it is trained towards, {learning} from how it learns them. With unlabelled rows of the "
        f"unfamiliar classes among its inputs it changes by {shown}; a head for each member in the law's place, a "
        f"Hydra student, is {below(HEADS)}."
    )


def draw(found: Found, path: Path) -> None:
    """AUROC by knowledge, a dot a study."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(found), figsize=(9, 2.8), layout="constrained", sharey=True)
    for panel, (name, studies) in zip(axes, found.items(), strict=True):
        models = list(studies[0])
        for row, model in enumerate(models):
            values = [100 * study[model]["AUROC, knowledge"] for study in studies]
            panel.plot(values, [row] * len(values), "o", color="#4477aa", alpha=0.6)
            panel.plot(np.mean(values), row, "k|", markersize=16)
        panel.axvline(100 * np.mean([s["ensemble"]["AUROC, knowledge"] for s in studies]), color="#bbbbbb", zorder=0)
        panel.set(title=name, xlabel="AUROC by knowledge, % (further right is better)")
        panel.set_yticks(range(len(models)), models)
    axes[0].invert_yaxis()
    save_figure(figure, path)
    plt.close(figure)


def page(recipe: Unfamiliar, found: Found, made: str) -> str:
    """docs/results/unfamiliar.md."""
    rows = [
        [name, model, *(cell(studies, model, metric) for metric in METRICS)]
        for name, studies in found.items()
        for model in studies[0]
    ]
    steps = [[step, *(with_ends(*gap(s, step), 100, 1) for s in found.values())] for step in STEPS]
    return PAGE.format(
        recipe=recipe,
        answers="\n\n".join(answer(name, studies) for name, studies in found.items()),
        models=table(["set", "model", *METRICS], rows),
        steps=table(["points of AUROC by knowledge, and 95 % interval", *found], steps),
        made=made,
    )


PAGE = """# Unfamiliar rows

Why do two students of the [headline](headline.md) tell unfamiliar rows worse than their ensembles?
{answers}

{models}

![AUROC by knowledge of every model, a dot for each study](unfamiliar.png)

A dot is a study, a tick the mean over them, the grey line the ensemble's mean.

What explains how much, in the same studies (Student's t over {recipe.studies}):

{steps}

## How

Members and default students as in the headline, with its seeds. Unfamiliar are the letters W to Z and the sixth
soil, of the test files; the shown rows are of the same classes in the training files, without labels. Fitted row by
row: Dir(β₀·p̄) with (K − 1)/(2·RMI) for β₀, the target of a default student's loss, from the members' predictions for
that very row. Hydra has one head for each member on the same network. Accuracy and AUROC in per cent; mean and sample
standard deviation over the studies. The test rows are the headline's, whose results were known; the four models were
named after pilots on held-out rows of the training files, and nothing was tuned.

{made}
"""
