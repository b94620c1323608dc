"""Training that goes on while it helps: in rounds, each twice as long as the one before."""

import math
from dataclasses import replace
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from solera.core.progress import tell
from solera.core.seeds import stream
from solera.training.lesson import Lesson
from solera.training.settings import Training

FIRST = 30  # epochs of the first round, or as many more as make up
LEAST_STEPS = 600  # steps
LEAST_GAIN = 1e-4  # nats: a round that lowers the held-out loss by less was not worth its time
LABEL_WEIGHTS = (0.0, 0.25, 0.5)  # the labels' share of the loss, among which validation chooses
Facts = dict[str, float]


def rounds(training: Training, steps: int) -> list[int]:
    """The number of epochs of every possible round; `steps` are the batches of an epoch."""
    first = max(FIRST, math.ceil(LEAST_STEPS / steps))
    return [first << number for number in range(training.most_rounds)]


def clearly_less(new: Float[Tensor, " N"], old: Float[Tensor, " N"]) -> bool:
    """Whether losses have fallen on average by more than one standard error of the difference, and the least gain."""
    gain = old - new
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return float(gain.mean()) > max(error, LEAST_GAIN)


def _weights(lesson: Lesson) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in lesson.student.state_dict().items()}


def best_label_weight(lesson: Lesson, training: Training, folder: Path | None) -> tuple[float, Facts]:
    """The weight of labels that makes held-out labels likeliest after a first round; its network goes on from there.

    A weight above 0 must clearly beat 0.
    """
    start, weights, losses = _weights(lesson), {}, {}
    for weight in LABEL_WEIGHTS:
        lesson.student.load_state_dict(start)
        lesson.train(replace(training, label_weight=weight), None if folder is None else folder / f"labels-{weight:g}")
        weights[weight], losses[weight] = _weights(lesson), lesson.surprise()
    best = min(LABEL_WEIGHTS, key=lambda weight: float(losses[weight].mean()))
    best = best if best == 0 or clearly_less(losses[best], losses[0.0]) else 0.0
    lesson.student.load_state_dict(weights[best])
    return best, {f"held-out NLL at label weight {weight:g}": float(loss.mean()) for weight, loss in losses.items()}


def patiently(lesson: Lesson, training: Training, folder: Path | None) -> Facts:
    """Trains in rounds of one cycle of the learning rate each, from the best weights so far.

    It ends with a round after which the held-out loss is not clearly lower, at the latest with round number
    `training.most_rounds`. The best weights are kept, and what is returned goes onto the student's card.
    """
    assert lesson.held is not None
    plan, done, facts = rounds(training, len(lesson.batches)), 0, Facts()
    fixed = replace(training, epochs=plan[0], label_weight=training.label_share)
    search = training.label_weight == "auto" and _has_labels(lesson)
    _announce(lesson, fixed, plan, search)
    if search:
        weight, facts = best_label_weight(lesson, fixed, folder)
        fixed = replace(fixed, label_weight=weight)
    else:
        lesson.train(fixed, None if folder is None else folder / "round-0")
    done, losses = plan[0], lesson.divergence(fixed)
    for number, epochs in enumerate(plan[1:], 1):
        best = _weights(lesson)
        again = replace(fixed, epochs=epochs, seed=stream(training.seed, "round", number))
        lesson.train(again, None if folder is None else folder / f"round-{number}")
        done, after = done + epochs, lesson.divergence(fixed)
        better = clearly_less(after, losses)
        if after.mean() > losses.mean():
            lesson.student.load_state_dict(best)
        else:
            losses = after
        if not better:
            break
    else:
        if len(plan) > 1:
            tell(
                f"distil {type(lesson.method).__name__}: its last round still helped: "
                f"the same training with most_rounds={len(plan) + 1} goes on for another"
            )
    return {"epochs": done, "label weight": fixed.label_share, **facts}


def _has_labels(lesson: Lesson) -> bool:
    """Whether some of the first examples, and of the first held-out ones, have a target."""
    assert lesson.held is not None
    some = [next(iter(batches)) for batches in (lesson.batches, lesson.held)]
    return all(batch.target is not None and bool(lesson.task.labelled(batch).any()) for batch in some)


def _announce(lesson: Lesson, training: Training, plan: list[int], search: bool) -> None:
    """The budget, and how long it may take."""
    seconds = lesson.seconds_a_step(training) * len(lesson.batches)
    first = plan[0] * (len(LABEL_WEIGHTS) if search else 1)
    least, most = (seconds * epochs for epochs in (first + sum(plan[1:2]), first + sum(plan[1:])))
    tell(
        f"distil {type(lesson.method).__name__}: rounds of {', '.join(map(str, plan))} epochs, until one helps no more"
        + (f" (the first one {len(LABEL_WEIGHTS)} times, to choose the weight of labels)" if search else "")
        + f"; about {_span(least)} to {_span(most)}"
    )


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
