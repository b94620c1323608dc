"""Schedules: progress in [0, 1] to a number."""

import math
from collections.abc import Callable

Schedule = Callable[[float], float]


def constant(value: float) -> Schedule:
    """The same value throughout."""
    return lambda progress: value


def linear(first: float, last: float, start: float = 0.0, stop: float = 1.0) -> Schedule:
    """`first` until `start`, then straight to `last` at `stop`, and `last` from there on."""
    if not 0 <= start < stop <= 1:
        raise ValueError(f"a linear schedule needs 0 <= start < stop <= 1, got start={start} and stop={stop}")

    def value(progress: float) -> float:
        share = min(max((progress - start) / (stop - start), 0.0), 1.0)
        return first + (last - first) * share

    return value


def cosine(first: float, last: float = 0.0) -> Schedule:
    """Half a cosine from `first` to `last`."""
    return lambda progress: last + (first - last) * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0))) / 2


def one_cycle(peak: float, warm_up: float = 0.3, low: float = 0.1, floor: float = 0.001) -> Schedule:
    """A rise from `low`·peak to the peak over the warm-up, then half a cosine down to `floor`·peak."""
    if not 0 < warm_up < 1:
        raise ValueError(f"warm_up must lie strictly between 0 and 1, got {warm_up}")
    rise, fall = linear(low * peak, peak, 0.0, warm_up), cosine(peak, floor * peak)
    return lambda progress: rise(progress) if progress < warm_up else fall((progress - warm_up) / (1 - warm_up))
