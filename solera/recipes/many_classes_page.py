"""The page of the recipe `many-classes`: a table for each number of classes, what held, and one picture."""

import re
from typing import TYPE_CHECKING, Any

from solera.evaluation.recalibrated import calibrated_name
from solera.recipes.base import Workspace
from solera.recipes.page import judged_cell, look, pyplot, save_figure, table

if TYPE_CHECKING:
    from solera.recipes.many_classes import ManyClasses

Found = dict[str, dict[str, Any]]  # "60 classes" or "4,000 tokens" -> examples, rows, gaps

COLUMNS = ("accuracy", "NLL", "ECE", "PRR", "ρ knowledge")  # and the detection of every unfamiliar set
DIGITS = {"NLL": (3, 1), "ρ knowledge": (2, 1)}  # and what a number is multiplied by; others are in per cent
CLIP = 1.0  # of students' gradients: now and then EnD²'s are so large that its training does not recover
WITH_AUX = "Proxy + AUX"
FAILS = "EnD² fails: 5 points or more behind EnD"
PUBLISHED = "Proxy, with the one"  # the same weights, predicting with e^z + 1
SAME_ANSWERS = PUBLISHED, calibrated_name("single")  # as right as "Proxy" and "single" are
# a claim: of whom, beside whom, in which metric, from where on, and which way is up
CLAIMS: dict[str, tuple[tuple[str, str], str, float, int]] = {
    "The ensemble is more accurate than one member": (("ensemble", "single"), "accuracy", 0.0, 1),
    FAILS: (("EnD²", "EnD"), "accuracy", 0.05, -1),
    "The proxy is at most a point less accurate than EnD": (("Proxy", "EnD"), "accuracy", -0.01, 1),
    "... more accurate than one member": (("Proxy", "single"), "accuracy", 0.0, 1),
    "... has a lower NLL than one member": (("Proxy", "single"), "NLL", 0.0, -1),
    "Without the one its NLL is lower than with it": (("Proxy", PUBLISHED), "NLL", 0.0, -1),
    "Other alphabets by knowledge: AUROC at most 2 points below the ensemble's": (
        ("Proxy", "ensemble"),
        "OOD alphabets knowledge",
        -0.02,
        1,
    ),
    "Fashion by knowledge, with auxiliary photographs: at most 2 points below": (
        (WITH_AUX, "ensemble"),
        "OOD Fashion knowledge",
        -0.02,
        1,
    ),
    "The photographs help there": ((WITH_AUX, "Proxy"), "OOD Fashion knowledge", 0.0, 1),
    "French captions by knowledge: at most 2 points below": (("Proxy", "ensemble"), "OOD French knowledge", -0.02, 1),
    "Shuffled ones by knowledge: at most 2 points below": (("Proxy", "ensemble"), "OOD shuffled knowledge", -0.02, 1),
}


def _number(row: dict[str, float | None], metric: str) -> str:
    digits, scale = DIGITS.get(metric, (1, 100))
    value = row.get(metric)
    return "–" if value is None else f"{scale * value:.{digits}f}"


def section(title: str, one: dict[str, Any]) -> str:
    """The table of one number of classes."""
    train, held, test = one["examples"]
    far = [metric for metric in one["rows"]["ensemble"] if metric.startswith("OOD ")]
    rows = [[model, *(_number(row, metric) for metric in (*COLUMNS, *far))] for model, row in one["rows"].items()]
    sizes = f"{train:,} training examples, {held:,} for validation, judged on {test:,}."
    return f"## {title}\n\n{sizes}\n\n{table(['model', *COLUMNS, *far], rows)}"


def claims(found: Found) -> str:
    """What the paper says of many classes, and what Solera adds to it, by paired intervals of resampled images."""
    rows = []
    for claim, ((one, other), metric, least, sign) in CLAIMS.items():
        cells = []
        for title in found:
            gap = found[title]["gaps"].get(f"{one} − {other}", {}).get(metric)
            if gap is None:
                cells.append("–")
                continue
            low, middle, high = (sign * value for value in (gap if sign > 0 else reversed(gap)))
            cells.append(judged_cell(low, middle, high, least, *((1, 3) if metric == "NLL" else (100, 1))))
        rows.append([claim, *cells])
    return table(["", *found], rows)


def _kept(one: dict[str, Any]) -> str:
    """How right the proxy is, beside the others."""

    def of(metric: str, *models: str) -> str:
        return ", ".join(_number(one["rows"][model], metric) for model in models)

    others = ("single", "ensemble", "EnD", "EnD²")
    return (
        f"the proxy is right on {of('accuracy', 'Proxy')} %, with an NLL of {of('NLL', 'Proxy')} (a single network, "
        f"the ensemble, EnD and EnD²: {of('accuracy', *others)} %; {of('NLL', *others)})"
    )


def _told(found: Found) -> list[str]:
    """How well the proxy's knowledge tells each unfamiliar set, with the most classes that have it."""
    told = {}
    for title, one in sorted(found.items(), key=lambda pair: _count(pair[0])):
        for metric in [metric for metric in one["rows"]["ensemble"] if re.fullmatch("OOD .* knowledge", metric)]:
            name = metric.removeprefix("OOD ").removesuffix(" knowledge")
            own, theirs = (_number(one["rows"][model], metric) for model in ("Proxy", "ensemble"))
            told[name] = f"{name} {own} / {theirs} ({title})"
    return (
        [f"AUROC of unfamiliar inputs by knowledge, proxy / ensemble (50 is chance): {', '.join(told.values())}."]
        if told
        else []
    )


def _count(title: str) -> int:
    """Of classes or tokens."""
    return int(title.split()[0].replace(",", ""))


def answer(found: Found) -> str:
    """What came out at the largest number of classes, where EnD² fails, and what of the uncertainty was kept."""
    most = max((title for title in found if title.endswith("classes")), key=_count)
    return " ".join([f"With {most} {_kept(found[most])}.", *_failures(found), *_told(found)])


def _failures(found: Found) -> list[str]:
    """With how many classes EnD² fails, as its claim says, and with how many it does not."""
    (one, other), metric, least, sign = CLAIMS[FAILS]
    gaps = {title: found[title].get("gaps", {}).get(f"{one} − {other}", {}).get(metric) for title in found}
    fails = {title: sign * gap[-1 if sign < 0 else 0] > least for title, gap in gaps.items() if gap is not None}
    yes, no = (", ".join(title for title in fails if fails[title] == wanted) for wanted in (True, False))
    return (
        [f"EnD² is surely over {100 * least:.0f} points behind EnD with {yes}{f', but not with {no}' if no else ''}."]
        if yes
        else []
    )


def draw(found: Found, work: Workspace) -> None:
    """Accuracy and NLL against the number of classes; who has another's weights is left out on the left."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    counts = dict(sorted((_count(title), one["rows"]) for title, one in found.items()))
    models = list(next(iter(counts.values())))
    for panel, (metric, scale) in zip(panels, (("accuracy", 100), ("NLL", 1)), strict=True):
        for model in [model for model in models if metric == "NLL" or model not in SAME_ANSWERS]:
            values = [scale * rows[model][metric] for rows in counts.values()]
            panel.plot(list(counts), values, marker="o", label=model, **look(model))
        panel.set(xscale="log", xlabel="classes", ylabel=f"{metric}{', per cent' if scale == 100 else ', nats'}")
        panel.set_xticks(list(counts), [str(count) for count in counts])
        panel.minorticks_off()
    panels[1].set(yscale="log", yticks=(1, 2, 4, 8), yticklabels=("1", "2", "4", "8"))  # EnD²'s is far above the others
    panels[1].minorticks_off()
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, work.folder / "many-classes.png")
    plt.close(figure)


def summary(found: Found) -> str:
    """Accuracy and NLL of every model, a column for each number of classes."""
    models = list(next(iter(found.values()))["rows"])

    def cell(one: dict[str, Any], model: str) -> str:
        row = one["rows"].get(model)
        return "–" if row is None else " / ".join(_number(row, metric) for metric in ("accuracy", "NLL"))

    return table(["model", *found], [[model, *(cell(one, model) for one in found.values())] for model in models])


# the proxy paper's Tables 1 and 2: ImageNet's accuracy and ECE, AUROC of ImageNet-O (other classes) by total, knowledge
PAPER = {
    "single": ("75.9 / 4.8", "50.7 / –"),
    "ensemble": ("79.0 / 2.3", "54.6 / 61.2"),
    "EnD": ("77.0 / 1.6", "48.8 / –"),
    "Proxy": ("77.1 / 1.6", "52.1 / 53.2"),
}


def beside(found: Found) -> str:
    """The paper's tables beside ours: of most classes, and of the most that leave other classes unseen."""
    images = sorted((title for title in found if title.endswith("classes")), key=_count)
    unseen = [title for title in images if "OOD alphabets knowledge" in found[title]["rows"]["ensemble"]]

    def cell(title: str, model: str, keys: tuple[str, str]) -> str:
        return " / ".join(_number(found[title]["rows"][model], key) for key in keys)

    names = [f"accuracy / ECE, {images[-1]}", "paper: ImageNet"]
    names += [f"AUROC of other alphabets, total / knowledge, {unseen[-1]}", "paper: ImageNet-O"] if unseen else []
    rows = []
    for model, (score, told) in PAPER.items():
        row = [model, cell(images[-1], model, ("accuracy", "ECE")), score]
        row += [cell(unseen[-1], model, ("OOD alphabets total", "OOD alphabets knowledge")), told] if unseen else []
        rows.append(row)
    return table(["model", *names], rows)


def page(recipe: "ManyClasses", found: Found, captions: str, made: str) -> str:
    """All of it."""
    where = "" if recipe.judged_on == "test" else "**Judged on validation examples, not on test examples.** "
    return PAGE.format(
        recipe=recipe,
        where=where,
        answer=answer(found),
        summary=summary(found),
        claims=claims(found),
        captions=captions,
        clip=CLIP,
        beside=beside(found),
        sections="\n\n".join(section(title, one) for title, one in found.items()),
        made=made,
    )


PAGE = """# Many classes

{where}Can an ensemble of many classes be distilled into one network that keeps its uncertainty? The proxy paper says:
with a Dirichlet by maximum likelihood (EnD²) not, with a proxy yes. {answer}

Accuracy in per cent / NLL in nats:

{summary}

Classes are Omniglot's characters in four rotations, tokens the next ones of captions. "With the one": the same
weights, predicting with e^z + 1 as the paper does. "+ AUX": photographs beside the characters. "Calibrated": one
temperature, fitted on one half of the test examples and judged on the other.

![Accuracy and NLL against the number of classes](many-classes.png)

What held, by paired 95 % intervals over {recipe.resamples} draws of test examples; in points, NLL in nats. A drawing
in four rotations, and the places of one caption, are drawn as if they were independent: true intervals are wider.

{claims}

## How

{recipe.members} convnets (8, 16 and 32 channels, 128 hidden units) and students of the same architecture,
{recipe.epochs} epochs or {recipe.steps} steps, whichever is more (AdamW, rate {recipe.lr}, batches of
{recipe.batch_size}). Of the 20 images of a class 4 are for the test; of the others an eighth, drawn at random, picks
the students' epoch and gives their uncertainty its size. Students see the training images, half of them shifted at
random (`views="auto"`), and ask the members about what they see; "+ AUX": beside half as many photographs (CIFAR-10,
grey and shrunk), so that in as many steps it sees the characters less often. EnD² starts from temperature 10. Classes
are numbered character by character: 60 classes are 15 characters, 968 are all 242. Unfamiliar: Fashion-MNIST, and
upright characters of alphabets that none of the classes is from; at 968 classes no alphabet is left. One seed;
accuracy, ECE, PRR and AUROC in per cent.
{captions}
Chosen by the 120 validation images at 60 classes (`judged_on=validation`), after runs of this page without them had
shown the test images: shifted images, photographs, and that students' gradients are clipped at a norm of {clip:g}.
Without clipping EnD² was right on at most 17 % of those images after as many epochs, whatever the rate or the first
temperature (three and three were tried); with it, on 46 %. EnD and the proxy have about 60 %, with it and without.

## Beside the paper's tables

The paper's largest set has 1,000 classes (ImageNet, ten ResNet-50). There the students' accuracy lies between one
network's and the ensemble's, and the proxy's is no worse than EnD's.

{beside}

{sections}

{made}
"""
TOKENS_HOW = """
Tokens: {recipe.members} networks (six embedded tokens, one hidden layer of 128 units) learn which of {recipe.tokens:,}
tokens is the next at {recipe.places:,} places of English captions, for {epochs[members]} epochs; students see the same
places for {epochs[student]} (rate {rate}, batches of {size}). Unfamiliar: French captions, and English ones whose six
tokens were shuffled. Lengths and rate were chosen on validation places.
"""
