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

FIRST, LEAST_STEPS = 30, 600  # the first round has so many epochs, and no fewer steps
LEAST_GAIN = 1e-4  # nats: a round that lowers the held-out loss by less was not worth its time
SHARES = (0.0, 0.25, 0.5)  # of the labels in the loss, among which validation chooses
Facts = dict[str, float]


def rounds(training: Training, steps: int) -> list[int]:
    """Epochs of each round that there may be, of so many steps each."""
    first = max(FIRST, math.ceil(LEAST_STEPS / steps))
    return [first << number for number in range(training.most_rounds)]


def surely_less(new: Float[Tensor, " N"], old: Float[Tensor, " N"]) -> bool:
    """Whether losses have fallen on average, by more than the standard error of the difference and the least gain."""
    gain = old - new
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return float(gain.mean()) > max(error, LEAST_GAIN)


def _weights(lesson: Lesson) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in lesson.student.state_dict().items()}


def best_share(lesson: Lesson, training: Training, folder: Path | None) -> tuple[float, Facts]:
    """The share of labels that makes held-out labels likeliest after a first round; its network goes on from there.

    A share above 0 must surely beat 0.
    """
    start, weights, losses = _weights(lesson), {}, {}
    for share in SHARES:
        lesson.student.load_state_dict(start)
        lesson.train(replace(training, label_weight=share), None if folder is None else folder / f"labels-{share:g}")
        weights[share], losses[share] = _weights(lesson), lesson.surprise()
    best = min(SHARES, key=lambda share: float(losses[share].mean()))
    best = best if best == 0 or surely_less(losses[best], losses[0.0]) else 0.0
    lesson.student.load_state_dict(weights[best])
    return best, {f"held-out NLL at {share:.0%} labels": float(loss.mean()) for share, loss in losses.items()}


def patiently(lesson: Lesson, training: Training, folder: Path | None) -> Facts:
    """Trains in rounds of one cycle of the learning rate each, from the best weights so far.

    It ends with a round after which the held-out loss is not surely lower, at the latest with round number
    `training.most_rounds`. The best weights are kept, and what is returned goes onto the student's card.
    """
    assert lesson.held is not None
    plan, done, facts = rounds(training, len(lesson.batches)), 0, Facts()
    fixed = replace(training, epochs=plan[0], label_weight=training.label_share)
    search = training.label_weight == "auto" and _has_labels(lesson)
    _announce(lesson, fixed, plan, search)
    if search:
        share, facts = best_share(lesson, fixed, folder)
        fixed = replace(fixed, label_weight=share)
    else:
        lesson.train(fixed, None if folder is None else folder / "round-0")
    done, losses = plan[0], lesson.divergence(fixed)
    for number, epochs in enumerate(plan[1:], 1):
        best = _weights(lesson)
        again = replace(fixed, epochs=epochs, seed=stream(training.seed, "round", number))
        lesson.train(again, None if folder is None else folder / f"round-{number}")
        done, after = done + epochs, lesson.divergence(fixed)
        better = surely_less(after, losses)
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
                f"Training(epochs='patient', most_rounds={len(plan) + 1}) goes on for another"
            )
    return {"epochs": done, "share of labels": fixed.label_share, **facts}


def _has_labels(lesson: Lesson) -> bool:
    """Whether some of the first examples, and of the first held-out ones, have a target."""
    assert lesson.held is not None
    some = [next(iter(batches)) for batches in (lesson.batches, lesson.held)]
    return all(batch.target is not None and bool(lesson.task.labelled(batch).any()) for batch in some)


def _announce(lesson: Lesson, training: Training, plan: list[int], search: bool) -> None:
    """The budget, and how long it may take."""
    seconds = lesson.seconds_a_step(training) * len(lesson.batches)
    first = plan[0] * (len(SHARES) if search else 1)
    least, most = (seconds * epochs for epochs in (first + sum(plan[1:2]), first + sum(plan[1:])))
    tell(
        f"distil {type(lesson.method).__name__}: rounds of {', '.join(map(str, plan))} epochs, as long as they help"
        + (f" (the first one {len(SHARES)} times, to choose the share of labels)" if search else "")
        + f"; about {_span(least)} to {_span(most)}"
    )


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
