"""The page of the recipe `many-classes`: a table for each number of classes, what held, and one picture."""

from typing import TYPE_CHECKING, Any

from solera.recipes.base import Workspace
from solera.recipes.page import judged, pyplot, save_figure, table

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


def claims(found: Found) -> list[str]:
    """What the paper says of many classes, and what Solera adds to it, by paired intervals of resampled images."""
    lines = []
    largest = max(found, key=int)

    def judge(claim: str, classes: str, pair: str, metric: str, least: float = 0.0, sign: int = 1) -> None:
        gap = found[classes]["gaps"][pair].get(metric)
        if gap is not None:
            low, middle, high = (sign * value for value in (gap if sign > 0 else reversed(gap)))
            lines.append(judged(f"{classes} classes: {claim}", low, middle, high, least))

    for classes in found:
        judge("the ensemble is more accurate than one member, in points", classes, "ensemble − single", "accuracy")
        judge(
            "the proxy is at most a point less accurate than EnD, in points", classes, "Proxy − EnD", "accuracy", -0.01
        )
        judge("the proxy has a lower NLL than one member, in nats × 100", classes, "Proxy − single", "NLL", sign=-1)
        judge(
            "without the one its NLL is lower than with it, in nats × 100",
            classes,
            "Proxy − Proxy, with the one",
            "NLL",
            sign=-1,
        )
        for name in ("Fashion", "alphabets"):
            claim = f"the proxy tells {name} by knowledge within 2 points of the ensemble's AUROC, in points"
            judge(claim, classes, "Proxy − ensemble", f"OOD {name} knowledge", -0.02)
    claim = "EnD² fails where there are many classes: at least 5 points less accurate than EnD, in points"
    judge(claim, largest, "EnD² − EnD", "accuracy", 0.05, -1)
    return lines


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
        claims="\n".join(claims(found)),
        made=made,
    )


PAGE = """# Many classes

{where}Can an ensemble of many classes be distilled into one network that keeps its uncertainty? The proxy paper says:
with a Dirichlet by maximum likelihood (EnD²) not, with a proxy yes. Here the classes are Omniglot's characters in
four rotations.

{sections}

![Accuracy and NLL against the number of classes](many-classes.png)

What held, by paired 95 % intervals over resampled test images:

{claims}

How: {recipe.members} convnets (8, 16 and 32 channels, 128 hidden units) and students of the same architecture,
{recipe.epochs} epochs or {recipe.steps} steps, whichever is more (AdamW, rate {recipe.lr}, batches of
{recipe.batch_size}). Of the 20 images of a class 4 are for the test; of the others an eighth, drawn at random, picks
the students' epoch and gives their uncertainty its size. Students see the training images only. Classes are numbered
character by character: 60 classes are 15 characters, 968 are all 242. Unfamiliar: Fashion-MNIST, and upright
characters of alphabets that none of the classes is from; at 968 classes no alphabet is left. "With the one": the same
weights, predicting with e^z + 1 as the paper does. One seed; accuracy, ECE, PRR and AUROC in per cent. The settings
were fixed before any image of the test was judged; `judged_on=validation` is there to choose others.

{made}
"""
