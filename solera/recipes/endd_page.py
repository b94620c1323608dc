"""What the EnD² study measures, and how its page shows it: tables, the paper's claims, histograms and ablations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from solera import metrics
from solera.distributions import Prediction
from solera.evaluation import evaluate
from solera.evaluation.measure import MEASURES, detection
from solera.recipes.base import Recipe, Workspace
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.tasks import Columns

UNSEEN = {"GTSRB": "images/gtsrb_test2k_32x32.npz", "MNIST-M": "images/mnist_m_test2k.npz"}
OTHERS = (*UNSEEN, "CIFAR-100")  # of the last, other images are the auxiliary ones
BINS = np.linspace(0, math.log(10), 47)
Numbers = dict[str, Any]  # a model's metrics, and its histograms
Found = dict[str, list[Numbers]]  # model -> one for each repeat


@dataclass(frozen=True)
class Scale:
    """How large the study is."""

    depth: int  # of the VGG
    channels: int  # of its first stage
    dropout: tuple[float, float]  # the probability of dropping a unit: members', students'
    images: int  # for training; 0: all
    auxiliary: int  # images beside them; 0: all
    tests: int  # of each set; 0: all
    members: int
    epochs: int
    student_epochs: int
    repeats: int  # students differ in initial weights and in the order of the data; the ensemble is one
    batch_sizes: tuple[int, int]  # members', students'
    lr: float
    degrees: float  # images are flipped, shifted by up to 4 pixels and turned by up to so much
    temperature: float  # EnD² starts from it
    fewer: tuple[int, ...]  # members, in the ablation
    temperatures: tuple[float, ...]  # other initial ones, in the ablation
    ablation_repeats: int
    prior_norm: bool = True  # batch norm in the prior network
    note: str = ""  # how these settings were found


# the paper's Table 3 (C10: error, PRR, ECE, NLL), Table 4 (LSUN total, knowledge; TIM total, knowledge) and Table 7
PAPER = {
    "IND": ("8.0 / 84.6 / 2.2 / 0.25", "91.3 / – ; 88.9 / –", "48.2 / 47.0 / –"),
    "ENSM": ("6.2 / 86.8 / 1.3 / 0.19", "94.5 / 94.4 ; 91.8 / 91.4", "43.9 / 41.1 / 36.8"),
    "EnD": ("6.7 / 84.8 / 2.6 / 0.22", "89.0 / – ; 86.9 / –", "44.6 / 44.1 / 37.6"),
    "EnD²": ("7.3 / 85.3 / 1.0 / 0.25", "91.5 / 92.2 ; 88.6 / 88.8", "46.8 / 46.1 / 43.6"),
    "EnD+AUX": ("6.7 / 85.1 / 2.6 / 0.22", "88.6 / – ; 86.5 / –", "44.5 / 43.8 / 37.7"),
    "EnD²+AUX": ("6.9 / 85.7 / 2.2 / 0.24", "94.4 / 93.8 ; 91.3 / 90.6", "46.5 / 44.3 / 39.4"),
    "PN": ("7.5 / 82.0 / 12.0 / 0.38", "95.7 / 95.8 ; 95.7 / 95.8", "40.5 / 38.5 / 35.0"),
}
LOWER = ("error", "ECE", "NLL")  # is better
# what the paper says of CIFAR-10: the claim, the metric, who is better by it, than whom
CLAIMS = [
    ("the ensemble errs less than its members", "error", "ENSM", "IND"),
    ("EnD errs less than a single network", "error", "EnD", "IND"),
    ("EnD² errs less than a single network", "error", "EnD²", "IND"),
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
    ("auxiliary images do not help EnD", "unseen total", "EnD", "EnD+AUX"),
    ("the prior network finds them best", "unseen total", "PN", "ENSM"),
    ("EnD² is more uncertain than the ensemble on unseen sets", "total out", "EnD²", "ENSM"),
    ("... in its knowledge, too", "knowledge out", "EnD²", "ENSM"),
]


def measure(
    said: Mapping[str, Prediction], images: Mapping[str, Tensor], labels: Tensor, ensemble: Mapping[str, Prediction]
) -> Numbers:
    """Tables 3, 4 and 7's columns, the rank correlation of knowledge with the ensemble's, means and histograms.

    "in" is the test set, "out" the unseen sets together.
    """
    others = {name: x for name, x in images.items() if name != "CIFAR-10"}
    models = {
        who: {"test" if name == "CIFAR-10" else name: p for name, p in each.items()}
        for who, each in (("model", said), ("ensemble", ensemble))
    }
    result = evaluate(models, images["CIFAR-10"], labels, unfamiliar=others)
    columns = result.columns["model"]
    test = columns["CIFAR-10"] = columns["test"]
    wrong = ~test["correct"]
    doubts = {"confidence": -test["confidence"], **{k: test[k] for k in ("total", "knowledge") if k in test}}
    found: Numbers = {
        "error": float(wrong.mean()),
        "PRR": metrics.prediction_rejection_ratio(doubts["confidence"], wrong),
        "ECE": metrics.confidence_ece(test["confidence"], test["correct"]),
        "NLL": float(test["nll"].mean(dtype=np.float64)),
    }
    found |= {f"AUPR {key}": metrics.aupr(doubt, wrong) for key, doubt in doubts.items()}
    for key in [key for key in MEASURES if key in test]:
        found |= {f"{name} {key}": detection(test, columns[name], key) for name in OTHERS}
        found[f"unseen {key}"] = float(np.mean([found[f"{name} {key}"] for name in UNSEEN]))
        found |= _levels(columns, key)
    if "knowledge" in test:
        found["ρ"] = result.rows["model"]["ρ knowledge"]
    return found


def _levels(columns: dict[str, Columns], key: str) -> Numbers:
    values = {"in": columns["CIFAR-10"][key], "out": np.concatenate([columns[name][key] for name in UNSEEN])}
    levels: Numbers = {f"{key} {side}": float(v.mean()) for side, v in values.items()}
    return levels | {
        f"histogram {key} {side}": np.histogram(v, BINS, density=True)[0].tolist() for side, v in values.items()
    }


def values(found: Found, name: str, key: str) -> list[Any]:
    """A metric of every repeat."""
    return [numbers[key] for numbers in found[name]]


def ordering(found: Found, claim: str, key: str, better: str, worse: str) -> str:
    """Whether the mean of one is better than that of the other, with the spread of both."""
    runs = [values(found, name, key) for name in (better, worse)]
    gap = (np.mean(runs[0]) - np.mean(runs[1])) * (-1 if key in LOWER else 1)
    deviation = math.hypot(*(np.std(run, ddof=1) if len(run) > 1 else 0.0 for run in runs))
    raw = key == "NLL" or key.endswith(" out")
    texts = [spread(run, 3 if raw else 1, 1 if raw else 100) for run in runs]
    unsure = " (less than the spread between runs)" if abs(gap) < deviation else ""
    return verdict(f"{claim}; {key}: {better} {texts[0]}, {worse} {texts[1]}{unsure}", gap > 0)


def orderings(at: Scale, found: Found) -> list[str]:
    """Every claim of the paper on CIFAR-10, and whether it held."""
    fewest, coolest = f"M = {min(at.fewer)}", f"T₀ = {min(at.temperatures):g}"
    claims = [ordering(found, *claim) for claim in CLAIMS]
    claims += [
        ordering(found, "more members teach EnD²+AUX more", "error", "EnD²+AUX", fewest),
        ordering(found, f"EnD²+AUX needs heat: T₀ = {at.temperature:g} beats the lowest", "error", "EnD²+AUX", coolest),
    ]
    second = ("ENSM", "EnD²", "EnD²+AUX", "PN")
    apart = {
        name: 100 * (np.mean(values(found, name, "AUPR confidence")) - np.mean(values(found, name, "AUPR knowledge")))
        for name in second
    }
    text = "confidence finds errors better than knowledge does; points of AUPR between them: "
    return [*claims, verdict(text + ", ".join(f"{k} {v:+.1f}" for k, v in apart.items()), min(apart.values()) > 0)]


def page(recipe: Recipe, at: Scale, found: Found, images: int, auxiliary: int, work: Workspace) -> str:
    """The three tables with the paper's numbers beside ours, the claims and the figure."""

    def cell(name: str, key: str) -> str:
        plain = key in ("NLL", "ρ")
        known = key in found[name][0] and not (name == "ENSM" and key == "ρ")
        return spread(values(found, name, key), 3 if plain else 1, 1 if plain else 100) if known else "–"

    def rows(keys: list[str], part: int) -> list[list[str]]:
        return [[name, *(cell(name, key) for key in keys), PAPER[name][part]] for name in PAPER]

    shown = {key: {"error": "error %", "PRR": "PRR %", "ECE": "ECE %"}.get(key, key) for key in (*LOWER, "PRR", "ρ")}
    scores, ood = ["error", "PRR", "ECE", "NLL", "ρ"], [f"{s} {key}" for s in OTHERS for key in ("total", "knowledge")]
    aupr = [f"AUPR {key}" for key in ("confidence", "total", "knowledge")]
    return PAGE.format(
        at=at,
        images=f"{images:,}",
        auxiliary=f"{auxiliary:,}",
        norm="" if at.prior_norm else ", without batch norm",
        scores=table(["model", *(shown[k] for k in scores), "paper: error / PRR / ECE / NLL"], rows(scores, 0)),
        ood=table(["model", *ood, "paper: LSUN total / knowledge ; TIM total / knowledge"], rows(ood, 1)),
        aupr=table(["model", "confidence", "entropy", "knowledge", "paper"], rows(aupr, 2)),
        claims="\n".join(orderings(at, found)),
        origin=origin(recipe, "endd-cifar10", work),
    )


def draw(at: Scale, found: Found, work: Workspace) -> None:
    """Above the histograms of the three uncertainties, in-domain and out; below the two ablations."""
    figure = pyplot().figure(figsize=(16, 13), layout="constrained")
    above, below = figure.subfigures(2, 1)
    _histograms(found, above.subplots(2, 3, sharex="col"))
    members = {count: f"M = {count}" for count in at.fewer} | {at.members: "EnD²+AUX"}
    degrees = {degree: f"T₀ = {degree:g}" for degree in at.temperatures} | {at.temperature: "EnD²+AUX"}
    grid = below.subplots(2, 6)
    _curves(grid[0], "members", members, found)
    _curves(grid[1], "initial temperature", degrees, found)
    below.suptitle("EnD²+AUX by the number of members, and by the initial temperature (dashed: the ensemble)")
    save_figure(figure, work.folder / "endd-cifar10.png")


def _histograms(found: Found, panels: Any) -> None:
    sides = {"in": "CIFAR-10 test images", "out": " and ".join(UNSEEN)}
    for row, (side, title) in zip(panels, sides.items(), strict=True):
        for axes, key in zip(row, MEASURES, strict=True):
            for name, colour_of in {"ENSM": "black", "EnD²": "C0", "EnD²+AUX": "C1"}.items():
                heights = np.mean(values(found, name, f"histogram {key} {side}"), axis=0)
                axes.stairs(heights, BINS, label=name, color=colour_of, linewidth=1.5)
            axes.set(title=f"{key}: {title}", xlabel="nats", ylabel="density")
            axes.set_xlim(0, BINS[-1] if key != "knowledge" else BINS[-1] / 2)
    panels[0, 0].legend(frameon=False)


def _curves(row: Any, label: str, names: dict[Any, str], found: Found) -> None:
    """Six metrics of EnD²+AUX, and of the ensemble (of as many members)."""
    at = sorted(names)
    for axes, key in zip(row, ("error", "NLL", "ECE", "PRR", "unseen total", "unseen knowledge"), strict=True):
        runs = [values(found, names[x], key) for x in at]
        deviations = [np.std(run, ddof=1) if len(run) > 1 else 0.0 for run in runs]
        axes.errorbar(at, [np.mean(run) for run in runs], deviations, marker="o", color="C1", capsize=3)
        ensembles = [f"ENSM, {names[x]}" if f"ENSM, {names[x]}" in found else "ENSM" for x in at]
        axes.plot(at, [np.mean(values(found, name, key)) for name in ensembles], "--", color="black")
        axes.set_title(f"AUROC, {key}" if key.startswith("unseen") else key, fontsize=10)
        axes.set(xlabel=label, xticks=at)


PAGE = """# EnD² on CIFAR-10

{at.members} VGG-{at.depth} networks ({at.channels} channels in the first stage) trained on {images} images for
{at.epochs} epochs, and students of the same shape, {at.student_epochs} epochs (the prior network, PN, {at.epochs}, at
half the rate{norm}). Batches of {at.batch_sizes[0]} (members) and {at.batch_sizes[1]} (students), one-cycle rate up to
{at.lr:g}, dropout {at.dropout[0]:g} and {at.dropout[1]:g}; images flipped, shifted by up to 4 pixels and turned by up
to {at.degrees:g}°; the teacher speaks of the plain ones. EnD at temperature 2.5, EnD² from {at.temperature:g} down to
1. "+AUX" and PN: with {auxiliary} images of CIFAR-100 beside the others. IND: one member. Mean ± sample standard
deviation over {at.repeats} students (IND: over the members; there is one ensemble). {at.note}

The paper: VGG-16, 100 members, 50,000 images, 45 and 90 epochs, EnD² from 10 down; so compare orders, not digits.

## Errors and calibration (Table 3)

PRR by confidence. ρ: rank correlation of knowledge with the ensemble's on test images.

{scores}

## Unfamiliar images (Table 4)

AUROC in per cent. The paper's sets, LSUN and TinyImageNet, are not in these data: GTSRB (traffic signs) and MNIST-M
(digits over photographs) stand in. The test images of CIFAR-100 are unfamiliar too, but "+AUX" and PN were trained on
others of their kind; the claims below are about the first two, on average ("unseen").

{ood}

## Finding errors (Table 7)

Area under the precision-recall curve, in per cent: it grows with the number of errors.

{aupr}

## What the paper says, and whether it held

{claims}

## Uncertainties (Figure 4) and ablations (Appendix D)

EnD²+AUX, {at.ablation_repeats} student(s) a point; of {at.members} members and from temperature {at.temperature:g},
{at.repeats}. The paper: 20 members do better than 5, more than 20 no better; a temperature of at least 5 is needed.

![Histograms of uncertainty, and metrics by number of members and by temperature](endd-cifar10.png)

{origin}
"""
