"""The page of `solera run ner`: tables, claims with intervals over studies, and a figure."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solera.recipes.base import Workspace
from solera.recipes.page import origin, over_repeats, pyplot, save_figure, spread, table, word

if TYPE_CHECKING:
    from solera.recipes.ner import Ner

Found = dict[str, list[dict[str, Any]]]  # model -> study -> what was measured
Formula = Callable[[Callable[[str, str], float]], float]  # of a study's scores, by model and name

STUDENT = "5 IID → IID + labels"  # the one that is judged
SCORES = {
    "F1": (100, 2),
    "BS+": (100, 2),
    "BS−": (100, 3),
    "B-BS": (100, 2),
    "B-ECE": (100, 2),
    "entity ECE": (100, 2),
    "entity Brier": (100, 2),
    "PR area": (100, 1),
    "PRR": (100, 1),
    "NLL": (1, 4),
}
# Table 1 of the paper (CoNLL-2003, BERT; per cent): BS+, BS−, B-BS, B-ECE, F1
PAPER = {
    "en": {
        "IID": "6.401 / 0.310 / 6.109 / 5.516 / 91.11",
        "6 IID": "5.539 / 0.241 / 4.862 / 2.863 / 91.76",
        "6 IID → IID": "5.936 / 0.256 / 5.144 / 3.683 / 91.61",
        "CRF": "6.998 / 0.308 / 5.911 / 4.607 / 90.37",
        "6 CRF": "5.939 / 0.243 / 4.932 / 2.179 / 91.46",
        "6 CRF → IID": "5.545 / 0.268 / 5.086 / 3.451 / 91.13",
    },
    "de": {
        "IID": "17.212 / 0.233 / 9.444 / 8.542 / 81.68",
        "6 IID": "14.615 / 0.167 / 8.058 / 5.016 / 83.53",
        "6 IID → IID": "14.440 / 0.228 / 8.958 / 6.763 / 82.02",
        "CRF": "15.942 / 0.233 / 8.997 / 6.047 / 80.60",
        "6 CRF": "15.446 / 0.185 / 8.485 / 4.485 / 81.37",
        "6 CRF → IID": "14.582 / 0.171 / 8.178 / 3.956 / 83.13",
    },
}
LEAST = 0.55  # an ensemble's AUROC, for a student to have something to keep
DRAWN = ("IID", "5 IID", "5 CRF", STUDENT, "5 CRF → IID + labels", "snapshots")


def claim(text: str, found: Found, formula: Formula, digits: int = 2, scale: float = 100) -> str:
    """A bullet: whether the formula, which should be above 0, is so surely, by its mean, or not."""
    studies = len(next(iter(found.values())))
    values = [formula(lambda model, key, n=n: found[model][n]["scores"][key]) for n in range(studies)]
    low, mean, high = over_repeats(values)
    interval = f" ({scale * low:+.{digits}f} to {scale * high:+.{digits}f})" if math.isfinite(low) else ""
    return f"- **{word(low, mean)}**: {text}: {scale * mean:+.{digits}f}{interval}"


def _goals(found: Found, sets: Sequence[str]) -> list[str]:
    made = [
        claim("a single tagger has F1 of at least 80; points above", found, lambda s: s("IID", "F1") - 0.8),
        claim(
            "the ensemble's F1 is at least 1.5 points above a single tagger's; points beyond",
            found,
            lambda s: s("5 IID", "F1") - s("IID", "F1") - 0.015,
        ),
        claim(
            "the student's F1 is at least 0.5 points above; points beyond",
            found,
            lambda s: s(STUDENT, "F1") - s("IID", "F1") - 0.005,
        ),
        claim(
            "the ensemble's entity ECE is at most 0.6 times the single tagger's; points below",
            found,
            lambda s: 0.6 * s("IID", "entity ECE") - s("5 IID", "entity ECE"),
        ),
        claim(
            "the student's entity ECE is at most 0.75 times; points below",
            found,
            lambda s: 0.75 * s("IID", "entity ECE") - s(STUDENT, "entity ECE"),
        ),
        claim("the student's B-BS is lower; points", found, lambda s: s("IID", "B-BS") - s(STUDENT, "B-BS")),
    ]
    for name in sets:
        measures = ("total", "knowledge")
        best = max(measures, key=lambda m: np.mean([row["scores"][f"{name} {m}"] for row in found["5 IID"]]))
        key = f"{name} {best}"
        level = float(np.mean([row["scores"][key] for row in found["5 IID"]]))
        if level < LEAST:
            made.append(f"- **Nothing to keep**: {name}: the ensemble's own AUROC is {100 * level:.1f}")
            continue
        made.append(
            claim(
                f"{name}: by {best}, the ensemble's better measure, the student keeps 80 % of the ensemble's AUROC "
                "above chance; points beyond",
                found,
                lambda s, key=key: s(STUDENT, key) - 0.5 - 0.8 * (s("5 IID", key) - 0.5),
                digits=1,
            )
        )
    return made


def _paper(found: Found) -> list[str]:
    def lower(text: str, key: str, better: str, worse: str) -> str:
        return claim(f"{text}; {key}, points", found, lambda s: s(worse, key) - s(better, key))

    def higher(text: str, better: str, worse: str) -> str:
        return claim(f"{text}; F1, points", found, lambda s: s(better, "F1") - s(worse, "F1"))

    return [
        higher("an ensemble finds more than its members (IID)", "5 IID", "IID"),
        higher("... (CRF)", "5 CRF", "CRF"),
        lower("an ensemble is better calibrated than its members (IID)", "B-ECE", "5 IID", "IID"),
        lower("... (CRF)", "B-ECE", "5 CRF", "CRF"),
        higher("a student finds more than a single tagger (of IID)", STUDENT, "IID"),
        higher("... (of CRF)", "5 CRF → IID + labels", "IID"),
        lower("a student is better calibrated than a single tagger (of IID)", "B-ECE", STUDENT, "IID"),
        lower("... (of CRF)", "B-ECE", "5 CRF → IID + labels", "IID"),
        higher("a student of CRFs finds more than they do", "5 CRF → IID + labels", "5 CRF"),
        lower("... and is better calibrated", "B-ECE", "5 CRF → IID + labels", "5 CRF"),
        higher("snapshots find no more than a single tagger (points fewer)", "IID", "snapshots"),
        lower("a temperature calibrates a single tagger", "B-ECE", "IID, T", "IID"),
        lower("... an ensemble", "B-ECE", "5 IID, T", "5 IID"),
        lower("... and a student", "B-ECE", f"{STUDENT}, T", STUDENT),
        higher("labels mixed in help the student of IID", STUDENT, "5 IID → IID"),
        higher("... of CRF", "5 CRF → IID + labels", "5 CRF → IID"),
    ]


def _numbers(rows: list[dict[str, Any]], key: str, digits: int, scale: float) -> str:
    known = [row["scores"][key] for row in rows if row["scores"].get(key) is not None]
    return spread(known, digits, scale) if known else "–"


def _tables(found: Found, sets: Sequence[str]) -> tuple[str, str]:
    scores = [[name, *(_numbers(rows, key, d, s) for key, (s, d) in SCORES.items())] for name, rows in found.items()]
    others = [
        [
            name,
            *(_numbers(rows, f"F1 on {other}", 1, 100) for other in sets),
            *(
                " / ".join(_numbers(rows, f"{other} {measure}", 1, 100) for measure in ("total", "knowledge"))
                if name not in ("IID", "CRF")  # one member knows of no other
                else _numbers(rows, f"{other} total", 1, 100) + " / –"
                for other in sets
            ),
        ]
        for name, rows in found.items()
        if not name.endswith(", T")
    ]
    head = ["model", *(f"F1, {name}" for name in sets), *(f"AUROC, {name}" for name in sets)]
    return table(["model", *SCORES], scores), table(head, others)


def _draw(found: Found, work: Workspace) -> None:
    """The first study's curves."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for name in DRAWN:
        style = {"color": "black", "linewidth": 2.2} if name == "5 IID" else {}
        curves = found[name][0]["figures"]
        left.plot(*curves["reliability"], marker="o", markersize=3, label=name, **style)
        right.plot(*curves["precision and recall"], label=name, **style)
    left.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle=":")
    left.set(title="Reliability of entities", xlabel="confidence", ylabel="share that is right")
    right.set(title="Precision and recall of entities", xlabel="recall", ylabel="precision", ylim=(0.6, 1.01))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, work.folder / "ner.png")


def _answer(found: Found, sets: Sequence[str]) -> str:
    def told(model: str, key: str) -> str:
        return _numbers(found[model], key, 1, 100)

    def three(key: str) -> str:
        return f"{told(STUDENT, key)} (one tagger {told('IID', key)}, the ensemble {told('5 IID', key)})"

    both = {name: [told(model, f"{name} knowledge") for model in (STUDENT, "5 IID")] for name in sets}
    others = [f"{name} with an AUROC of {own} (the ensemble {theirs})" for name, (own, theirs) in both.items()]
    return (
        f"The student's F1 is {three('F1')}; its confidence in an entity is off by {three('entity ECE')} points; by "
        f"its knowledge it tells {', '.join(others)} from the test sentences."
    )


def page(recipe: "Ner", found: Found, sets: Sequence[str], work: Workspace) -> str:
    """The whole page, and its figure beside it."""
    _draw(found, work)
    scores, others = _tables(found, sets)
    paper = table(
        ["paper's model", "BS+ / BS− / B-BS / B-ECE / F1"],
        [[name, numbers] for name, numbers in PAPER[recipe.language].items()],
    )

    def size(count: int, what: str) -> str:
        return f"the first {count:,} sentences" if count else f"all sentences {what}".rstrip()

    temperatures = ", ".join(
        f"{name.removesuffix(', T')} {spread([row['temperature'] for row in rows])}"
        for name, rows in found.items()
        if name.endswith(", T")
    )
    done = len(next(iter(found.values())))
    studies = f"{done} {'study' if done == 1 else 'studies'}" + (
        f" of {recipe.studies}" if done < recipe.studies else ""
    )
    return PAGE.format(
        language={"en": "English", "de": "German"}[recipe.language],
        train=size(recipe.sentences, "but the last tenth"),
        test=size(recipe.test_sentences, ""),
        other=size(recipe.other_sentences, "").capitalize(),
        recipe=recipe,
        studies=studies,
        note=FEWER if recipe.sentences else "",
        scores=scores,
        others=others,
        answer=_answer(found, sets),
        goals="\n".join(_goals(found, sets)),
        claims="\n".join(_paper(found)),
        paper=paper,
        temperatures=temperatures,
        origin=origin(recipe, "ner", work),
    )


FEWER = " The goals were set for all sentences; this run takes fewer, to end within the hour on two busy cores."

PAGE = """# Named entities

Can one tagger find what {recipe.members} find, and be as well calibrated? {answer}

{scores}

An entity is right if its tokens and its type are. Its confidence is the probability of exactly that span and type. All
in per cent but NLL; mean ± standard deviation over {studies}. Temperatures (", T"): {temperatures}.
IID: tags independent of each other; CRF: tags that know their neighbours. BS+ and BS−: squared error of a confidence,
over pairs of token and tag that are right and over those that are not; B-BS and B-ECE: over a tag's most confident
pairs, twice as many as are right; PR area: under precision and recall; PRR: how well total uncertainty rejects errors
(100: at best).

![Reliability, precision and recall of entities](ner.png)

## What was wanted

Intervals are 95 %, Student's t over studies (three at least).{note}

{goals}

## How

WikiNEuRal, {language}; trained on {train} of its `val` part, validated on the last tenth of that file (a block:
neighbouring sentences are alike), tested on {test} of its `test` part. A tagger is a convolution of windows, 96 wide
and 4 deep, over hashed spellings and pretrained word features, trained from nothing ({recipe.epochs} epochs);
{recipe.members} members an ensemble ("mixed": half of them independent (IID), half with a CRF); a student starts from
the first IID member's weights and learns from remembered means ({recipe.student_epochs} epochs more, ProxyDirichlet;
"+ labels": with true labels at a weight of 1/6, as in the paper; "EnD": the paper's own loss), of the training
sentences and of {recipe.copies} copies of each in which 30 % of the words are exchanged for others of the text, without
labels. "snapshots": {recipe.members} cycles of one training. ", T": temperature on the validation block (of one tagger:
the first). Rows of one tagger are means over all members. Each study has seeds of its own.

## What the paper says

Reich, Mueller and Andrews (2020):

{claims}

Its own figures (CoNLL-2003, fine-tuned BERT, so another set and far larger networks; ensembles of 6):

{paper}

## Unfamiliar text

{other} of each set: F1 there (types that WikiNEuRal does not have are dropped, and MISC found there counts as wrong),
and the AUROC (per cent) of telling its sentences from the test sentences by their mean total / mean knowledge
uncertainty.

{others}

{origin}
"""
