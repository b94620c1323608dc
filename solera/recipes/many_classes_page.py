"""The page of the recipe `many-classes`: a table for each number of classes, what held, and one picture."""

from typing import TYPE_CHECKING, Any

from solera.recipes.base import Workspace
from solera.recipes.page import judged_cell, pyplot, save_figure, table

if TYPE_CHECKING:
    from solera.recipes.many_classes import ManyClasses

Found = dict[str, dict[str, Any]]  # number of classes -> images, rows, gaps

COLUMNS = {
    "accuracy": (1, 100),
    "NLL": (3, 1),
    "ECE": (1, 100),
    "PRR": (1, 100),
    "ρ knowledge": (2, 1),
    "OOD Fashion total": (1, 100),
    "OOD Fashion knowledge": (1, 100),
    "OOD alphabets total": (1, 100),
    "OOD alphabets knowledge": (1, 100),
}
WITH_AUX = "Proxy + AUX"
PUBLISHED = "Proxy, with the one"  # the same weights, predicting with e^z + 1
# a claim: of whom, beside whom, in which metric, from where on, and which way is up
CLAIMS: dict[str, tuple[tuple[str, str], str, float, int]] = {
    "The ensemble is more accurate than one member": (("ensemble", "single"), "accuracy", 0.0, 1),
    "EnD² fails: 5 points or more behind EnD": (("EnD²", "EnD"), "accuracy", 0.05, -1),
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
}


def _number(row: dict[str, float | None], metric: str) -> str:
    digits, scale = COLUMNS[metric]
    value = row.get(metric)
    return "–" if value is None else f"{scale * value:.{digits}f}"


def section(classes: str, one: dict[str, Any]) -> str:
    """The table of one number of classes."""
    train, held, test = one["images"]
    shown = [metric for metric in COLUMNS if any(row.get(metric) is not None for row in one["rows"].values())]
    rows = [[model, *(_number(row, metric) for metric in shown)] for model, row in one["rows"].items()]
    sizes = f"{train:,} training images, {held:,} validation images, judged on {test:,}."
    return f"## {classes} classes\n\n{sizes}\n\n{table(['model', *shown], rows)}"


def claims(found: Found) -> str:
    """What the paper says of many classes, and what Solera adds to it, by paired intervals of resampled images."""
    rows = []
    for claim, ((one, other), metric, least, sign) in CLAIMS.items():
        cells = []
        for classes in found:
            gap = found[classes]["gaps"][f"{one} − {other}"].get(metric)
            if gap is None:
                cells.append("–")
                continue
            low, middle, high = (sign * value for value in (gap if sign > 0 else reversed(gap)))
            cells.append(judged_cell(low, middle, high, least, *((1, 3) if metric == "NLL" else (100, 1))))
        rows.append([claim, *cells])
    return table(["", *(f"{classes} classes" for classes in found)], rows)


def answer(found: Found) -> str:
    """What came out at the largest number of classes, and where an alphabet was left."""
    most = max(found, key=int)
    rows = found[most]["rows"]
    accuracies = ", ".join(f"{name} {_number(rows[name], 'accuracy')}" for name in ("single", "ensemble", "EnD"))
    text = (
        f"With {most} classes the proxy is right on {_number(rows['Proxy'], 'accuracy')} % ({accuracies}, EnD² "
        f"{_number(rows['EnD²'], 'accuracy')}), with an NLL of {_number(rows['Proxy'], 'NLL')} (single "
        f"{_number(rows['single'], 'NLL')}, ensemble {_number(rows['ensemble'], 'NLL')})."
    )
    key = "OOD alphabets knowledge"
    for classes in sorted(found, key=int, reverse=True):
        rows = found[classes]["rows"]
        if rows["Proxy"].get(key) is not None:
            own, theirs = _number(rows["Proxy"], key), _number(rows["ensemble"], key)
            return (
                f"{text} With {classes} classes it tells other alphabets by its knowledge with an AUROC of {own} (the "
                f"ensemble {theirs})."
            )
    return text


def draw(found: Found, work: Workspace) -> None:
    """Accuracy and NLL against the number of classes."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    counts = sorted(found, key=int)
    for panel, (metric, scale) in zip(panels, (("accuracy", 100), ("NLL", 1)), strict=True):
        for model in found[counts[0]]["rows"]:
            values = [scale * found[classes]["rows"][model][metric] for classes in counts]
            style = {"color": "black", "linewidth": 2.5} if model == "ensemble" else {}
            panel.plot([int(c) for c in counts], values, marker="o", label=model, **style)
        panel.set(xscale="log", xlabel="classes", ylabel=f"{metric}{', per cent' if scale == 100 else ', nats'}")
        panel.set_xticks([int(c) for c in counts], counts)
        panel.minorticks_off()
    panels[1].set(yscale="log", yticks=(1, 2, 4, 8), yticklabels=("1", "2", "4", "8"))  # EnD²'s is far above the others
    panels[1].minorticks_off()
    panels[0].legend(frameon=False)
    save_figure(figure, work.folder / "many-classes.png")
    plt.close(figure)


def page(recipe: "ManyClasses", found: Found, made: str) -> str:
    """All of it."""
    where = "" if recipe.judged_on == "test" else "**Judged on validation images, not on the test images.** "
    return PAGE.format(
        recipe=recipe,
        where=where,
        sections="\n\n".join(section(classes, one) for classes, one in found.items()),
        answer=answer(found),
        claims=claims(found),
        made=made,
    )


PAGE = """# Many classes

{where}Can an ensemble of many classes be distilled into one network that keeps its uncertainty? The proxy paper says:
with a Dirichlet by maximum likelihood (EnD²) not, with a proxy yes. Here the classes are Omniglot's characters in
four rotations. {answer}

{sections}

![Accuracy and NLL against the number of classes](many-classes.png)

What held, by paired 95 % intervals over resampled test images; in points, NLL in nats:

{claims}

## How

{recipe.members} convnets (8, 16 and 32 channels, 128 hidden units) and students of the same architecture,
{recipe.epochs} epochs or {recipe.steps} steps, whichever is more (AdamW, rate {recipe.lr}, batches of
{recipe.batch_size}). Of the 20 images of a class 4 are for the test; of the others an eighth, drawn at random, picks
the students' epoch and gives their uncertainty its size. Students see the training images, half of them shifted at
random (`views="auto"`), and ask the members about what they see; "+ AUX": beside half as many photographs (CIFAR-10,
grey and shrunk), so that in as many steps it sees the characters less often. EnD² starts from temperature 10. Classes
are numbered character by character: 60 classes are 15 characters, 968 are all 242. Unfamiliar: Fashion-MNIST, and
upright characters of alphabets that none of the classes is from; at 968 classes no alphabet is left. "With the one":
the same weights, predicting with e^z + 1 as the paper does. One seed; accuracy, ECE, PRR and AUROC in per cent. Shifted
images and photographs were chosen by validation images at 60 classes (`judged_on=validation`), after a first run of
this page, without them, had shown the test images.

{made}
"""
