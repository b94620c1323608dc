"""What was kept, what was lost, what to deploy and why: a few sentences, made from the intervals by stated rules.

The rules, for a student beside the ensemble it came from (and, where they are given, a single member and a baseline
of the user's own, such as a model refitted on all data). Each looks at a paired 95 % interval of a difference.

1. **Accuracy** (classes: accuracy; real targets: RMSE) is *kept* if even the bad end of the interval of student −
   ensemble is within the margin (1 point; 5 % of the ensemble's RMSE), *lost* if even the good end is outside, else
   *unclear*.
2. **Honesty** (classes: ECE, margin 2 points; real targets: coverage error, margin 5 points) likewise. A student whose
   mean confidence exceeds its accuracy by 5 points, or whose 90 % interval holds less than 80 % of the targets, is
   *over-confident*, whatever its ensemble did.
3. **Knowledge** is *kept* if it ranks inputs as the ensemble's does (ρ of 0.5 at least, over all sets) and every
   unfamiliar set is told apart as well (AUROC by knowledge, margin 5 points); *lost* if there is none, ρ is below 0.3,
   or a set is told apart surely worse than that; else *unclear*. An ensemble may have no knowledge to keep.
4. **Rejection** (PRR by total uncertainty, margin 5 points) likewise.
5. **Against one member, against the baseline**: *worse* if its NLL is surely higher than theirs.

To deploy: the *single* member if the student is worse than it; the *ensemble* if accuracy or honesty was lost, or the
student is over-confident and the ensemble is not; the *baseline* if it beats the student on NLL and knowledge was not
kept; otherwise the *student*: with its knowledge if that was kept, and for its predictions only if it was not.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from solera.evaluation.intervals import Interval
from solera.evaluation.result import Evaluation
from solera.tasks import Margin

State = Literal["kept", "lost", "unclear", "none"]
AUROC = 0.05
WORDS = {"kept": "kept", "lost": "lost", "unclear": "not surely kept"}
RANKED, UNRANKED = 0.5, 0.3
NOTHING = 1e-6  # of the total: less knowledge than that is rounding


@dataclass(frozen=True)
class Verdict:
    """What became of each thing, what to deploy, and the sentences that say so."""

    student: str
    deploy: str
    use_knowledge: bool
    states: dict[str, State]
    sentences: list[str] = field(default_factory=list)

    @property
    def deploy_student(self) -> bool:
        """Whether the student is what to deploy."""
        return self.deploy == self.student


def _kept(worse: Interval | None, margin: float) -> State:
    """`worse` is how much worse the student is: kept within the margin, lost beyond it, unclear across it."""
    if worse is None:
        return "unclear"
    if worse.high <= margin:
        return "kept"
    return "lost" if worse.low > margin else "unclear"


def _worse(result: Evaluation, student: str, other: str, metric: str, sign: int) -> Interval | None:
    """How much worse the student is than another model: sign is 1 where more is better, −1 where less is."""
    found = result.difference(student, other, metric)
    if found is None:
        return None
    ends = sorted((-sign * found.low, -sign * found.high))
    return Interval(-sign * found.value, *ends)


def _number(result: Evaluation, model: str, metric: str) -> float:
    value = result.rows[model].get(metric)
    return float("nan") if value is None else value


def _signed(found: Interval, scale: float = 1.0, digits: int = 1) -> str:
    low, high = sorted((scale * found.low, scale * found.high))
    return f"{scale * found.value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def verdict(result: Evaluation, student: str, *, single: str | None = None, baseline: str | None = None) -> Verdict:
    """Judges one student of an evaluation with a reference and resamples, by the rules above."""
    ensemble = result.reference
    if ensemble is None or not result.draws:
        raise ValueError("a verdict needs an ensemble to compare with and intervals: evaluate(..., resamples=200)")
    for name in (student, single, baseline):
        if name is not None and name not in result.rows:
            raise ValueError(f"there is no model {name!r} in this evaluation: choose among {', '.join(result.rows)}")
    states: dict[str, State] = {}
    sentences: list[str] = []
    for margin in result.task.margins:
        _judge(result, student, ensemble, margin, states, sentences)
    confident = _judge_confidence(result, student, ensemble, sentences)
    _judge_knowledge(result, student, ensemble, states, sentences)
    beaten = {name: _beaten(result, student, name, sentences) for name in (single, baseline) if name is not None}
    deploy, use, why = _decide(student, ensemble, single, baseline, states, confident, beaten)
    return Verdict(student, deploy, use, states, [why, *sentences])


def _judge(
    result: Evaluation,
    student: str,
    ensemble: str,
    margin: Margin,
    states: dict[str, State],
    sentences: list[str],
) -> None:
    """One of the task's margins: whether the student kept what it measures."""
    score = next(score for score in result.task.table if score.name == margin.score)
    worse = _worse(result, student, ensemble, margin.score, score.better)
    theirs = _number(result, ensemble, margin.score)
    states[margin.what] = _kept(worse, margin.most * theirs if margin.relative else margin.most)
    if worse is None:
        return
    what, sign = WORDS[states[margin.what]], -score.better
    if margin.relative:
        amount = f"{_signed(worse, 100 * sign / theirs)} per cent of the ensemble's"
    elif score.percent:
        amount = f"{_signed(worse, 100 * sign, 2)} points from the ensemble"
    else:
        amount = f"{_signed(worse, sign, 3)} from the ensemble"
    sentences.append(f"{margin.what.capitalize()} is {what}: {margin.score} {amount}.")


def _judge_confidence(result: Evaluation, student: str, ensemble: str, sentences: list[str]) -> bool:
    """Returns whether the student is over-confident where its ensemble is not."""
    own, theirs = (result.task.overconfident(result.columns[name]["test"]) for name in (student, ensemble))
    if own:
        sentences.append(
            "The student is over-confident" + (", as its ensemble is." if theirs else " and the ensemble is not.")
        )
    return own and not theirs


def _judge_knowledge(
    result: Evaluation, student: str, ensemble: str, states: dict[str, State], sentences: list[str]
) -> None:
    own, theirs = result.columns[student]["test"], result.columns[ensemble]["test"]
    if "knowledge" not in theirs or theirs["knowledge"].mean() <= NOTHING * theirs["total"].mean():
        states["knowledge"] = "none"
        sentences.append("The ensemble has no knowledge uncertainty to keep: it is one model, or its members agree.")
        return
    if "knowledge" not in own:
        states["knowledge"] = "lost"
        sentences.append(
            "The student has no knowledge uncertainty: its method keeps the prediction and the total only."
        )
        return
    everywhere = "ρ knowledge, all" if "ρ knowledge, all" in result.rows[student] else "ρ knowledge"
    follows = _number(result, student, everywhere)
    sets = {
        name: _worse(result, student, ensemble, f"OOD {name} knowledge", 1)
        for name in result.columns[student]
        if name != "test"
    }
    told = {name: _kept(worse, AUROC) for name, worse in sets.items() if worse is not None}
    if np.isnan(follows) or follows < UNRANKED or "lost" in told.values():
        states["knowledge"] = "lost"
    elif follows >= RANKED and all(state == "kept" for state in told.values()):
        states["knowledge"] = "kept"
    else:
        states["knowledge"] = "unclear"
    what = WORDS[states["knowledge"]]
    found = [f"AUROC on “{name}” {_signed(worse, -100)} points" for name, worse in sets.items() if worse is not None]
    sentences.append(
        f"Knowledge is {what}: it ranks inputs as the ensemble's does to ρ = {follows:.2f}"
        + "".join(f", {f}" for f in found)
        + "."
    )


def _beaten(result: Evaluation, student: str, other: str, sentences: list[str]) -> bool:
    """Whether the other model's NLL is surely lower."""
    worse = _worse(result, student, other, "NLL", -1)
    if worse is None:
        return False
    surely = worse.low > 0
    word = "surely worse than" if surely else ("surely better than" if worse.high < 0 else "about as good as")
    sentences.append(f"The student is {word} {other}: NLL {_signed(worse, digits=3)}.")
    return surely


def _decide(
    student: str,
    ensemble: str,
    single: str | None,
    baseline: str | None,
    states: dict[str, State],
    confident: bool,
    beaten: dict[str, bool],
) -> tuple[str, bool, str]:
    lost = [name for name in ("accuracy", "calibration") if states.get(name) == "lost"]
    known = states["knowledge"]
    if single is not None and beaten[single]:
        return single, False, f"Do not deploy this student: {single} alone is better, at the same cost."
    if lost or confident:
        why = " and ".join(lost)
        why = f"{why} was lost" if why else "it is over-confident"
        return (
            ensemble,
            True,
            f"Do not deploy this student: {why}. Keep the ensemble, or distil longer or with more data.",
        )
    if baseline is not None and beaten[baseline] and known != "kept":
        return (
            baseline,
            False,
            f"Deploy {baseline}: it predicts better than the student, which did not keep the knowledge.",
        )
    if known == "lost":
        return student, False, "Deploy the student for its predictions only: do not use its knowledge uncertainty."
    if known == "unclear":
        return (
            student,
            False,
            "Deploy the student for its predictions; its knowledge needs more test data to be trusted.",
        )
    doubt = [name for name, state in states.items() if state == "unclear" and name != "knowledge"]
    hedge = f" More test data would settle {' and '.join(doubt)}." if doubt else ""
    return student, known == "kept", "Deploy the student." + hedge
