"""The page of the recipe `laws`: a table for each set, paired differences from EnD², what held, and one picture."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from solera.distributions import Dirichlet, DirichletMixture, LogisticNormal
from solera.recipes.base import Workspace
from solera.recipes.page import judged_cell, over_repeats, pyplot, save_figure, spread, table

if TYPE_CHECKING:
    from solera.recipes.laws import Laws

Found = dict[str, dict[str, list[dict[str, float]]]]  # set -> model -> one row of metrics per repeat

DIGITS = {"log-likelihood": 2, "accuracy": 1, "NLL": 3, "knowledge kept": 2, "ρ knowledge": 2, "OOD AUROC": 1}
PER_CENT = ("accuracy", "OOD AUROC")
BETTER = {"log-likelihood": 1, "accuracy": 1, "NLL": -1, "OOD AUROC": 1}  # the sign of what is better


def paired(found: dict[str, list[dict[str, float]]], model: str, other: str, metric: str) -> tuple[float, float, float]:
    """How much better a model is than another in the same repeats: the 95 % interval's low end, mean and high end."""
    pairs = zip(found[model], found[other], strict=True)
    return over_repeats([BETTER[metric] * (one[metric] - two[metric]) for one, two in pairs])


def cell(rows: list[dict[str, float]], metric: str) -> str:
    """A metric over the repeats; a dash where a model has none."""
    values = [row[metric] for row in rows if metric in row]
    return spread(values, DIGITS[metric], 100 if metric in PER_CENT else 1) if values else "–"


TELLS = 0.6  # the least AUROC of an ensemble that tells unfamiliar inputs at all
ANSWERED = {
    "log-likelihood": "the members' log-likelihood",
    "NLL": "NLL",
    "accuracy": "accuracy",
    "OOD AUROC": "telling unfamiliar inputs",
}
CLAIMS = {  # what a richer law should do: the metric, the least difference, its scale and digits
    "makes the members likelier, nats": ("log-likelihood", 0.0, 1, 2),
    "has a lower NLL, nats": ("NLL", 0.0, 1, 3),
    "loses at most half a point of accuracy, points": ("accuracy", -0.005, 100, 1),
    "tells unfamiliar inputs better, points of AUROC": ("OOD AUROC", 0.0, 100, 1),
}


def claims(found: Found) -> str:
    """Whether each richer law beats EnD²'s Dirichlet on each set, surely or by the mean."""
    rows = []
    for name, models in found.items():
        plain, *richer = (model for model in models if model != "ensemble")
        for law in richer:
            cells = [
                judged_cell(*paired(models, law, plain, metric), least, scale, digits)
                for metric, least, scale, digits in CLAIMS.values()
            ]
            rows.append([f"{name}: {law}", *cells])
    return table(["set: law", *CLAIMS], rows)


def answer(found: Found) -> str:
    """What is surely better with each richer law than with EnD²'s Dirichlet, and what is surely worse."""
    said = []
    for name, models in found.items():
        plain, *richer = (model for model in models if model != "ensemble")
        told = np.mean([row["OOD AUROC"] for row in models["ensemble"]]) >= TELLS  # otherwise there is no skill to keep
        metrics = [metric for metric in ANSWERED if told or metric != "OOD AUROC"]
        parts = []
        for law in richer:
            gaps = {metric: paired(models, law, plain, metric) for metric in metrics}
            better = [ANSWERED[metric] for metric, (low, _, _) in gaps.items() if low > 0]
            worse = [ANSWERED[metric] for metric, (_, _, high) in gaps.items() if high < 0]
            parts.append(f"the {law} is surely better in {_listed(better)}, surely worse in {_listed(worse)}")
        parts += [] if told else ["unfamiliar inputs are left out, for the ensemble itself hardly tells them"]
        said.append(f"On {name}, beside EnD²'s Dirichlet, {'; '.join(parts)}.")
    return "\n".join(said)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


def samples(law: Any, random: torch.Generator, count: int = 4000) -> list[float]:
    """p(class 0) of samples of a law at one input."""
    numbers = np.random.default_rng(int(torch.randint(2**31, (1,), generator=random)))
    if isinstance(law, LogisticNormal):
        location, deviation, factors = (t[0].double().numpy() for t in (law.location, law.deviation, law.factors))
        noise = numbers.standard_normal((count, len(factors) + len(location)))
        z = location + noise[:, : len(factors)] @ factors + noise[:, len(factors) :] * deviation
        return torch.tensor(z).softmax(-1)[:, 0].tolist()
    if isinstance(law, DirichletMixture):
        weights = law.weights[0].double().numpy()
        counts = numbers.multinomial(count, weights / weights.sum())
        concentrations = law.components.concentration[0].double().numpy()
        parts = [numbers.dirichlet(a, n) for a, n in zip(concentrations, counts, strict=True)]
        return np.concatenate(parts)[:, 0].tolist()
    assert isinstance(law, Dirichlet)
    return numbers.dirichlet(law.concentration[0].double().numpy(), count)[:, 0].tolist()


def draw(said: dict[str, list[float]], work: Workspace) -> None:
    """What every law says of the disputed cloud's middle, above the members themselves."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
    for name, values in said.items():
        if name == "members":
            panel.plot(values, [-0.25] * len(values), "k|", markersize=14, label="members")
        else:
            panel.hist(values, bins=40, range=(0, 1), density=True, histtype="step", linewidth=1.6, label=name)
    panel.set(xlabel="probability of class 0", ylabel="density", title="Two annotators, one input: what each law says")
    panel.legend(frameon=False)
    save_figure(figure, work.folder / "laws.png")
    plt.close(figure)


def page(recipe: "Laws", found: Found, made: str) -> str:
    """All of it."""
    tables = {
        name: table(["law", *DIGITS], [[model, *(cell(rows, m) for m in DIGITS)] for model, rows in models.items()])
        for name, models in found.items()
    }
    return PAGE.format(recipe=recipe, answer=answer(found), claims=claims(found), made=made, **tables)


PAGE = """# When is a Dirichlet not enough?

Members of two kinds disagree in two camps, and a Dirichlet has one mode: does a mixture of Dirichlets or a
logistic-normal say better what they say, and does anything else get better with it? {answer}

**Annotators** (made up): three clouds in the plane, and a fourth in the middle that one annotator calls class 0 and
the other class 1. {recipe.members} networks learn from each. Unfamiliar: inputs far from all clouds.

{annotators}

**Satellite** (real): {recipe.members} random forests and {recipe.members} networks, five kinds of ground. Unfamiliar:
the sixth kind, cotton crop.

{satellite}

![What each law says of one disputed input](laws.png)

What held of each richer law beside EnD²'s Dirichlet, by paired 95 % intervals over the repeats (Student's t):

{claims}

Log-likelihood: of the members' predictions (smoothed by 1e-4, as in training) on test inputs under each student's
law, in nats for each member; higher is better. Knowledge kept: the student's mean knowledge divided by the
ensemble's. ρ knowledge: rank correlation with the ensemble's. OOD AUROC: unfamiliar inputs told by knowledge; below 50
a student is surer of them than of test inputs, and no law mends what its network never learned about such inputs.
Accuracy and AUROC in per cent. Mean and standard deviation over {recipe.repeats} repeats.

## How

Students are MLPs (128, 128) of {recipe.steps:,} steps, the same for every law (AdamW, rate 0.003, weight decay
0.001, batches of 64, gradients clipped at a norm of 1), distilled on the training inputs and on unlabelled auxiliary
ones: half as many, scattered widely (annotators), or half as many on lines through two training rows and half as many
moved by two standard deviations (satellite). EnD² and the mixture start at temperature 1. All this was chosen on other
data: of the annotators on other draws, and of the satellite images on the training file, where each of the five kinds
in turn was the unfamiliar one; but the test results of earlier runs had been seen, in which students had half the
units and 800 steps, and none of the moved rows: there the logistic-normal told cotton crop better than EnD² did (AUROC
17 and 10, where 50 is chance). Without clipping, one of two logistic-normals diverged.
Every repeat has its own members and students, and its own data (made up) or held-out rows (satellite, whose test rows
are always the same, so that its intervals do not say how other test rows would come out). The students of a repeat
share their seeds. The mixture is told which members are of one kind for the first third of its training: they come
in this order, and each teaches one component. The size of the students' uncertainty is fitted on held-out inputs; the
log-likelihood is that of the law as it was trained.

{made}
"""
