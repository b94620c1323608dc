"""What every number of a report is called and means, in one plain sentence each."""

from typing import Any

from solera.tasks import Task

HELP = {
    "accuracy": "How often the likeliest class is the right one.",
    "NLL": "How surprised the model is by the truth: minus the logarithm of the probability it gave it.",
    "ECE": "How far confidence and accuracy lie apart, on average: 0 is honest.",
    "Brier": "The mean squared distance of the probabilities from the truth.",
    "PRR": "How much of an oracle's gain is had when the least certain answers are rejected: 100 is all, 0 is chance.",
    "RMSE": "The root of the mean squared error, in the target's units.",
    "CRPS": "How far the predicted distribution is from the truth, in the target's units.",
    "coverage 90 %": "How often the 90 % interval holds the truth: it should be 90.",
    "width 90 %": "How wide the 90 % interval is on average, in the target's units.",
    "coverage error": "How far the coverage of all intervals is from what they promise, on average.",
    "ρ error": "How well the uncertainty ranks the errors: 1 is the same order.",
    "ρ knowledge, all": "Whether knowledge ranks the inputs of all sets as the ensemble's does: 1 is the same order.",
    "agreement": "How often it names the same class as the ensemble.",
    "KL from the ensemble": "How far its probabilities are from the ensemble's, in nats.",
    "mean's distance, in σ": "How far its mean is from the ensemble's, in standard deviations of the ensemble.",
    "PRR kept": "The share of the ensemble's PRR that is left.",
    "Δ ECE": "By how much its calibration error is larger than the ensemble's.",
    "Δ coverage error": "By how much its coverage error is larger than the ensemble's.",
}
SHARES = ("accuracy", "ECE", "PRR", "coverage", "OOD", "agreement", "Δ ECE", "Δ coverage")


def unit(name: str) -> str:
    """`%` for what is a share and is shown as one."""
    return "%" if name.startswith(SHARES) or name.endswith(" kept") else ""


def better(name: str, task: Task) -> int:
    """1 where more is better, −1 where less is, 0 where neither."""
    if name in task.better:
        return task.better[name]
    if name.startswith("OOD ") or name.startswith("ρ ") or name in ("agreement", "PRR kept"):
        return 1
    return -1 if name.startswith(("Δ ", "KL ", "mean's ")) else 0


def help_for(name: str) -> str:
    """One sentence; of names made of others, by their parts."""
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
        return f"Whether its {rest} uncertainty ranks the test inputs as the ensemble's does: 1 is the same order."
    if first == "Δ":
        return f"How far its {rest} uncertainty is from the ensemble's, on average."
    return f"Its mean {name.removesuffix(' kept')} uncertainty as a share of the ensemble's."


def explained(names: list[str], task: Task) -> dict[str, dict[str, Any]]:
    """For each name: which way is better, its unit, and what it means."""
    return {name: {"better": better(name, task), "unit": unit(name), "help": help_for(name)} for name in names}
