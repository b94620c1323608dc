"""Whether each property is kept, lost or unclear, and the sentence that says so with its numbers.

`solera.evaluation.verdict` states the rules, `solera.evaluation.margins` and the task have the margins.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from solera.evaluation.evaluation import Evaluation
from solera.evaluation.evidence import independent, share_column
from solera.evaluation.glossary import score_named
from solera.evaluation.intervals import Interval
from solera.evaluation.margins import AUROC_MARGIN, LEAST_EXAMPLES, LEAST_RHO, NO_KNOWLEDGE
from solera.evaluation.recalibrated import calibrated_name
from solera.tasks import Margin, Score

State = Literal["kept", "lost", "unclear", "none"]
WORDS = {"kept": "kept", "lost": "lost", "unclear": "not surely kept"}


@dataclass(frozen=True)
class Judged:
    """Whether one property is kept, lost or unclear, and the sentence that says so."""

    state: State
    sentence: str
    reason: Literal["", "absent", "untested"] = ""  # why knowledge was not kept


@dataclass(frozen=True)
class Rival:
    """Another model beside the student: in which scores the student is surely better, and in which surely worse."""

    name: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    sentence: str


def kept(worse: Interval | None, margin: float) -> State:
    """`worse` is how much worse the student is: kept within the margin, lost beyond it, unclear across it."""
    if worse is None:
        return "unclear"
    if worse.high <= margin:
        return "kept"
    return "lost" if worse.low > margin else "unclear"


def flipped(found: Interval | None) -> Interval | None:
    """The same difference with its sign turned: how much worse, from how much higher."""
    return None if found is None else Interval(-found.value, -found.high, -found.low)


def worse_by(result: Evaluation, student: str, other: str, score: Score) -> Interval | None:
    """How much worse the student is than another model."""
    found = result.difference(student, other, score.name)
    return flipped(found) if score.better > 0 else found


def believed(result: Evaluation, score: str, model: str) -> bool:
    """Whether there are examples enough: exact intervals need no least number."""
    share = share_column(result.task, score)
    return (share is not None and independent(result, "test", model)) or result.sizes["test"] >= LEAST_EXAMPLES


def signed(found: Interval, scale: float = 1.0, digits: int = 1) -> str:
    """A difference and its interval."""
    numbers = [f"{scale * x:+.{digits}f}" for x in (found.value, found.low, found.high)]
    return "{} ({} to {})".format(*(number.replace("-", "−") for number in numbers))


def amount(found: Interval, score: Score, whole: float | None = None) -> str:
    """A difference in a score: in points, in per cent of the whole, or as it is."""
    if whole:
        return f"{signed(found, 100 / whole)} per cent"
    if score.percent:
        return f"{signed(found, 100, 2)} points"
    largest = max(abs(found.low), abs(found.high), abs(found.value))
    return signed(found, digits=max(0, 3 - int(np.floor(np.log10(largest))) - 1) if largest >= 1 else 3)


def judge(result: Evaluation, student: str, ensemble: str, margin: Margin) -> Judged:
    """One of the task's margins: whether the student kept what it measures."""
    score, what = score_named(margin.score, result.task)[0], margin.what.capitalize()
    assert score is not None
    theirs = result.rows[ensemble].get(score.name)
    whole = theirs if margin.relative else None
    worse = worse_by(result, student, ensemble, score)
    found = result.difference(student, ensemble, score.name)
    if worse is None or found is None:
        why = f"{score.name} cannot be compared on these examples (it is not a number for all resamples)"
        return Judged("unclear", f"{what} is not surely kept: {why}.")
    state = kept(worse, margin.most * whole if whole is not None else margin.most)
    if not believed(result, score.name, student):
        state = "unclear"
    of = "of the ensemble's" if whole else "from the ensemble"
    return Judged(state, f"{what} is {WORDS[state]}: {score.name} {amount(found, score, whole)} {of}.")


def _follows(result: Evaluation, student: str, name: str) -> tuple[State, str]:
    """Whether knowledge ranks the inputs of a set as the ensemble's does."""
    metric = "ρ knowledge" if name == "test" else f"ρ knowledge on {name}"
    where = "the test inputs" if name == "test" else f"“{name}”"
    if np.ptp(result.columns[student][name]["knowledge"]) == 0:
        return "lost", f"it is the same for all of {where}"
    found = result.interval(student, metric)
    if found is None:
        return "unclear", f"it is not known how it ranks {where}"
    off = Interval(1 - found.value, 1 - found.high, 1 - found.low)
    numbers = f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})".replace("-", "−")
    return kept(off, 1 - LEAST_RHO), f"it ranks {where} as the ensemble's does to ρ = {numbers}"


def _tells(result: Evaluation, student: str, ensemble: str, name: str) -> tuple[State, str]:
    """Whether knowledge tells an unfamiliar set from the test set as well as the ensemble's does."""
    found = result.difference(student, ensemble, f"OOD {name} knowledge")
    if found is None:
        return "unclear", f"it is not known how it tells “{name}” apart"
    return kept(flipped(found), AUROC_MARGIN), f"AUROC on “{name}” {signed(found, 100)} points from the ensemble"


def judge_knowledge(result: Evaluation, student: str, ensemble: str) -> Judged:
    """Whether the student's knowledge uncertainty is as good as the ensemble's, on each set by itself."""
    own, theirs = result.columns[student], result.columns[ensemble]
    test = theirs["test"]
    if "knowledge" not in test or test["knowledge"].mean() <= NO_KNOWLEDGE * test["total"].mean():
        sentence = "The ensemble has no knowledge uncertainty to keep: it is one model, or its members agree."
        return Judged("none", sentence)
    if "knowledge" not in own["test"]:
        sentence = "The student has no knowledge uncertainty: its method keeps the prediction and the total only."
        return Judged("lost", sentence, "absent")
    sets = [name for name in own if name in theirs]
    enough = [name for name in sets if result.sizes[name] >= LEAST_EXAMPLES]
    found = [_follows(result, student, name) for name in enough]
    found += [_tells(result, student, ensemble, name) for name in enough if name != "test"]
    tested = "test" in enough and len(enough) > 1
    states = [state for state, _ in found]
    state: State = "lost" if "lost" in states else "unclear"
    if tested and all(each == "kept" for each in states):
        state = "kept"
    few = [
        f"“{name}” has {result.sizes[name]} examples, at least {LEAST_EXAMPLES} are needed"
        for name in sets
        if name not in enough
    ]
    notes = [*(note for _, note in found), *few]
    if len(sets) == 1:
        notes.append("it was not tested on unfamiliar inputs that the ensemble answered for: pass unfamiliar=...")
    return Judged(state, f"Knowledge is {WORDS[state]}: {'; '.join(notes)}.", "" if tested else "untested")


def judge_confidence(result: Evaluation, student: str, ensemble: str) -> tuple[bool, str]:
    """Whether the student is over-confident where its ensemble is not, and what to say of it."""
    own, theirs = (result.task.overconfident(result.columns[name]["test"]) for name in (student, ensemble))
    if not own or result.sizes["test"] < LEAST_EXAMPLES:
        return False, ""
    return not theirs, "The student is over-confident" + (
        ", as its ensemble is." if theirs else "; the ensemble is not."
    )


def compare_with(result: Evaluation, student: str, other: str) -> Rival:
    """The student beside another model, in accuracy (or RMSE) and in NLL."""
    accuracy = next((margin.score for margin in result.task.margins if margin.what == "accuracy"), "NLL")
    better, worse, notes = [], [], []
    for name in dict.fromkeys((accuracy, "NLL")):
        score = score_named(name, result.task)[0]
        ends = [result.rows[model].get(name) for model in (student, other)]
        if score is None or ends[0] is None or ends[1] is None:
            continue
        found, gap = result.difference(student, other, name), worse_by(result, student, other, score)
        if found is None or gap is None:
            surely = "surely worse" if ends[0] == np.inf else "surely better" if ends[1] == np.inf else "not comparable"
            text = f"{name} {_told(ends[0])}, there {_told(ends[1])}"
        else:
            surely = "surely worse" if gap.low > 0 else "surely better" if gap.high < 0 else "not surely different"
            surely = surely if believed(result, name, student) else "not surely different"
            text = f"{name} {amount(found, score)}"
        notes.append(f"{text}, {surely}")
        better += [name] if surely == "surely better" else []
        worse += [name] if surely == "surely worse" else []
    note = " (fitted on one half of the test examples, applied to the other)" if _cross_fitted(result, other) else ""
    return Rival(other, tuple(better), tuple(worse), f"The student beside {other}{note}: {'; '.join(notes)}.")


def _cross_fitted(result: Evaluation, model: str) -> bool:
    return result.single is not None and model == calibrated_name(result.single)


def _told(value: float) -> str:
    return "∞" if value == np.inf else f"{value:.3f}"
