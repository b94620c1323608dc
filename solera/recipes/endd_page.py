"""The page of the EnD² study: what came out, one table, one picture, what held; then how, Tables 4 and 7, ablations."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solera import metrics
from solera.evaluation import Evaluation
from solera.evaluation.measure import MEASURES
from solera.recipes.base import Workspace
from solera.recipes.page import Resampled, judged_cell, look, paired_gap, pyplot, save_figure, spread, table
from solera.training.engine import precision_named

if TYPE_CHECKING:
    from solera.recipes.endd_cifar10 import EnddCifar10, Scale

UNSEEN = {"GTSRB": "images/gtsrb_test2k_32x32.npz", "MNIST-M": "images/mnist_m_test2k.npz"}
OTHERS = (*UNSEEN, "CIFAR-100")  # of the last, other images are the auxiliary ones
BINS = np.linspace(0, math.log(10), 47)
Found = dict[str, Any]  # rows, resampled rows and histograms by model, and how many images there were

# the paper's Table 3 (C10: error, PRR, ECE, NLL), Table 4 (LSUN total, knowledge; TIM total, knowledge) and Table 7
PAPER = {
    "IND": ("8.0 / 84.6 / 2.2 / 0.25", "91.3 / – ; 88.9 / –", "48.2 / 47.0 / –"),
    "ENSM": ("6.2 / 86.8 / 1.3 / 0.19", "94.5 / 94.4 ; 91.8 / 91.4", "43.9 / 41.1 / 36.8"),
    "EnD": ("6.7 / 84.8 / 2.6 / 0.22", "89.0 / – ; 86.9 / –", "44.6 / 44.1 / 37.6"),
    "EnD²": ("7.3 / 85.3 / 1.0 / 0.25", "91.5 / 92.2 ; 88.6 / 88.8", "46.8 / 46.1 / 43.6"),
    "EnD+AUX": ("6.7 / 85.1 / 2.6 / 0.22", "88.6 / – ; 86.5 / –", "44.5 / 43.8 / 37.7"),
    "EnD²+AUX": ("6.9 / 85.7 / 2.2 / 0.24", "94.4 / 93.8 ; 91.3 / 90.6", "46.5 / 44.3 / 39.4"),
    "Proxy+AUX": ("–", "–", "–"),
    "PN": ("7.5 / 82.0 / 12.0 / 0.38", "95.7 / 95.8 ; 95.7 / 95.8", "40.5 / 38.5 / 35.0"),
}
HARDER = {  # Table 3 of CIFAR-100; of TinyImageNet
    "IND": "30.4 / 72.5 / 9.3 / 1.16 ; 41.8 / 70.8 / 18.3 / 2.15",
    "ENSM": "26.3 / 75.0 / 1.2 / 0.88 ; 36.6 / 73.8 / 3.8 / 1.51",
    "EnD": "28.0 / 73.1 / 8.2 / 1.06 ; 38.3 / 72.2 / 14.8 / 1.77",
    "EnD²": "27.9 / 73.7 / 4.9 / 1.14 ; 37.6 / 73.1 / 7.2 / 1.83",
    "EnD+AUX": "28.2 / 74.0 / 1.9 / 0.98 ; 38.5 / 72.6 / 14.9 / 1.78",
    "EnD²+AUX": "28.0 / 74.0 / 5.6 / 1.14 ; 37.3 / 72.7 / 7.2 / 1.84",
    "PN": "28.0 / 63.7 / 37.9 / 1.87 ; 40.0 / 62.3 / 39.1 / 2.61",
}
LOWER = ("ECE", "NLL")  # is better
# what the paper says of CIFAR-10: the claim, the metric, who is better by it, than whom
CLAIMS = [
    ("the ensemble errs less than its members", "accuracy", "ENSM", "IND"),
    ("EnD errs less than a single network", "accuracy", "EnD", "IND"),
    ("EnD² errs less than a single network", "accuracy", "EnD²", "IND"),
    ("EnD² rejects its errors better than EnD", "PRR", "EnD²", "EnD"),
    ("... with auxiliary images, too", "PRR", "EnD²+AUX", "EnD+AUX"),
    ("EnD has a lower NLL than EnD²", "NLL", "EnD", "EnD²"),
    ("EnD² is better calibrated than EnD", "ECE", "EnD²", "EnD"),
    ("the prior network rejects its errors worse than a single network", "PRR", "IND", "PN"),
    ("... is worse calibrated", "ECE", "IND", "PN"),
    ("... and has a higher NLL", "NLL", "IND", "PN"),
    ("the ensemble finds unseen sets better than its members", "unseen total", "ENSM", "IND"),
    ("EnD loses that: EnD² finds them better", "unseen total", "EnD²", "EnD"),
    ("auxiliary images help EnD²", "unseen total", "EnD²+AUX", "EnD²"),
    ("... by knowledge, too", "unseen knowledge", "EnD²+AUX", "EnD²"),
    ("auxiliary images make EnD worse at it", "unseen total", "EnD", "EnD+AUX"),
    ("the prior network finds them better than the ensemble", "unseen total", "PN", "ENSM"),
]
OWN = [  # what we say ourselves of the proxy, beside the paper's way
    ("the proxy errs less than a single network", "accuracy", "Proxy+AUX", "IND"),
    ("... has a lower NLL", "NLL", "Proxy+AUX", "IND"),
    ("... a lower NLL than EnD²+AUX", "NLL", "Proxy+AUX", "EnD²+AUX"),
    ("... finds unseen sets better by knowledge than EnD²+AUX", "unseen knowledge", "Proxy+AUX", "EnD²+AUX"),
]


def facts(result: Evaluation) -> Found:
    """What the page needs of an evaluation, as JSON values: with the AUPR of errors, and "unseen", two sets' mean."""
    found: Found = {"rows": {}, "draws": {}, "histograms": {}}
    for name, columns in result.columns.items():
        test = columns["test"]
        wrong = ~test["correct"]
        row: dict[str, Any] = {key: value for key, value in result.rows[name].items() if value is not None}
        draws: dict[str, Any] = {key: np.asarray(drawn) for key, drawn in result.draws.get(name, {}).items()}
        doubts = {"confidence": -test["confidence"], **{key: test[key] for key in MEASURES if key in test}}
        row |= {f"AUPR {key}": metrics.aupr(doubt, wrong) for key, doubt in doubts.items()}
        for key in [key for key in ("total", "knowledge") if key in test]:
            for numbers in (row, draws):
                if f"OOD {OTHERS[0]} {key}" in numbers:
                    numbers[f"unseen {key}"] = np.mean([numbers[f"OOD {other} {key}"] for other in UNSEEN], 0)
        found["rows"][name] = {key: float(value) for key, value in row.items()}
        found["draws"][name] = {key: drawn.tolist() for key, drawn in draws.items()}
        found["histograms"][name] = {
            f"{key} {side}": np.histogram(values, BINS, density=True)[0].tolist()
            for key in MEASURES
            if key in test
            for side, values in (("in", test[key]), ("out", np.concatenate([columns[other][key] for other in UNSEEN])))
        }
    return found


def together(studies: Sequence[Found]) -> Found:
    """The models of all studies, each with its study's number behind its name: "EnD #0", "EnD #1", ..."""
    numbered = {
        kind: {f"{name} #{number}": of for number, study in enumerate(studies) for name, of in study[kind].items()}
        for kind in ("rows", "draws", "histograms")
    }
    return {**numbered, "images": studies[0]["images"]}


def of_kind(found: Found, name: str) -> list[str]:
    """The models of this kind: the students, the ensembles or, as "IND #0 #0", the members of all studies."""
    return [each for each in found["rows"] if each.partition(" #")[0] == name]


def values(found: Found, name: str, key: str) -> list[float]:
    """A metric of every model of this kind; none where it has no such metric."""
    rows = [found["rows"][each] for each in of_kind(found, name)]
    return [row[key] for row in rows if key in row]


def gap(found: Found, better: str, worse: str, key: str) -> tuple[float, float, float]:
    """How much better: the low end of the paired 95 % interval, the mean over studies, the high end."""

    def drawn(name: str) -> list[Resampled]:
        return [(found["rows"][each][key], found["draws"][each][key]) for each in of_kind(found, name)]

    low, middle, high = paired_gap(drawn(better), drawn(worse), inflated=key == "ECE")
    return (-high, -middle, -low) if key in LOWER else (low, middle, high)


def orderings(found: Found) -> str:
    """Every claim, and whether it held."""
    rows = []
    for claim, key, better, worse in [*CLAIMS, *OWN]:
        scale = (1, 3) if key == "NLL" else (100, 1)
        rows.append([claim, f"{key}: {better}, {worse}", judged_cell(*gap(found, better, worse, key), 0.0, *scale)])
    return table(["claim", "of", "how much better"], rows)


def second(found: Found) -> str:
    """By how much confidence finds errors better than knowledge does, as the paper says."""
    apart = {
        name: np.mean(values(found, name, "AUPR confidence")) - np.mean(values(found, name, "AUPR knowledge"))
        for name in PAPER
        if values(found, name, "AUPR knowledge")
    }
    return ", ".join(f"{name} {100 * points:+.1f}" for name, points in apart.items())


def cell(found: Found, name: str, key: str) -> str:
    """Mean and spread over studies."""
    numbers = values(found, name, "accuracy" if key == "error" else key)
    if not numbers or (name.startswith("ENSM") and key == "ρ knowledge"):
        return "–"
    if key == "error":
        numbers = [1 - number for number in numbers]
    return spread(numbers, *((3, 1) if key in ("NLL", "ρ knowledge") else (1, 100)))


def tabled(found: Found, keys: dict[str, str], printed: dict[str, str], last: str) -> str:
    """One of the paper's tables, its numbers beside ours."""
    rows = [[name, *(cell(found, name, key) for key in keys), printed.get(name, "–")] for name in PAPER]
    return table(["model", *keys.values(), last], rows)


def answer(found: Found, members: int) -> str:
    """What came out, of the ensemble, of our student and of the paper's."""

    def errs(name: str) -> str:
        return f"on {cell(found, name, 'error')} % of the test images (NLL {cell(found, name, 'NLL')})"

    def tells(name: str) -> str:
        return f"with an AUROC of {cell(found, name, 'unseen knowledge')}"

    return (
        f"One network errs {errs('IND')}, {members} together {errs('ENSM')}; the student Proxy+AUX errs "
        f"{errs('Proxy+AUX')}, the paper's student, EnD²+AUX, {errs('EnD²+AUX')}; by knowledge the ensemble tells "
        f"unseen sets {tells('ENSM')}, Proxy+AUX {tells('Proxy+AUX')}, EnD²+AUX {tells('EnD²+AUX')}."
    )


def page(recipe: "EnddCifar10", found: Found, made: str) -> str:
    """All of it."""
    scores = {"error": "error %", "PRR": "PRR %", "ECE": "ECE %", "NLL": "NLL"}
    unseen = {"unseen total": "unseen, total", "unseen knowledge": "unseen, knowledge"}
    far = {f"OOD {other} {key}": f"{other} {key}" for other in OTHERS for key in ("total", "knowledge")}
    errors = {"AUPR confidence": "confidence", "AUPR total": "entropy", "AUPR knowledge": "knowledge"}
    fewer = [f"M = {count}" for count in recipe.at.fewer]
    ablated = [*fewer, *(f"T₀ = {degree:g}" for degree in recipe.at.temperatures), "ENSM"]
    ablated += [f"ENSM, {name}" for name in fewer]
    columns = scores | {"ρ knowledge": "ρ"} | unseen
    figures = {name: f"{count:,}" for name, count in found["images"].items()}
    study: Found = {"rows": {n.removesuffix(" #0"): row for n, row in found["rows"].items() if n.endswith(" #0")}}
    rows = [[name, *(cell(study, name, key) for key in columns)] for name in ("EnD²+AUX", *ablated)]
    table_3, table_4, table_7 = ({name: parts[number] for name, parts in PAPER.items()} for number in range(3))
    return PAGE.format(
        recipe=recipe,
        at=recipe.at,
        precision=precision_named(recipe.at.precision, "auto"),
        images=figures,
        answer=answer(found, recipe.at.members),
        scores=tabled(found, columns, table_3, "paper: error / PRR / ECE / NLL"),
        claims=orderings(found),
        ood=tabled(found, far, table_4, "paper: LSUN total / knowledge ; TIM total / knowledge"),
        harder=tabled(found, scores, HARDER, "paper: CIFAR-100 ; TinyImageNet"),
        aupr=tabled(found, errors, table_7, "paper"),
        ablations=table(["model", *columns.values()], rows),
        second=second(found),
        fewer=" and of fewer members" if fewer else "",
        dropout=DROPOUT.format(*recipe.at.dropout) if any(recipe.at.dropout) else "",
        turned=f" and turned by up to {recipe.at.degrees:g}°" if recipe.at.degrees else "",
        norm="" if recipe.at.prior_norm else ", without batch norm",
        more=MORE.format(images=figures) if recipe.at.unlabelled else "",
        held=HELD.format(at=recipe.at) if recipe.at.held else "",
        made=made,
    )


def draw(at: "Scale", found: Found, work: Workspace) -> None:
    """The histograms of the three uncertainties, in-domain and out."""
    figure, panels = pyplot().subplots(2, 3, figsize=(14, 6.5), layout="constrained", sharex="col")
    sides = {"in": "CIFAR-10 test images", "out": " and ".join(UNSEEN)}
    drawn = {"ENSM": look("ensemble"), **{name: look(name) for name in ("EnD²", "EnD²+AUX", "Proxy+AUX")}}
    for row, (side, title) in zip(panels, sides.items(), strict=True):
        for axes, key in zip(row, MEASURES, strict=True):
            for name, shape in drawn.items():
                each = [found["histograms"][model][f"{key} {side}"] for model in of_kind(found, name)]
                axes.stairs(np.mean(each, axis=0), BINS, label=name, **shape)
            axes.set(title=f"{key}: {title}", xlabel="nats", ylabel="density")
            axes.set_xlim(0, BINS[-1] if key != "knowledge" else BINS[-1] / 3)
    panels[0, 0].legend(frameon=False)
    figure.suptitle(f"What {at.members} networks and their students do not know")
    save_figure(figure, work.folder / "endd-cifar10.png")


PAGE = """# EnD² on CIFAR-10

Can one small network stand in for {at.members}, and say which photographs it does not know? {answer}

{scores}

Mean ± sample standard deviation over {recipe.studies} studies, each with its own members and students (IND: over all
members). PRR by total uncertainty. Unseen: AUROC in per cent, the mean over GTSRB (traffic signs) and MNIST-M (digits
over photographs). ρ: rank correlation of knowledge with the ensemble's on test images.

![Histograms of the three uncertainties](endd-cifar10.png)

## What the paper says, and whether it held

By paired 95 % intervals over resampled images ({recipe.resamples} draws), of means over the studies; how much these
differ among themselves is not in the intervals. In points, NLL in nats. The last four claims are ours.

{claims}

## How

{at.members} {at.network} learn {images[labelled]} labelled images for {at.epochs} epochs. Students of the same shape
learn what they say about {images[seen]} images of CIFAR-10{more}, for {at.student_epochs} epochs.{held}
The prior network (PN) learns the labelled images for {at.epochs} epochs, at half the rate{norm}. "+AUX" and PN: with
{images[auxiliary]} images of CIFAR-100 beside the others. {at.optimizer} in batches of {at.batch_size}, one-cycle rate
up to {at.lr:g} (EnD²: {at.density_lr:g}), precision {precision}, weight decay {at.weight_decay:g},
{dropout}images flipped and shifted by up to 4 pixels{turned}; the teacher speaks of the plain ones. EnD
at temperature 2.5, EnD² from {at.temperature:g} down to 1; Proxy predicts with e^z, not e^z + 1. {images[test]} test
images. {at.chosen} Earlier runs of this page had shown the test images. The paper:
VGG-16, 100 members, 50,000 labelled images, 45 and 90 epochs, EnD² from 10 down, nothing held out; so compare orders,
not digits.

## Unfamiliar images (Table 4)

AUROC in per cent. The paper's sets, LSUN and TinyImageNet, are not in these data. The test images of CIFAR-100 are
unfamiliar too, but "+AUX" and PN were trained on others of their kind.

{ood}

## Finding errors (Table 7)

Area under the precision-recall curve, in per cent: it grows with the number of errors. The paper: confidence finds them
better than knowledge does. Here, in points: {second}.

{aupr}

## Beside the paper's harder sets (Table 3)

The same columns beside the paper's of CIFAR-100 and TinyImageNet (error / PRR / ECE / NLL), on which its VGG-16 errs
about as often as a small network does on CIFAR-10. There students lie between one network and the ensemble in error.

{harder}

## Ablations (Appendix D)

All of the first study: EnD²+AUX of {at.members} members from temperature {at.temperature:g}, and one student each from
other temperatures{fewer}. The paper: 20 members do better than 5, more than 20 no better; a temperature of at least 5
is needed.

{ablations}

{made}
"""
DROPOUT = "dropout {:g} (members) and {:g} (students);\n"
MORE = ", of which all but those {images[labelled]} have no label"
HELD = """
{at.held:,} other images, which no member saw, pick a student's epoch and the size of EnD²'s and Proxy's uncertainty."""
