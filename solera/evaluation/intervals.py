"""How sure a metric is: bootstrap intervals, the same resampled examples for every model, so differences are paired."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from solera.core.progress import progress
from solera.core.seeds import stream
from solera.evaluation.measure import Sets
from solera.evaluation.shares import LEVEL
from solera.evaluation.stream import Elements
from solera.tasks import Row

UNSEEN = 1 + 2**0.5  # how many times the bias that a bootstrap sees its metric has, where it is nothing but chance
Draws = dict[str, dict[str, np.ndarray]]  # model -> metric -> its value in every resample


@dataclass(frozen=True)
class Interval:
    """A number, and where it would lie in 95 of 100 samples of examples like these."""

    value: float
    low: float
    high: float


def ends(drawn: np.ndarray) -> tuple[float, float]:
    """Of the percentile interval."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def interval(value: float | None, drawn: np.ndarray) -> Interval | None:
    """The percentile interval; None for a metric that some resample does not have (no error in it)."""
    if value is None or not np.isfinite(value) or not len(drawn) or not np.isfinite(drawn).all():
        return None
    return Interval(value, *ends(drawn))


def interval_of_inflated(
    own: float, drawn: np.ndarray, other: float = 0.0, theirs: np.ndarray | None = None
) -> Interval:
    """Of a mean of absolute values, such as the ECE, or of the difference of two: corrected for their bias.

    Chance adds to such a metric, and resampling adds as much chance once more: the percentile interval of a calibrated
    model often lies above its own estimate. The bootstrap sees a bias δ = mean of the draws − value. Where the truth is
    far from 0 that is about the bias of the value; where the truth is 0 the value *is* bias, and grows by √2 as the
    chance doubles, so it is δ/(√2 − 1) = (1 + √2)·δ. Both corrections are made; the interval holds what either gives.
    """
    theirs = np.zeros_like(drawn) if theirs is None else theirs
    low, high = ends(drawn - theirs)
    seen = max(float(drawn.mean()) - own, 0.0), max(float(theirs.mean()) - other, 0.0)
    low -= (1 + UNSEEN) * seen[0] - 2 * seen[1]
    high -= 2 * seen[0] - (1 + UNSEEN) * seen[1]
    return Interval(own - other, min(low, own - other), max(high, own - other))


def bootstrap(
    every: Mapping[str, Sets],
    elements: Mapping[str, Elements],
    measured: Callable[[Mapping[str, Sets]], dict[str, Row]],
    resamples: int,
    seed: int = 0,
) -> Draws:
    """Every model's metrics on resampled examples; `measured` gives all models' rows.

    Examples are drawn with replacement, from each set by itself; tokens of one sequence stay together.
    """
    if not resamples:
        return {}
    starts = {name: facts.starts for name, facts in elements.items()}
    generators = {name: np.random.default_rng(stream(seed, "bootstrap", name)) for name in starts}
    drawn: list[dict[str, Row]] = []
    with progress("bootstrap", resamples) as advance:
        for _ in range(resamples):
            rows = {name: resampled_rows(first, generators[name]) for name, first in starts.items()}
            drawn.append(measured({model: _resampled(sets, rows) for model, sets in every.items()}))
            advance("")
    return {
        model: {name: np.array([_number(draw[model][name]) for draw in drawn]) for name in row}
        for model, row in drawn[0].items()
    }


def resampled_rows(starts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """As many examples as there are, drawn with replacement, as the rows of their elements."""
    count = len(starts) - 1
    drawn = generator.integers(0, count, count)
    if starts[-1] == count:
        return drawn
    lengths = np.diff(starts)[drawn]
    ends = np.cumsum(lengths)
    return np.repeat(starts[drawn] - ends + lengths, lengths) + np.arange(ends[-1])


def _resampled(sets: Sets, rows: Mapping[str, np.ndarray]) -> Sets:
    return {name: {key: column[rows[name]] for key, column in columns.items()} for name, columns in sets.items()}


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
