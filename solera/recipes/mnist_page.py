"""The page of the recipe `mnist`: what came out, one table, one picture, what held; then how, and the shifts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.recipes.base import Workspace
from solera.recipes.page import judged_cell, look, pyplot, save_figure, table

if TYPE_CHECKING:
    from solera.recipes.mnist import Mnist

ANGLES = (0, 15, 30, 45, 60, 75, 90)
COLUMNS = {
    "accuracy": "accuracy",
    "NLL": "NLL",
    "ECE": "ECE",
    "PRR": "PRR",
    "OOD Fashion total": "Fashion, total",
    "OOD Fashion knowledge": "Fashion, knowledge",
    "OOD Omniglot total": "Omniglot, total",
    "OOD Omniglot knowledge": "Omniglot, knowledge",
    "ρ knowledge": "ρ knowledge",
    "µs/example": "µs an image",
}
SHIFTED = ("accuracy", "NLL", "ECE")
STUDENTS, WHOLE = ("EnD", "EnD²", "Proxy"), "Proxy + AUX"
CLAIMS = {  # what is said of a student, beside whom, in which metric, from where on, and which way is up
    "within 0.3 points of the ensemble's accuracy": ("ensemble", "accuracy", -0.003, 1),
    "lower NLL than one member": ("single", "NLL", 0.0, -1),
    "Fashion by knowledge: within 3 points of the ensemble's AUROC": ("ensemble", "OOD Fashion knowledge", -0.03, 1),
    "Omniglot by knowledge: the same": ("ensemble", "OOD Omniglot knowledge", -0.03, 1),
}


@dataclass(frozen=True)
class Found:
    """Everything that was measured."""

    test: Evaluation  # with the unfamiliar images
    photographs: Evaluation  # digits over photographs
    turned: dict[int, Evaluation]  # by degrees


def answer(found: Evaluation) -> str:
    """What came out, by the student with all there is, and whose NLL is surely lower than one member's."""

    def beside(key: str, names: tuple[str, ...] = ("single", "ensemble")) -> str:
        own, *rest = (display(key, found.rows[name][key], found.task) for name in (WHOLE, *names))
        return f"{own} ({', '.join(f'{name} {value}' for name, value in zip(names, rest, strict=True))})"

    students = [name for name in found.rows if name.startswith(STUDENTS)]
    gaps = {name: found.difference(name, "single", "NLL") for name in students}
    lower = [name for name, gap in gaps.items() if gap is not None and gap.high < 0]
    which = f" ({', '.join(lower)})" if lower else ""
    return (
        f"{WHOLE} has an accuracy of {beside('accuracy')} %, an NLL of {beside('NLL')}, and tells clothes from digits "
        f"by its knowledge with an AUROC of {beside('OOD Fashion knowledge', ('ensemble',))}, letters with "
        f"{beside('OOD Omniglot knowledge', ('ensemble',))}. Of {len(students)} students, {len(lower)} "
        f"have surely a lower NLL than one member{which}."
    )


def claims(found: Evaluation) -> str:
    """For every student, by paired intervals of resampled images: how much better, in points or nats."""
    rows = []
    for name in [name for name in found.rows if name.startswith(STUDENTS)]:
        cells = []
        for other, key, least, sign in CLAIMS.values():
            gap = found.difference(name, other, key)
            if gap is None:
                cells.append("–")
                continue
            low, high = sorted((sign * gap.low, sign * gap.high))
            cells.append(judged_cell(low, sign * gap.value, high, least, *((1, 3) if key == "NLL" else (100, 2))))
        rows.append([name, *cells])
    return table(["", *CLAIMS], rows)


def shifts(found: Found) -> str:
    """Digits over photographs, and turned ones."""
    rows = []
    for name in found.test.rows:
        told = [display(key, found.photographs.rows[name][key], found.test.task) for key in SHIFTED]
        told += [display("accuracy", found.turned[at].rows[name]["accuracy"], found.test.task) for at in ANGLES]
        rows.append([name, *told])
    return table(["model", *(f"MNIST-M {key}" for key in SHIFTED), *(f"{angle}°" for angle in ANGLES)], rows)


def draw(turned: dict[int, Evaluation], work: Workspace) -> None:
    """Accuracy and mean knowledge as the images turn."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name in turned[0].rows:
        accuracy = [100 * (turned[angle].rows[name]["accuracy"] or 0.0) for angle in ANGLES]
        left.plot(ANGLES, accuracy, label=name, **look(name))
        if "knowledge" in turned[0].columns[name]["test"]:
            knowledge = [turned[angle].columns[name]["test"]["knowledge"].mean() for angle in ANGLES]
            right.plot(ANGLES, knowledge, label=name, **look(name))
    left.set(title="The further they turn, the more is wrong", xlabel="angle in degrees", ylabel="accuracy in per cent")
    right.set(title="... and the less is known", xlabel="angle in degrees", ylabel="mean knowledge uncertainty in nats")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, work.folder / "mnist.png")


def page(recipe: "Mnist", found: Found, made: str) -> str:
    """All of it."""
    test = found.test
    rows = [[name, *(display(key, row.get(key), test.task) for key in COLUMNS)] for name, row in test.rows.items()]
    return PAGE.format(
        recipe=recipe,
        answer=answer(test),
        table=table(["model", *COLUMNS.values()], rows),
        claims=claims(test),
        shifts=shifts(found),
        images=f"{recipe.images or 60_000:,}",
        made=made,
    )


PAGE = """# MNIST

Can one small convnet stand in for {recipe.members}, and still say which images are none of its digits? {answer}

{table}

![Accuracy and mean knowledge against the angle](mnist.png)

How much better, with its paired 95 % interval over resampled images ({recipe.resamples} draws), in points or nats:

{claims}

## How

{recipe.members} convnets (8 and 16 channels, 64 hidden units) learn {images} training images, but for the first
twelfth of them, for {recipe.epochs} epochs; students of the same architecture learn what they say about these images
for {recipe.student_epochs} epochs: each is remembered in four views, some as it is and some shifted
(`Views(batches, OneOf(Plain(), Shift(3)), 4)`), which take turns, and gradients are clipped at a norm of 1. That
twelfth, which no member saw, picks each student's epoch and gives its uncertainty its size. "+ AUX": half as many
blends of two training images beside them, as unlabelled inputs. AdamW, rate 0.004, batches of 256. Unfamiliar:
Fashion-MNIST and Omniglot. Accuracy, PRR and AUROC in per cent; ρ: rank correlation of knowledge with the ensemble's
on the test images. One seed.

Views, length and clipping were chosen on the held-out twelfth, where members have an NLL of 0.038 to 0.044 and the
ensemble 0.033: Proxy has 0.036 and EnD² 0.047; after 12 epochs of the plain images, without clipping, they had 0.040
and 0.078. Members' length and all rates were set by judgement. Earlier runs of this page had shown the test images.

## Under shift

Digits over photographs (MNIST-M, grey), and accuracy (per cent) after turning the test images.

{shifts}

{made}
"""
