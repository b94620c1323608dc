"""The page of the recipe `translation`: both papers' tables beside ours, and what held."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.metrics.text import signatures
from solera.recipes.base import Workspace
from solera.recipes.page import judged, origin, pyplot, save_figure, spread, table
from solera.recipes.sequence_page import draw_rejection, every_measure, skill_kept, told_as_wanted
from solera.tasks import Row

if TYPE_CHECKING:
    from solera.recipes.translation import Translation

# Reich et al. (2020), WMT16 English to German, three models: BLEU, ECE-1 and ECE-5 in per cent (Table 2; 3: De–En)
STRUCTURED = {
    "single": (27.10, 3.697, 1.149),
    "ensemble": (28.52, 1.055, 0.313),
    "EnD": (28.25, 1.153, 0.527),
}
SWEEP = {32: (31.64, 1.602, 0.623), 64: (31.84, 1.497, 0.636), 128: (31.80, 1.567, 0.642), 256: (31.72, 1.325, 0.648)}
PUBLISHED = "SEnD², own outputs"  # as in the paper
# Ryabinin et al. (2021), WMT17 English to German, ten models: BLEU, NLL of references and of the ensemble's outputs,
# AUROC by total and knowledge of permuted sources and of French ones (Table 4)
PROXY = {
    "single": (28.8, 1.46, 0.42, 80.7, None, 27.1, None),
    "ensemble": (30.1, 1.33, 0.39, 83.7, 97.4, 25.0, 73.6),
    "sequence KD": (29.4, 1.52, 0.40, 79.5, None, 15.6, None),
    "SEnD²": (None,) * 7,
    PUBLISHED: (29.5, 1.52, 0.40, 78.3, 97.1, 15.9, 60.1),
}
WANTED = [  # the AUROC by which unfamiliar sources should be told
    ("ensemble", "permuted", 0.75),
    ("SEnD²", "permuted", 0.75),
    ("ensemble", "French", 0.95),
    ("SEnD²", "French", 0.95),
]
OVERVIEW = {
    "PRR": "PRR by total",
    "OOD permuted total": "permuted, total",
    "OOD permuted knowledge": "permuted, knowledge",
    "OOD French knowledge": "French, knowledge",
}
MEASURES = {"total": "total", "knowledge": "knowledge", "rmi": "RMI", "score_total": "score", "score_rmi": "score RMI"}


@dataclass(frozen=True)
class Found:
    """Everything that was measured."""

    whole: Evaluation  # of sentences that the models wrote
    tokens: Evaluation  # of references, teacher-forced
    own: Evaluation  # of the ensemble's own outputs, teacher-forced
    bytes: dict[str, float]  # of the memory for each token, by what is kept
    alone: list[Row]  # every member's own BLEU and chrF
    seconds: dict[str, float]  # to translate a sentence


def _of(paper: float | None, digits: int = 1) -> str:
    return "–" if paper is None else f"{paper:.{digits}f}"


def answer(found: Found) -> str:
    """What a practitioner wants to know."""

    def shown(model: str, key: str) -> str:
        return display(key, found.whole.rows[model].get(key), found.whole.task)

    def both(model: str, by: str = "knowledge") -> str:
        return f"{shown(model, f'OOD permuted {by}')} and {shown(model, f'OOD French {by}')}"

    nll = {model: f"{found.tokens.rows[model]['NLL']:.2f}" for model in ("single", "ensemble", "EnD", "SEnD²")}
    return (
        f"One member has {shown('single', 'BLEU')} BLEU, the ensemble {shown('ensemble', 'BLEU')}, the students EnD "
        f"{shown('EnD', 'BLEU')} and SEnD² {shown('SEnD²', 'BLEU')}; SEnD² takes "
        f"{found.seconds['SEnD²'] / found.seconds['ensemble']:.2f} of the ensemble's time. "
        f"The NLL of a token is {nll['single']} for one member, {nll['ensemble']} for the ensemble, {nll['EnD']} for "
        f"EnD and {nll['SEnD²']} for SEnD². By its knowledge "
        "SEnD² tells sentences whose words are shuffled, and French ones, from test sentences with "
        f"an AUROC of {both('SEnD²')} (the ensemble: {both('ensemble')}; one member, by its total: "
        f"{both('single', 'total')})."
    )


def overview(found: Found) -> str:
    """Every model in one line."""
    rows = []
    for name, row in found.whole.rows.items():
        token, seconds = found.tokens.rows[name], found.seconds.get(name)
        told = [display(key, row[key], found.whole.task) for key in ("BLEU", "chrF")]
        told += [f"{100 * (token['ECE-1'] or 0):.2f}", f"{token['NLL']:.3f}"]
        told += [display(key, row.get(key), found.whole.task) for key in OVERVIEW]
        rows.append([name, *told, "–" if seconds is None else f"{1000 * seconds:.0f}"])
    return table(["model", "BLEU", "chrF", "ECE-1, %", "NLL", *OVERVIEW.values(), "ms a sentence"], rows)


def quality(found: Found) -> str:
    """Table 2 of the structured paper."""
    rows = []
    for name, row in found.whole.rows.items():
        told = [display(key, row[key], found.whole.task) for key in ("BLEU", "chrF")]
        token = found.tokens.rows.get(name, {})
        told += [_of(None if (value := token.get(key)) is None else 100 * value, 2) for key in ("ECE-1", "ECE-5")]
        told.append(display("NLL", token.get("NLL"), found.tokens.task))
        paper = STRUCTURED.get(name, (None,) * 3)
        rows.append([name, *told, *(_of(value, digits) for value, digits in zip(paper, (2, 2, 2), strict=True))])
    head = ["model", "BLEU", "chrF", "ECE-1, %", "ECE-5, %", "NLL"]
    return table([*head, "paper: BLEU", "paper: ECE-1", "paper: ECE-5"], rows)


def sweep(recipe: "Translation", found: Found) -> str:
    """Table 3 of the structured paper: how many tokens the memory keeps."""
    rows = []
    names = {recipe.keep: "EnD", **{keep: f"EnD, {keep} kept" for keep in recipe.sweep}}
    for keep in sorted({*names, *SWEEP}):
        paper = [_of(value, 2) for value in SWEEP.get(keep, (None,) * 3)]
        own = ["–"] * 4
        if keep in names:
            row, token = found.whole.rows[names[keep]], found.tokens.rows[names[keep]]
            size = found.bytes.get(str(keep))
            told = [f"{100 * (token[key] or 0):.2f}" for key in ("ECE-1", "ECE-5")]
            own = [f"{size:.1f}" if size else "–", display("BLEU", row["BLEU"], found.whole.task), *told]
        rows.append([str(keep), *own, *paper])
    head = ["kept", "bytes a token", "BLEU", "ECE-1, %", "ECE-5, %"]
    return table([*head, "paper: BLEU", "paper: ECE-1", "paper: ECE-5"], rows)


def detection(found: Found) -> str:
    """Table 4 of the proxy paper."""
    keys = [f"OOD {name} {measure}" for name in ("permuted", "French") for measure in ("total", "knowledge")]
    rows = []
    for name in [name for name in found.whole.rows if name in PROXY]:
        row, paper = found.whole.rows[name], PROXY[name]
        own = [display("BLEU", row["BLEU"], found.whole.task)]
        own += [display("NLL", each.rows[name]["NLL"], each.task) for each in (found.tokens, found.own)]
        own += [display(key, row.get(key), found.whole.task) for key in keys]
        digits = (1, 2, 2, 1, 1, 1, 1)
        rows.append([name, *(f"{mine} ({_of(p, d)})" for mine, p, d in zip(own, paper, digits, strict=True))])
    short = [key.removeprefix("OOD ") for key in keys]
    return table(["model (paper's)", "BLEU", "NLL", "NLL, ensemble's outputs", *short], rows)


def rejection(found: Found) -> str:
    """How well each model's uncertainty ranks its own translations."""
    keys = ("PRR", "PRR by knowledge", "PRR by score")
    rows = [[n, *(display(k, row.get(k), found.whole.task) for k in keys)] for n, row in found.whole.rows.items()]
    return table(["model", "PRR by total", "by knowledge", "by score"], rows)


def claims(found: Found) -> str:
    """What the papers say, with 95 % intervals of resampled sentences."""
    lines = []

    def better(
        claim: str, which: Evaluation, model: str, other: str, key: str, sign: int = 1, least: float = 0
    ) -> None:
        gap = which.difference(model, other, key) if model in which.rows and other in which.rows else None
        if gap is not None:
            ends = sorted((sign * gap.low, sign * gap.high))
            lines.append(judged(claim, ends[0], sign * gap.value, ends[1], least))

    better("the ensemble is one BLEU better than its first member", found.whole, "ensemble", "single", "BLEU", 1, 0.01)
    for name in ("EnD", "SEnD²", PUBLISHED, "sequence KD"):
        better(f"{name} translates better than a single model, BLEU", found.whole, name, "single", "BLEU")
    for name in ("ensemble", "EnD", "SEnD²"):
        better(f"{name} is better calibrated than a single model, ECE-1", found.tokens, name, "single", "ECE-1", -1)
    better(
        "keeping the tail as an event costs EnD less than half a BLEU",
        found.whole,
        "EnD, tail",
        "EnD",
        "BLEU",
        1,
        -0.005,
    )
    return "\n".join(lines)


def draw(found: Evaluation, work: Workspace) -> None:
    """BLEU of what is kept, against the share rejected by total uncertainty; and knowledge on each set."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    shown = [name for name in ("single", "ensemble", "EnD", "SEnD²") if name in found.columns]
    draw_rejection(left, found, shown, "BLEU of the rest")
    known = found.columns["SEnD²"]
    edges = np.linspace(0, np.quantile(np.concatenate([c["knowledge"] for c in known.values()]), 0.99), 30)
    for name, columns in known.items():
        share, _ = np.histogram(columns["knowledge"], edges)
        right.step(edges[1:], share / share.sum(), label=name)
    right.set(xlabel="knowledge, nats a token", ylabel="share of sentences", title="SEnD²: what it does not know")
    right.legend(frameon=False)
    save_figure(figure, work.folder / "translation.png")
    plt.close(figure)


def page(recipe: "Translation", found: Found, work: Workspace) -> str:
    """The whole page."""
    names = signatures(lowercase=True)
    alone = [row["BLEU"] or 0.0 for row in found.alone]
    return PAGE.format(
        recipe=recipe,
        pairs=f"{recipe.sentences:,}" if recipe.sentences else "all 29,000",
        baselines=BASELINES if recipe.baselines else "",
        last=" (sequence KD keeps its last)" if recipe.baselines else "",
        answer=answer(found),
        overview=overview(found),
        quality=quality(found),
        alone=spread(alone, 1, 100),
        sweep=sweep(recipe, found),
        detection=detection(found),
        every=every_measure(found.whole, MEASURES, ("ensemble", "SEnD²", PUBLISHED)),
        rejection=rejection(found),
        claims=claims(found),
        told=told_as_wanted(found.whole, WANTED),
        kept=skill_kept(found.whole, ("permuted", "French", "news", "web")),
        signatures="; ".join(f"{name} `{signature}`" for name, signature in names.items()),
        origin=origin(recipe, "translation", work),
    )


BASELINES = """"EnD, tail" has the tokens that were not kept as one more event; **sequence KD** is maximum likelihood of
the ensemble's outputs (Kim and Rush, 2016). """

PAGE = """# Translation

Can one small translator stand in for {recipe.members}, and still say which sentences it cannot do? {answer}

{overview}

![BLEU of what is kept, and knowledge by set](translation.png)

What held, with 95 % intervals over resampled sentences ({recipe.resamples} draws), one seed of each student; in points:

{claims}

With which AUROC unfamiliar sources are told from the test's, beside the AUROC that was wanted; then, how much of the
ensemble's AUROC above 50 SEnD² keeps, where 80 % was wanted:

{told}

{kept}

## How

{recipe.members} small transformers (width {recipe.width}, three layers of encoder, one of decoder) learn German to
English on {pairs} pairs of Multi30k in {recipe.epochs} epochs. Their memory keeps {recipe.keep} tokens of
{recipe.vocabulary:,} a step. **EnD** learns from it on the references, half from labels smoothed by 0.1 (Reich et al.,
2020; mass un-normalised as there). **SEnD²** learns a Dirichlet per step from the same memory and
labels (Ryabinin et al., 2021), of the members' mutual information and with five times the weight on its mean
(`ProxyDirichlet(match="mi", mean_weight=5)`); "own outputs" is the paper's way, the proxy loss by RMI alone on what the
ensemble itself writes for the training sources. {baselines}Students start from the first member's weights and learn for
{recipe.student_epochs} epochs more; the pairs of the validation set pick their epoch{last} and give their
uncertainty its size. All decode with {recipe.beams} beams; an ensemble averages probabilities. Test 2016, lower-cased;
ECE and NLL are teacher-forced on the references; AUROC against the test set; PRR of sentence BLEU: 100 is an oracle's
order, 0 chance.
The members alone: BLEU {alone}.

How SEnD² learns was chosen on 400 pairs of the validation set and their permuted sources, by BLEU, ECE-1 and AUROC:
matched by RMI or by mutual information, the mean's weight of 0, 1, 5 and 20, from the references or from own outputs,
with labels or without. Learning rates and lengths were set by judgement. An earlier run, with the same members and the
paper's way alone, had shown the test set. The papers' numbers stand beside ours: other languages, data and sizes, so
compare the order.

## Quality and calibration of tokens

{quality}

## How many tokens the memory keeps

{sweep}

## Unfamiliar sources

In brackets the paper's number. "French" is a third language here and in the paper.

{detection}

By each measure of a whole sentence (means over its tokens; scores are of its own tokens):

{every}

## Rejection

{rejection}

{signatures}.

{origin}
"""
