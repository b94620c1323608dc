"""What was kept, what was lost, what to deploy and why: a few sentences, made from the intervals by stated rules.

The rules, for a student beside the ensemble it came from and, where they are given, its rivals: a single member, the
same member *calibrated* (one temperature, or one factor of its standard deviation, fitted on one half of the test
examples and applied to the other), and a baseline of the user's own, such as a model refitted on all data. Each looks
at a paired 95 % interval of a difference (`solera.evaluation.evidence` says which). Something is *kept* if even the bad
end of the interval is within the margin, *lost* if even the good end is outside, else *unclear*. Exact intervals
(accuracy of independent examples) are believed at any size: 381 examples are the fewest that can show accuracy kept to
one point. Bootstrap intervals of fewer than 100 examples are not believed: all that rests on them is unclear.

The margins are the task's (`Task.margins`, solera/tasks/…; here those of classes and of continuous targets) and, for
knowledge, those of `solera.evaluation.margins`.

1. **Accuracy** (classes: accuracy, margin 1 point; continuous targets: RMSE, margin 5 % of the ensemble's).
2. **Calibration** (classes: ECE, margin 2 points; continuous targets: coverage error, margin 5 points). A student whose
   mean confidence exceeds its accuracy by 5 points, or whose 90 % interval holds less than 80 % of the targets, is
   *over-confident*.
3. **Rejection** (PRR by total uncertainty, margin 5 points).
4. **Knowledge** (epistemic uncertainty) is *kept* if, on the test set and on every unfamiliar set by itself, it ranks
   inputs as the ensemble's does (ρ of 0.5 or more, by the bad end of its interval), and tells every unfamiliar set from
   the test set as well (AUROC, margin 5 points). *Lost* if the student has none, if ρ is surely below 0.5 on some set,
   or if a set is surely told apart worse than that. Sets of fewer than 100 examples are not looked at, and without an
   unfamiliar set knowledge cannot be kept. An ensemble may have no knowledge to keep.
5. **Rivals**: the student is *surely better* or *surely worse* in accuracy (RMSE) or in NLL if the interval of the
   difference leaves 0 out. An NLL of ∞ is worse than any other.

To deploy, the first that applies:

- the *ensemble* if the student's NLL is not finite: it called impossible what happened;
- if the student is surely worse than a rival in anything: among the rivals that are surely better than the student
  in something and surely worse in nothing, the one of lowest NLL, with its measured cost beside the student's; if there
  is none, the *ensemble*;
- the *ensemble* if accuracy or calibration was lost, or the student is over-confident and the ensemble is not;
- the *ensemble* if accuracy or calibration is unclear: without evidence the student is not deployed;
- the *single* member, calibrated if that is better, if nothing is gained over it: the student is surely better in
  nothing, kept no knowledge and takes more than two thirds of its time;
- otherwise the *student*: with its knowledge only if that was kept, for rejection only if that was kept.
"""

from dataclasses import dataclass, field

import numpy as np

from solera.evaluation.evaluation import Evaluation
from solera.evaluation.glossary import score_named
from solera.evaluation.judgement import (
    Judged,
    Rival,
    State,
    compare_with,
    judge,
    judge_confidence,
    judge_knowledge,
)
from solera.evaluation.latency import Cost, cost_beside
from solera.evaluation.margins import FASTER, LEAST_EXAMPLES
from solera.evaluation.recalibrated import calibrated_name
from solera.evaluation.shares import least_examples

REFUSED = {
    "lost": " Do not reject by its total uncertainty: that was lost.",
    "unclear": " Do not reject by its total uncertainty: it is not sure that this was kept.",
}


@dataclass(frozen=True)
class Verdict:
    """Whether each property is kept, what to deploy, and the sentences that say so.

    `undecided`: the student is not deployed for want of evidence, not for a fault. `better` and `worse` name, for each
    rival, the scores in which the student surely is.
    """

    student: str
    deploy: str
    use_knowledge: bool
    states: dict[str, State]
    sentences: list[str] = field(default_factory=list)
    use_rejection: bool = False
    undecided: bool = False
    better: dict[str, tuple[str, ...]] = field(default_factory=dict)
    worse: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def deploy_student(self) -> bool:
        """Whether the student is what to deploy."""
        return self.deploy == self.student


@dataclass(frozen=True)
class _Case:
    """All that the decision rests on."""

    result: Evaluation
    student: str
    ensemble: str
    single: str | None
    baseline: str | None
    judged: dict[str, Judged]
    rivals: list[Rival]
    newly_overconfident: bool  # and its ensemble is not

    def state(self, what: str) -> State:
        """What became of it; a task may not measure it."""
        return self.judged[what].state if what in self.judged else "none"

    def nll(self, model: str) -> float:
        """NaN where it was not measured."""
        found = self.result.rows[model].get("NLL")
        return np.nan if found is None else found

    def cost(self, model: str) -> Cost:
        """What a model costs, as far as it was measured."""
        return self.result.costs.get(model, Cost())


@dataclass(frozen=True)
class _Decision:
    deploy: str
    use_knowledge: bool
    sentence: str
    undecided: bool = False


def _keep_ensemble(case: _Case, sentence: str, undecided: bool = False) -> _Decision:
    """The ensemble stays."""
    return _Decision(case.ensemble, case.state("knowledge") != "none", sentence, undecided)


def _impossible(case: _Case) -> _Decision | None:
    value = case.nll(case.student)
    if np.isfinite(value) or score_named("NLL", case.result.task)[0] is None:
        return None
    told = "∞: it gave what happened a probability of 0" if value == np.inf else f"{value}, which is no number"
    return _keep_ensemble(case, f"Do not deploy this student: its NLL is {told}. Keep the ensemble.")


def _beaten(case: _Case) -> _Decision | None:
    """A rival is better, or at least better in something."""
    above = [rival for rival in case.rivals if rival.worse]
    if not above:
        return None
    winners = sorted((rival for rival in above if not rival.better), key=lambda rival: case.nll(rival.name))
    if not winners:
        told = "; ".join(f"than {r.name} in {' and '.join(r.worse)}, though better in {r.better[0]}" for r in above)
        return _keep_ensemble(case, f"Do not deploy this student: it is surely worse {told}. Keep the ensemble.")
    best, calibrated = winners[0], case.single and calibrated_name(case.single)
    cost = cost_beside(case.cost(best.name), case.cost(case.student))
    what = f"Do not deploy this student: {best.name} alone is better in {' and '.join(best.worse)}{cost}."
    if best.name == calibrated and any(r.better for r in case.rivals if r.name == case.single):
        what += f" What the student is better in than {case.single}, calibration alone would give {case.single}, too."
    if case.state("knowledge") == "kept":
        what += " The student's knowledge was kept: ask it beside the other for unfamiliar inputs only."
    return _Decision(best.name, case.state("knowledge") == "kept", what)


def _lost(case: _Case) -> _Decision | None:
    lost = [name for name in ("accuracy", "calibration") if case.state(name) == "lost"]
    if not lost and not case.newly_overconfident:
        return None
    why = f"{' and '.join(lost)} was lost" if lost else "it is over-confident"
    return _keep_ensemble(
        case, f"Do not deploy this student: {why}. Keep the ensemble, or distil longer or with more data."
    )


def _unclear(case: _Case) -> _Decision | None:
    """No evidence is no reason to deploy."""
    unclear = [name for name in ("accuracy", "calibration") if case.state(name) == "unclear"]
    if not unclear:
        return None
    examples = case.result.sizes["test"]
    least = [least_examples(m.most) for m in case.result.task.margins if m.what == "accuracy" and m.column]
    told = f"{examples:,} test examples do not show that it kept {' and '.join(unclear)}"
    if examples < max([LEAST_EXAMPLES, *least]):
        told += f" ({max([LEAST_EXAMPLES, *least])} are the fewest that can)"
    return _keep_ensemble(
        case, f"Do not deploy this student yet: {told}. Keep the ensemble, or test on more examples.", True
    )


def _no_gain(case: _Case) -> _Decision | None:
    """A single member that is as good, for all we know, is simpler."""
    names = [case.single, case.single and calibrated_name(case.single)]
    alone = sorted((r for r in case.rivals if r.name in names), key=lambda rival: case.nll(rival.name))
    if not alone or alone[0].better or case.state("knowledge") == "kept":
        return None
    times = [case.cost(name).microseconds for name in (alone[0].name, case.student)]
    if times[0] is not None and times[1] is not None and times[0] > FASTER * times[1]:
        return None
    what = f"nothing shows that it is better than {alone[0].name}, and its knowledge was not kept"
    return _Decision(alone[0].name, False, f"Do not deploy this student: {what}.")


def _deployed(case: _Case) -> _Decision:
    judged = case.judged["knowledge"]
    refused = REFUSED.get(case.state("rejection"), "")
    if judged.reason == "absent":
        why = "it has no knowledge uncertainty, do not use it to tell unfamiliar inputs"
    elif judged.state == "lost":
        why = "do not use its knowledge uncertainty, it was lost"
    elif judged.state == "unclear":
        until = "it was tested on unfamiliar inputs" if judged.reason == "untested" else "more data show it was kept"
        why = f"do not use its knowledge uncertainty before {until}"
    else:
        return _Decision(case.student, judged.state == "kept", f"Deploy the student.{refused}")
    return _Decision(case.student, False, f"Deploy the student for its predictions only: {why}.{refused}")


def _decide(case: _Case) -> _Decision:
    for rule in (_impossible, _beaten, _lost, _unclear, _no_gain):
        if (found := rule(case)) is not None:
            return found
    return _deployed(case)


def _require(result: Evaluation, names: list[str | None]) -> str:
    """The ensemble's name, if this evaluation can be judged."""
    if result.reference is None or not result.draws:
        raise ValueError("a verdict needs an ensemble to compare with and intervals: evaluate(..., resamples=200)")
    for name in names:
        if name is not None and name not in result.rows:
            raise ValueError(f"there is no model {name!r} in this evaluation: choose among {', '.join(result.rows)}")
    return result.reference


def verdict(result: Evaluation, student: str, *, single: str | None = None, baseline: str | None = None) -> Verdict:
    """Judges one student of an evaluation with a reference and resamples, by the rules above."""
    ensemble = _require(result, [student, single, baseline])
    judged = {margin.what: judge(result, student, ensemble, margin) for margin in result.task.margins}
    overconfident, confidence = judge_confidence(result, student, ensemble)
    judged["knowledge"] = judge_knowledge(result, student, ensemble)
    names = [single, single and calibrated_name(single), baseline]
    rivals = [compare_with(result, student, name) for name in names if name and name in result.rows]
    found = _decide(_Case(result, student, ensemble, single, baseline, judged, rivals, overconfident))
    states: dict[str, State] = {what: each.state for what, each in judged.items()}
    told = [confidence, *(each.sentence for each in judged.values()), *(rival.sentence for rival in rivals)]
    return Verdict(
        student,
        found.deploy,
        found.use_knowledge,
        states,
        [found.sentence, *(sentence for sentence in told if sentence)],
        use_rejection=found.deploy == student and states.get("rejection") == "kept",
        undecided=found.undecided,
        better={rival.name: rival.better for rival in rivals},
        worse={rival.name: rival.worse for rival in rivals},
    )
