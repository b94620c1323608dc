"""The page of the recipe `speech`: the proxy paper's table beside ours, and what held."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from solera.evaluation import Evaluation
from solera.evaluation.evaluation import display
from solera.recipes.base import Workspace
from solera.recipes.page import judged, origin, pyplot, save_figure, spread, table, told_apart
from solera.recipes.sequence_page import draw_rejection, every_measure, skill_kept, told_as_wanted

if TYPE_CHECKING:
    from solera.recipes.speech import Speech

# Ryabinin et al. (2021), LibriSpeech, six models: WER, NLL, and AUROC by total uncertainty, RMI and knowledge of
# test-other, AMI meetings and French (Table 3); their student's knowledge is 50.0 by a lost sign in the released code
PAPER = {
    "single": (6.1, 0.35, (72.8, None, None), (94.4, None, None), (99.8, None, None)),
    "ensemble": (4.2, 0.20, (76.9, 77.0, 76.6), (96.5, 94.8, 94.9), (99.9, 99.9, 99.9)),
    "EnD": (6.2, 0.36, (72.8, None, None), (90.2, None, None), (99.8, None, None)),
    "SEnD²": (7.1, 0.25, (76.6, 75.5, 50.0), (94.4, 75.2, 50.0), (99.9, 98.8, 50.0)),
}
SETS = {"new speaker": "test-other", "reversed": "AMI", "yes/no": "French"}  # ours, and the paper's in its place
MEASURES = {"total": "total", "rmi": "RMI", "knowledge": "knowledge", "score_total": "score", "score_rmi": "score RMI"}


@dataclass(frozen=True)
class Found:
    """Everything that was measured."""

    whole: Evaluation  # of what the models heard
    tokens: Evaluation  # of references, teacher-forced
    alone: list[float]  # every member's own WER
    held_out: str  # the new speaker


def answer(found: Found) -> str:
    """What a practitioner wants to know."""

    def shown(key: str, *models: str) -> list[str]:
        return [display(key, found.whole.rows[model][key], found.whole.task) for model in models]

    errors = shown("WER", "single", "ensemble", "EnD", "SEnD²")
    told = [
        f"{name} with an AUROC of {own} (the ensemble: {theirs}; one member, by its total: {alone})"
        for name, key in (("a new speaker", "new speaker"), ("reversed speech", "reversed"), ("other words", "yes/no"))
        for own, theirs in [shown(f"OOD {key} knowledge", "SEnD²", "ensemble")]
        for alone in shown(f"OOD {key} total", "single")
    ]
    return (
        f"Of a hundred words one member gets {errors[0]} wrong, the ensemble {errors[1]}, the students EnD {errors[2]} "
        f"and SEnD² {errors[3]}. By its knowledge SEnD² tells {', '.join(told)}."
    )


def heard(found: Found) -> str:
    """A new speaker's strings that a model got right beside those it did not: which does it tell from the test's?"""
    rows = []
    for name in ("ensemble", "SEnD²"):
        test, new = (found.whole.columns[name][where] for where in ("test", "new speaker"))
        for kind, some in (("right", new["error"] == 0), ("wrong", new["error"] > 0)):
            if some.any():
                told = [f"{100 * told_apart(test[key], new[key][some]):.1f}" for key in ("total", "knowledge")]
                rows.append([name, kind, str(int(some.sum())), *told])
    return table(["model", "heard", "strings", "AUROC by total", "by knowledge"], rows)


def quality(found: Found) -> str:
    """WER and NLL, the paper's in brackets, and rejection."""
    rows = []
    for name, row in found.whole.rows.items():
        token, (wer, nll, *_) = found.tokens.rows[name], PAPER[name]
        told = [f"{display('WER', row['WER'], found.whole.task)} ({wer})", f"{token['NLL']:.3f} ({nll:.2f})"]
        told += [f"{100 * (token[key] or 0):.2f}" for key in ("ECE-1", "ECE-5")]
        told += [display(key, row.get(key), found.whole.task) for key in ("exact", "PRR", "PRR by knowledge")]
        rows.append([name, *told])
    head = ["model (paper's)", "WER", "NLL", "ECE-1, %", "ECE-5, %", "exact", "PRR by total", "PRR by knowledge"]
    return table(head, rows)


def detection(found: Found) -> str:
    """Table 3 of the paper: AUROC by total uncertainty, by RMI and by knowledge."""
    rows = []
    for name, row in found.whole.rows.items():
        told = []
        for place, own in enumerate(SETS):
            for measure, theirs in zip(("total", "rmi", "knowledge"), PAPER[name][2 + place], strict=True):
                value = display("OOD", row.get(f"OOD {own} {measure}"), found.whole.task)
                told.append(f"{value} ({'–' if theirs is None else theirs})")
        rows.append([name, *told])
    head = [f"{own} ({theirs}), {m}" for own, theirs in SETS.items() for m in ("total", "RMI", "knowledge")]
    return table(["model (paper's)", *head], rows)


def shifted(found: Found) -> str:
    """WER of the sets whose words are known."""
    sets = ("new speaker", "noise 30 dB", "noise 20 dB")
    rows = [
        [model, *(display("WER", row[f"WER on {name}"], found.whole.task) for name in sets)]
        for model, row in found.whole.rows.items()
    ]
    return table(["model", *sets], rows)


def claims(found: Found) -> str:
    """What the paper says, and what was wanted here, with 95 % intervals of resampled strings."""
    lines, whole = [], found.whole

    def at_least(claim: str, model: str, key: str, least: float, sign: int = 1) -> None:
        at = whole.interval(model, key)
        if at is not None:
            low, high = sorted((sign * at.low, sign * at.high))
            lines.append(judged(claim, low, sign * at.value, high, sign * least))

    def less(claim: str, which: Evaluation, model: str, other: str, key: str, by: float = 0.0) -> None:
        gap = which.difference(other, model, key)
        if gap is not None:
            lines.append(judged(claim, gap.low, gap.value, gap.high, by))

    at_least("a single model's WER is at most 6 %, written as −WER", "single", "WER", 0.06, -1)
    at_least("the ensemble's WER is at most 4.5 %, written as −WER", "ensemble", "WER", 0.045, -1)
    less("the ensemble has fewer word errors than its first member", whole, "ensemble", "single", "WER")
    for name in ("EnD", "SEnD²"):
        claim = f"{name} has at most one point of WER more than a single model (points fewer)"
        less(claim, whole, name, "single", "WER", -0.01)
        claim = f"{name} has a lower NLL than a single model, in nats × 100 (the paper: SEnD² alone)"
        less(claim, found.tokens, name, "single", "NLL")
    return "\n".join(lines)


def draw(found: Evaluation, work: Workspace) -> None:
    """WER of what is kept, against the share rejected; and total and knowledge of each set as boxes."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    draw_rejection(left, found, found.rows, "WER of the rest, %")
    known = found.columns["SEnD²"]
    right.boxplot([columns["knowledge"] for columns in known.values()], tick_labels=list(known), showfliers=False)
    right.set(ylabel="knowledge, nats a token", yscale="log", title="SEnD²: what it does not know")
    right.tick_params(axis="x", rotation=20)
    save_figure(figure, work.folder / "speech.png")
    plt.close(figure)


def page(recipe: "Speech", found: Found, work: Workspace) -> str:
    """The whole page."""
    return PAGE.format(
        recipe=recipe,
        speaker=found.held_out,
        share=f"{100 * recipe.label_weight:.0f}",
        alone=spread(found.alone, 1, 100),
        answer=answer(found),
        heard=heard(found),
        quality=quality(found),
        detection=detection(found),
        every=every_measure(found.whole, MEASURES, found.whole.rows),
        shifted=shifted(found),
        claims=claims(found),
        told=told_as_wanted(found.whole, [("ensemble", "new speaker", 0.80), ("SEnD²", "new speaker", 0.77)]),
        kept=skill_kept(found.whole, [name for name in found.whole.elements if name != "test"]),
        origin=origin(recipe, "speech", work),
    )


PAGE = """# Speech

Can one small recogniser stand in for {recipe.members}, and still say which strings it cannot hear? {answer}

{quality}

![WER of what is kept, and knowledge by set](speech.png)

What held, with 95 % intervals over resampled strings ({recipe.resamples} draws), one seed of each student; in points:

{claims}

With which AUROC unfamiliar strings are told from the test's, beside the AUROC that was wanted; then, how much of the
ensemble's AUROC above 50 SEnD² keeps, where 80 % was wanted:

{told}

{kept}

## How

Strings of three to six digits from the Free Spoken Digit Dataset, of one speaker each, up to 10 dB louder or softer,
with gaps of up to 0.3 s. {recipe.members} small recognisers (log-mel features, two strided convolutions, two layers of
encoder, one of decoder, width {recipe.width}; 0.38 million parameters at width 96) learn {recipe.strings:,} strings of
takes 10–49 of five speakers in {recipe.epochs} epochs, with a CTC helper. **EnD** (the paper's SEnD) and **SEnD²**, a
Dirichlet per step, start from the first member's weights and learn from the ensemble's memory of the references for
{recipe.student_epochs} epochs more, {share} % of the loss from labels; their best epoch is chosen on takes 5–9. Tested
on {recipe.test} strings of takes 0–4. All decode with {recipe.beams} beams; an ensemble averages probabilities. NLL and
ECE are teacher-forced on the references; PRR of word errors. The members alone: WER {alone}. This is a small run: the
paper (Ryabinin et al., 2021, Table 3) has six large models, 960 hours of LibriSpeech and 5,000 tokens, so compare the
order, not the numbers. The test strings had been seen by earlier runs of this page.

## Unfamiliar speech

AUROC against the test set. In brackets the paper's number for the set that stands in the same place there: a shift
(another speaker; LibriSpeech test-other), other speech (reversed; AMI meetings), another language (Hebrew yes and no;
French). The paper's 50.0 by knowledge are a lost sign in its code, not a measurement. The new speaker is {speaker}.

{detection}

By each measure of a whole string (means over its tokens; scores are of its own tokens):

{every}

Is a new speaker unfamiliar? The strings that were heard rightly all the same, and the others, each against the test
strings:

{heard}

Word error rate where the words are known:

{shifted}

{origin}
"""
