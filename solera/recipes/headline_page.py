"""The page of the recipe `headline`: one table, one picture, and what held."""

from typing import TYPE_CHECKING, Any

import numpy as np

from solera.evaluation.intervals import ends
from solera.evaluation.recalibrated import calibrated_name
from solera.recipes.base import Workspace
from solera.recipes.page import origin, paired_gap, pyplot, save_figure, table
from solera.recipes.problems import described

if TYPE_CHECKING:
    from solera.recipes.headline import Headline

Studies = list[dict[str, Any]]  # of one problem
MODELS = ("single", "ensemble", "student")
CALIBRATED = calibrated_name("single")
RIVALS = "single", CALIBRATED  # one member, as it is and calibrated
RIGHT_SIZE = 0.8, 1.25  # of the ensemble's uncertainty
SHOWN = -2.0, 4.0  # shares of the gain that the picture has room for
RECOVERED, DETECTED = 0.6, 0.02  # of the ensemble's gain in NLL; AUROC that may be lost


def gap(studies: Studies, one: str, other: str, metric: str) -> tuple[float, float, float]:
    """`one`'s metric less `other`'s: the low end of the 95 % interval, the mean over studies, the high end."""
    ours, theirs = ([(s["rows"][m][metric], s["draws"][m][metric]) for s in studies] for m in (one, other))
    return paired_gap(ours, theirs, inflated=metric == "ECE")


def mean(studies: Studies, model: str, metric: str) -> float | None:
    """Over the studies; None where a model has no such number."""
    values = [study["rows"][model].get(metric) for study in studies]
    return None if any(value is None for value in values) else float(np.mean(values))


def first(studies: Studies) -> str:
    """What a person asks first: accuracy, or the error of a forecast."""
    return "accuracy" if "accuracy" in studies[0]["rows"]["student"] else "RMSE"


def unfamiliar(studies: Studies) -> str | None:
    """The name of the unfamiliar set."""
    names = [key.removeprefix("OOD ").removesuffix(" knowledge") for key in studies[0]["rows"]["student"]]
    found = [n for n, key in zip(names, studies[0]["rows"]["student"], strict=True) if key.startswith("OOD ")]
    return found[0].removesuffix(" total") if found else None


def surely_better(studies: Studies, metric: str, rivals: tuple[str, ...] = RIVALS) -> bool:
    """Whether the student is surely better than each of these."""
    gaps = [gap(studies, "student", rival, metric) for rival in rivals]
    return all(low > 0 if metric == "accuracy" else high < 0 for low, _, high in gaps)


def compared(studies: Studies, metric: str) -> str:
    """Single (calibrated), ensemble and student; bold where the student is surely better than the single, both ways."""
    numbers = [mean(studies, model, metric) for model in (*MODELS, CALIBRATED)]
    if any(number is None for number in numbers):
        return "–"
    scale, digits = (100, 1) if metric in ("accuracy", "ECE") else (1, 3)
    single, ensemble, student, calibrated = (f"{scale * number:.{digits}f}" for number in numbers if number is not None)
    beside = f" ({calibrated})" if metric in ("NLL", "ECE") else ""  # of the others it keeps what they are
    return " / ".join([single + beside, ensemble, f"**{student}**" if surely_better(studies, metric) else student])


def detection(studies: Studies) -> tuple[float, float] | None:
    """AUROC of the ensemble and of the student, by knowledge or total: whichever the ensemble is better by."""
    where = unfamiliar(studies)
    if where is None:
        return None
    pairs = [(mean(studies, "ensemble", key), mean(studies, "student", key)) for key in
             (f"OOD {where} total", f"OOD {where} knowledge")]  # fmt: skip
    known = [(one, two) for one, two in pairs if one is not None and two is not None]
    return max(known) if known else None


def kept(studies: Studies, measure: str) -> float:
    """The size of the student's uncertainty ÷ the ensemble's, on test examples."""
    return float(np.mean([study["kept"][f"{measure} on test"] for study in studies]))


def cost(studies: Studies) -> str:
    """The student's time ÷ the ensemble's."""
    times = [[study["rows"][model]["µs/example"] for model in ("student", "ensemble")] for study in studies]
    share = float(np.median([one / other for one, other in times]))
    return f"1/{1 / share:.1f}" if share < 1 else f"{share:.1f}"


def line(name: str, studies: Studies) -> list[str]:
    """One problem's row of the table."""
    found, ranked = detection(studies), mean(studies, "student", "ρ knowledge")
    return [
        f"{name} ({described(name)})",
        f"{first(studies)} {compared(studies, first(studies))}",
        compared(studies, "NLL"),
        compared(studies, "ECE") if first(studies) == "accuracy" else "–",
        "–" if found is None else f"{100 * found[0]:.1f} / {100 * found[1]:.1f}",
        "–" if ranked is None else f"{ranked:.2f}",
        f"{kept(studies, 'total'):.2f} / {kept(studies, 'knowledge'):.2f}",
        cost(studies),
    ]


def recovered(studies: Studies) -> tuple[float, float, float] | None:
    """The student's share of the ensemble's gain in NLL over one member, between the ends of its interval.

    None where it is not sure that the ensemble gains anything.
    """
    if gap(studies, "single", "ensemble", "NLL")[0] <= 0:
        return None

    def share(single: Any, ensemble: Any, student: Any) -> Any:
        return (single - student) / (single - ensemble)

    value = float(share(*(mean(studies, model, "NLL") for model in MODELS)))
    drawn = [np.mean([study["draws"][model]["NLL"] for study in studies], 0) for model in MODELS]
    gains = drawn[0] > drawn[1]
    low, high = ends(share(*(each[gains] for each in drawn)))
    return low, value, high


def better(found: dict[str, Studies], rivals: tuple[str, ...]) -> list[str]:
    """Where the student is surely better than each of these, in both ways."""
    return [name for name, studies in found.items()
            if all(surely_better(studies, metric, rivals) for metric in (first(studies), "NLL"))]  # fmt: skip


def no_higher(found: dict[str, Studies]) -> list[str]:
    """Where the student's NLL is at most the ensemble's, by the mean."""
    return [name for name, studies in found.items() if gap(studies, "student", "ensemble", "NLL")[1] <= 0]


def less_sure(found: dict[str, Studies]) -> str:
    """A sentence on students whose uncertainty is larger than the ensemble's, and rightly so."""
    names = [
        name
        for name, studies in found.items()
        if kept(studies, "total") > RIGHT_SIZE[1] and gap(studies, "student", "ensemble", "NLL")[2] < 0
    ]
    if not names:
        return ""
    return f"""
Where the student is less sure than its ensemble and its NLL is surely lower ({", ".join(names)}), the ensemble was
over-confident.
"""


def judged(found: dict[str, Studies]) -> list[str]:
    """What was wanted of a student, problem by problem."""
    lower, close, sized, detected = no_higher(found), [], [], []
    for name, studies in found.items():
        share = recovered(studies)
        if name not in lower and share is not None and share[1] >= RECOVERED:
            close.append(name)
        if all(RIGHT_SIZE[0] <= kept(studies, key) <= RIGHT_SIZE[1] for key in ("total", "knowledge")):
            sized.append(name)
        pair = detection(studies)
        if pair is not None and pair[1] >= pair[0] - DETECTED:
            detected.append(name)
    asked = [name for name, studies in found.items() if detection(studies) is not None]

    def said(claim: str, names: list[str], of: list[str]) -> str:
        return f"- {claim}: **{len(names)} of {len(of)}** ({', '.join(names) or 'none'})"

    every = list(found)
    others = [name for name in every if name not in lower]
    return [
        said("Surely better than one member, in accuracy or RMSE and in NLL", better(found, RIVALS[:1]), every),
        said("The same, and better than that member calibrated", better(found, RIVALS), every),
        said("NLL no higher than the ensemble's, by the mean", lower, every),
        said(f"Of the others, at least {RECOVERED:.0%} of the ensemble's gain in NLL", close, others),
        said("Total and knowledge of 0.8 to 1.25 times the ensemble's size on test examples", sized, every),
        said("AUROC within two points of the ensemble's, or above it", detected, asked),
    ]


def draw(found: dict[str, Studies], work: Workspace) -> None:
    """The student's NLL between one member's (0) and the ensemble's (1), with its interval."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(found) + 1.4), layout="constrained")
    for row, studies in enumerate(found.values()):
        share = recovered(studies)
        if share is None:
            axes.text(0, row, " no sure gain", va="center", color="#444444")
            continue
        low, value, high = share
        axes.plot([low, high], [row, row], color="#4477aa", linewidth=2)
        axes.plot(value, row, "o", color="#4477aa")
        if not SHOWN[0] < value < SHOWN[1]:  # a number at the edge in the place of a point far beyond it
            end = SHOWN[value > 0]
            axes.text(
                end, row, f" ← {value:.1f}" if value < 0 else f"{value:.1f} → ", ha="right" if value > 0 else "left"
            )
    for place, text, side in ((0, "one member ", "right"), (1, " the ensemble", "left")):
        axes.axvline(place, color="#888888", linewidth=1)
        axes.text(place, -0.8, text, ha=side, color="#444444")
    axes.set_xlim(*SHOWN)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -1.1)
    axes.set_xlabel("the student's NLL: share of the ensemble's gain over one member (further right is better)")
    save_figure(figure, work.folder / "headline.png")


def page(recipe: "Headline", found: dict[str, Studies], work: Workspace) -> str:
    """docs/results/headline.md."""
    header = ["problem (ensemble)", "one member / ensemble / **student**", "NLL", "ECE, %", "AUROC, ensemble / student",
              "ρ", "total / knowledge kept", "cost"]  # fmt: skip
    body = table(header, [line(name, studies) for name, studies in found.items()])
    claims = "\n".join(judged(found))
    return f"""# The headline: is the student worth deploying?

An ensemble is trained on each of {len(found)} problems and distilled by a `Distiller` with its default settings. On
{len(better(found, RIVALS[:1]))} of the {len(found)} problems the student is surely better than one member in accuracy
(or RMSE) and in NLL, on {len(better(found, RIVALS))} also than that member calibrated on test labels, and on
{len(no_higher(found))} its mean NLL is no higher than the ensemble's: on test examples that no model was trained on.

{body}

Means over {recipe.studies} studies (members and student anew, the same examples). In parentheses: the same member
calibrated by one number, which is fitted on one half of the test examples and judged on the other. A student's number
in bold is *surely* better than one member's, calibrated or not: the 95 % interval of the paired difference (resampled
test examples, means over the studies; how these differ is not in it) lies on the better side. AUROC tells unfamiliar
inputs from test inputs by knowledge or total uncertainty, whichever the ensemble is better by. ρ is the rank
correlation of the student's knowledge with the ensemble's. *Kept* is the size of the student's mean uncertainty ÷ the
ensemble's. *Cost* is the student's time for a prediction ÷ the ensemble's.

![The share of the ensemble's gain in NLL that the student has](headline.png)

## What was wanted, and where it came out

{claims}
{less_sure(found)}
Why students of letter and satellite tell unfamiliar rows worse than their ensembles, and that a head for each member
mends it where knowledge is the measure: [Unfamiliar rows](unfamiliar.md). What a network loses to boosted trees on
adult: [Tabular](tabular.md).
On power the ensemble's RMSE is hardly lower than a member's, so there is little to pass on. Small MLPs (concrete,
power, kin8nm, letter) are asked together, as one computation, and `Distiller`'s own network, two layers of 128 units,
is larger than a member of the three regressions: there it may cost more than all of them together.

## How

Letter: A to V known (3,000 labelled rows, the others unlabelled), W to Z unfamiliar. Satellite: the last of six soils
is unfamiliar. MNIST and Fashion-MNIST: 500 and 1,000 labelled images, 2,000 unlabelled ones; each is unfamiliar to
the other's models. Kin8nm, power and concrete: the first of the standard splits; test rows with every
number moved by three to five standard deviations are unfamiliar. (By default, students of continuous targets learn from
rows moved by two deviations, too; that was chosen for rows such as these, so an AUROC of 100 here promises nothing
elsewhere.) Students are told the labels that the members were
told, and the unlabelled inputs; where there are none of these, 15 % of the known rows are kept from the members as the
student's validation data. Members of the three regressions were chosen among three to ten settings by the
ensemble's NLL on a fifth of the known examples; the other members' settings were set once and not tuned. For letter,
MNIST and Fashion-MNIST the student has a member's architecture, elsewhere `Distiller`'s own. The student's
settings are the defaults of `Distiller`, which were chosen on other data ([Training](../training.md),
[Views](../views.md)), but for one thing: that the network cuts features which have a common value into pieces was
chosen on rows of adult's and satellite's training files as well, after a run of this page in which adult's student,
without pieces, was 1.4 points less accurate than its ensemble. All test results had been seen in that run, satellite's
also in one without validation rows; pilots on validation examples had shown the detection of the unfamiliar inputs of
satellite, letter, concrete and power. Studies were run in parts beside other work: costs are rough.
Judged on: {recipe.judged_on}.

{origin(recipe, "headline", work)}
"""
