"""What every number of a report is called and means, in one plain sentence each."""

from typing import Any

from solera.tasks import Score, Task

HELP = {
    "PRR kept": "The share of the ensemble's PRR that is left.",
}


def score_named(name: str, task: Task) -> tuple[Score | None, str]:
    """The task's score of this name, and the other set that it was measured on, if any: `accuracy on NAME`."""
    scores = {score.name: score for score in task.table}
    if name in scores:
        return scores[name], ""
    stem, _, other = name.partition(" on ")
    return (scores.get(stem), other) if other else (None, "")


def unit(name: str, task: Task) -> str:
    """`%` for what is a share and is shown as one."""
    score, _ = score_named(name.removeprefix("Δ "), task)
    if score is not None:
        return "%" if score.percent else ""
    return "%" if name.startswith("OOD") or name.endswith(" kept") else ""


def better(name: str, task: Task) -> int:
    """1 where more is better, −1 where less is, 0 where neither."""
    score, _ = score_named(name, task)
    if score is not None:
        return score.better
    if name.startswith("OOD ") or name.startswith("ρ ") or name == "PRR kept":
        return 1
    return -1 if name.startswith("Δ ") else 0


def help_for(name: str, task: Task) -> str:
    """One sentence; of names made of others, by their parts."""
    score, other = score_named(name, task)
    if score is not None:
        return f"{score.help} Measured on {other}." if other else score.help
    if name in HELP:
        return HELP[name]
    first, _, rest = name.partition(" ")
    if first == "OOD":
        kept = rest.endswith(" kept")
        other, _, measure = rest.removesuffix(" kept").rpartition(" ")
        if kept:
            return f"The share of the ensemble's skill at telling {other} by {measure} uncertainty that is left."
        return f"How well {measure} uncertainty tells {other} from the test inputs: AUROC, 50 is chance."
    if first == "ρ":
        key, _, other = rest.partition(" on ")
        where = f"inputs of {other}" if other else "test inputs"
        return f"Whether its {key} uncertainty ranks the {where} as the ensemble's does: 1 is the same order."
    if first == "Δ":
        if score_named(rest, task)[0] is not None:
            return f"By how much its {rest} is larger than the ensemble's."
        return f"How far its {rest} uncertainty is from the ensemble's, on average."
    return f"Its mean {name.removesuffix(' kept')} uncertainty as a share of the ensemble's."


def explained(names: list[str], task: Task) -> dict[str, dict[str, Any]]:
    """For each name: which way is better, its unit, and what it means."""
    return {
        name: {"better": better(name, task), "unit": unit(name, task), "help": help_for(name, task)} for name in names
    }
