"""Intervals of shares that do not collapse where there are no errors: exact ones, from counts."""

import math
from collections.abc import Callable
from statistics import NormalDist

LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
STEPS = 60  # of bisection: one more bit each


def _continued_fraction(x: float, a: float, b: float) -> float:
    """That of the incomplete beta function, for x below its mean, by Lentz's method (Numerical Recipes, §6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    whole = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            change = c * d
            whole *= change
        if abs(change - 1) < 1e-14:
            break
    return whole


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X ≤ x) of a Beta(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(logarithm) * _continued_fraction(x, a, b) / a
    return 1 - math.exp(logarithm) * _continued_fraction(1 - x, b, a) / b


def _first(low: float, high: float, reached: Callable[[float], bool]) -> float:
    """Where a condition that holds from some point on begins to hold."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def exact(count: float, size: float) -> tuple[float, float]:
    """Clopper and Pearson's (1934) interval of a share, of which `count` in `size` were seen."""
    tail = (1 - LEVEL) / 2
    low = _first(0, 1, lambda p: beta_cdf(p, count, size - count + 1) >= tail) if count > 0 else 0.0
    high = _first(0, 1, lambda p: beta_cdf(p, count + 1, size - count) >= 1 - tail) if count < size else 1.0
    return low, high


def least_width(size: float) -> float:
    """z²/(n + z²): how far the difference of two shares may be from 0 if not one of n examples told them apart."""
    return Z**2 / (size + Z**2)


def least_examples(margin: float) -> int:
    """How many examples must agree, every one, to show that two shares differ by no more than this margin."""
    return math.ceil(Z**2 * (1 - margin) / margin)


def _score(difference: float, better: float, worse: float, size: float) -> float:
    """Tango's (1998) score statistic of this difference of two shares of the same examples."""
    b = -better - worse + (2 * size - better + worse) * difference
    c = -worse * difference * (1 - difference)
    nuisance = max(0.0, (math.sqrt(max(0.0, b * b - 8 * size * c)) - b) / (4 * size))
    variance = size * (2 * nuisance + difference * (1 - difference))
    gap = better - worse - size * difference
    if variance <= 0:
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / math.sqrt(variance)


def paired(better: float, worse: float, size: float) -> tuple[float, float]:
    """The interval of the difference of two shares of the same `size` examples.

    `better`: how many only the first got right; `worse`: how many only the second. Tango's score interval, which has
    a width even where both are 0, and at least as wide as the exact test of the discordant pairs (McNemar's) allows: so
    it leaves 0 out only if that does.
    """
    low = _first(-1, 1, lambda d: _score(d, better, worse, size) <= Z)
    high = _first(-1, 1, lambda d: _score(d, better, worse, size) <= -Z)
    apart = better + worse
    if not apart:
        return low, high
    ends = [(2 * share - 1) * apart / size for share in exact(better, apart)]
    return min(low, ends[0]), max(high, ends[1])
