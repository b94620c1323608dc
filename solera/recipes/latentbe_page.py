"""What the studies of LatentBE on CIFAR measure, and their page: the paper's tables beside ours, and what held."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera import metrics
from solera.calibration import calibrated_ece, calibrated_nll
from solera.distributions import Mixture
from solera.evaluation.stream import Predictor
from solera.methods import BatchEnsemble
from solera.recipes.base import Recipe, Workspace
from solera.recipes.latentbe import MEMBERS, Scale, Sets, Setting
from solera.recipes.page import judged_cell, origin, over_repeats, pyplot, save_figure, spread, table, told_apart
from solera.training import Student
from solera.training.engine import precision_named

Numbers = dict[str, Any]  # a model's metrics
Found = dict[str, list[Numbers]]  # model -> one for each repeat
SCORES = ("ACC", "NLL", "ECE", "cNLL", "cECE")


def measure(model: Predictor, sets: Sets) -> Numbers:
    """Scores as they are and after temperature scaling, means under corruption, entropies, and time per image."""
    said = {name: model.predict(images).mean.double().numpy() for name, (images, _) in sets.items()}
    labels = {name: y.numpy() for name, (_, y) in sets.items() if y is not None}

    def scores(name: str) -> Numbers:
        probs, y = said[name], labels[name]
        return {"ACC": 100 * metrics.accuracy(probs, y), "NLL": metrics.nll(probs, y), "ECE": metrics.ece(probs, y)}

    with np.errstate(divide="ignore"):
        logits = {name: np.log(said[name]) for name in ("validation", "test")}
    calibrated = logits["validation"], labels["validation"], logits["test"], labels["test"]
    found: Numbers = {
        **scores("test"),
        "cNLL": calibrated_nll(*calibrated),
        "cECE": calibrated_ece(*calibrated),
    }
    spoilt = [scores(name) for name in labels if name not in ("test", "validation")]
    found["corrupted"] = {key: float(np.mean([row[key] for row in spoilt])) for key in spoilt[0]}
    entropies = {name: entropy(said[name]) for name in ("test", *(set(sets) - set(labels)))}
    edges = np.linspace(0, np.log(said["test"].shape[-1]), 31)
    found["histogram"] = {name: (np.histogram(e, edges)[0] / len(e)).tolist() for name, e in entropies.items()}
    found["AUROC"] = {name: told_apart(entropies["test"], e) for name, e in entropies.items() if name != "test"}
    start = time.process_time()
    model.predict(sets["test"][0][:1024])
    found["ms/image"] = 1e3 * (time.process_time() - start) / 1024
    return found


@torch.no_grad()
def apart(student: Student, images: Tensor, labels: Tensor | None) -> Numbers:
    """The subnetworks' NLL, each by itself, on average."""
    assert labels is not None
    said = Student(student.model, BatchEnsemble()).predict(images)
    assert isinstance(said, Mixture)
    each = said.members.log_prob(labels.unsqueeze(-1).expand(-1, MEMBERS))
    return {"NLL of each": float(-each.double().mean())}


def entropy(probs: np.ndarray) -> np.ndarray:
    """Of each row, in nats."""
    return -np.where(probs > 0, probs * np.log(np.where(probs > 0, probs, 1)), 0).sum(-1)


def lower(found: Found, one: str, other: str, key: str) -> list[float]:
    """By how much `one`'s metric lies below `other`'s, study by study.

    The key "NLL of each" compares `one`'s NLL with that of `other`'s subnetworks, each by itself.
    """
    own = "NLL" if key == "NLL of each" else key
    return [b[key] - a[own] for a, b in zip(found[one], found[other], strict=True)]


BEST = "LatentBE + TDiv−SDiv"
WAYS_TO_KEEP = {  # what four know, in one network
    "KD": "if it learns their mean",
    "LatentBE": "if it is merged from four subnetworks",
    BEST: "if these also saw images on which the four disagree",
}
MERGED = ("LatentBE", "LatentBE, subnetworks")
CLAIMS = [  # of the paper: the claim, whose metric is lower, than whose, and which
    ("KD's NLL is lower than one member's", "KD", "one member", "NLL"),
    ("LatentBE's NLL is lower than one member's", "LatentBE", "one member", "NLL"),
    ("LatentBE's NLL is lower than KD's", "LatentBE", "KD", "NLL"),
    ("LatentBE's calibrated NLL is lower than KD's", "LatentBE", "KD", "cNLL"),
    ("TDiv−SDiv lowers LatentBE's NLL", BEST, "LatentBE", "NLL"),
    ("TDiv−SDiv lowers LatentBE's ECE", BEST, "LatentBE", "ECE"),
    ("TDiv−SDiv lowers LatentBE's calibrated NLL", BEST, "LatentBE", "cNLL"),
    ("TDiv−SDiv does better than ConfODS in NLL", BEST, "LatentBE + ConfODS", "NLL"),
    ("the merged network's NLL is lower than its subnetworks', each by itself", *MERGED, "NLL of each"),
    ("with TDiv−SDiv too", BEST, f"{BEST}, subnetworks", "NLL of each"),
    ("and lower than that of their mean prediction, which costs four times as much", *MERGED, "NLL"),
    ("LatentBE's NLL, for one network's cost, is lower than BatchEnsemble's", "LatentBE", "BE", "NLL"),
]


def claims(found: Found) -> str:
    """The paper's orderings, and whether they came out here: by how much lower, over the studies."""
    rows = [
        [claim, judged_cell(*over_repeats(lower(found, one, other, key)), 0.0, 1, 4)]
        for claim, one, other, key in CLAIMS
        if one in found and other in found
    ]
    return table(["claim", "how much lower"], rows)


def answer(found: Found) -> str:
    """What came out: how much of what four networks gain over one, in NLL, a single student keeps."""
    nll = {name: float(np.mean([row["NLL"] for row in rows])) for name, rows in found.items()}

    def told(name: str) -> str:
        accuracy, each = (spread([row[key] for row in found[name]], digits) for key, digits in (("ACC", 1), ("NLL", 3)))
        return f"{accuracy} % of the test images (NLL {each})"

    gain = nll["one member"] - nll["DE-4"]
    text = f"One network is right on {told('one member')}, four together on {told('DE-4')}"
    if gain <= 0:
        return f"{text}: there is no gain in NLL to keep."
    shares = {name: 100 * (nll["one member"] - nll[name]) / gain for name in WAYS_TO_KEEP if name in found}
    kept = [f"{max(share, 0):.0f} % {WAYS_TO_KEEP[name]} ({name})" for name, share in shares.items()]
    return f"{text}; of this gain in NLL a single network keeps, by the mean, {', '.join(kept)}."


def page(recipe: Recipe, setting: Setting, at: Scale, found: Found, sizes: list[int], work: Workspace) -> str:
    """The paper's tables beside ours, and what held."""

    def cell(name: str, key: str, digits: int, inside: str | None = None) -> str:
        values = [(row[inside] if inside else row)[key] for row in found[name]]
        return "–" if values[0] is None else spread(values, digits)

    shown = [name for name in found if not name.endswith("subnetworks")]
    digits = {"ACC": 2}
    printed = {"paper: " + " / ".join(SCORES): setting.paper}
    printed |= {"paper, TinyImageNet: ACC / NLL / ECE": setting.paper_tiny} if setting.paper_tiny else {}
    scores = [
        [
            name,
            *(cell(name, key, digits.get(key, 3)) for key in SCORES),
            *(one.get(name, "–") for one in printed.values()),
        ]
        for name in found
    ]
    spoilt = [
        [
            name,
            *(cell(name, key, digits.get(key, 3), "corrupted") for key in ("ACC", "NLL", "ECE")),
            setting.paper_corrupted.get(name, "–"),
        ]
        for name in shown
    ]
    unfamiliar = sorted(found["KD"][0]["AUROC"])
    told = [[name, *(cell(name, key, 3, "AUROC") for key in unfamiliar)] for name in shown]
    times = [
        [name, cell(name, "training", 0), cell(name, "ms/image", 3), setting.paper_time.get(name, "–")]
        for name in shown
    ]
    kind = f"CIFAR-{setting.classes}"
    labelled, seen = (f"{size:,}" for size in sizes)
    lessons = (f"{size * epochs:,}" for size, epochs in zip(sizes, (at.epochs, at.student_epochs), strict=True))
    return PAGE.format(
        kind=kind,
        at=at,
        precision=precision_named(at.precision, "auto"),
        labelled=labelled,
        seen=seen,
        lessons=" and a student ".join(lessons),
        answer=answer(found),
        name=setting.name,
        number=2 if setting.classes == 10 else 3,
        scores=table(["model", "ACC %", *SCORES[1:], *printed], scores),
        claims=claims(found),
        spoilt_images=f"the first {at.corrupted}" if at.corrupted else "all",
        spoilt=table(["model", "ACC %", "NLL", "ECE", "paper: ACC / NLL / ECE"], spoilt),
        told=table(["model", *unfamiliar], told),
        times=table(["model", "training, CPU seconds", "inference, CPU ms an image", "paper (WRN-28-4)"], times),
        origin=origin(recipe, setting.name, work),
    )


def draw(setting: Setting, found: Found, work: Workspace) -> None:
    """Histograms of the predictive entropy, in and out of distribution (the paper's Figures 5 and 6)."""
    chosen = ["DE-4", "KD", "Proxy-EnD²", "LatentBE", "LatentBE + ConfODS", "LatentBE + TDiv−SDiv"]
    unfamiliar = sorted(found["KD"][0]["AUROC"])
    figure, rows = pyplot().subplots(
        len(unfamiliar), len(chosen), figsize=(16, 5.4), layout="constrained", sharex=True, sharey=True
    )
    edges = np.linspace(0, np.log(setting.classes), 31)
    for row, other in zip(rows, unfamiliar, strict=True):
        for axes, name in zip(row, chosen, strict=True):
            for kind, colour_of in (("test", "C0"), (other, "C3")):
                share = np.mean([numbers["histogram"][kind] for numbers in found[name]], 0)
                label = f"CIFAR-{setting.classes} test" if kind == "test" else other
                axes.stairs(100 * share, edges, fill=True, alpha=0.45, color=colour_of, label=label)
            axes.set_title(name if other == unfamiliar[0] else "", fontsize=10)
        row[0].set_ylabel("% of images")
        row[-1].legend(frameon=False, fontsize=8)
    for axes in rows[-1]:
        axes.set_xlabel("predictive entropy, nats")
    save_figure(figure, work.folder / f"{setting.name}.png")


PAGE = """# LatentBE on {kind}

Can one network have what four know, by averaging the weights of subnetworks that learnt from them? {answer}

{scores}

Mean ± sample standard deviation over {at.repeats} studies, each with its own four networks; the paper's Table {number}.
"subnetworks": the mean prediction of LatentBE's subnetworks before they are merged, at four times the cost. cNLL and
cECE: after temperature scaling on {at.validation:,} held-out images.

![Histograms of the predictive entropy]({name}.png)

## What the paper says, and whether it held

With 95 % intervals over the studies (Student's t), which are wide with so few:

{claims}

## How

Four {at.networks} learn {labelled} labelled images for {at.epochs} epochs: SGD with Nesterov momentum, peak rate
{at.lr}, batches of {at.batch_size}, weight decay 5·10⁻⁴, shifts and flips. Students of the same architecture see {seen}
images for {at.student_epochs} epochs and ask the four about each, at temperature 4, without labels. Over all epochs a
member sees {lessons} images; the number of the students' epochs was chosen {at.chosen}. Training has the precision
{precision}, members answer students in {at.asked_in}, and all is measured in float32. Images stay in [0, 1]; the
paper standardizes them. Earlier runs of this page had shown the test images.

## Corrupted images (Table 4)

Mean over 17 corruptions at 5 severities of {spoilt_images} test images, written here in the manner of CIFAR-C (not the
published files).

{spoilt}

## Unfamiliar images

AUROC of telling them from test images by predictive entropy; SVHN, LSUN and TinyImageNet of the paper are not at hand.

{told}

## Run time (Table 5)

{times}

CPU time of one process; the paper's hours and milliseconds are of a GPU.

{origin}
"""
