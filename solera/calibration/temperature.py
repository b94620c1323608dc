"""Temperature scaling: one number that calibrates probabilities (Guo et al., 2017; `latentbe` eq. 22–25).

Logits may be any scores that softmax turns into the prediction, log-probabilities included. For an ensemble the
temperature is applied after averaging: pass ln p̄, the logarithm of the mean of the members' probabilities.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from solera.metrics import ece
from solera.metrics.inputs import Elements, Values
from solera.metrics.rows import rows_and_labels

LOWEST, HIGHEST = 0.01, 100.0  # the temperatures that are searched


def _scores(logits: Values, y: Values, weight: Values | None) -> tuple[Elements, NDArray, NDArray]:
    """Logits [N, K] in float64 with row maximum 0, and labels [N]. −∞ stands for an impossible class."""
    layout, scores, labels = rows_and_labels(logits, "logits", y, weight)
    scores = scores.astype(np.float64)
    top = scores.max(-1, keepdims=True)  # NaN when a logit is
    if not np.isfinite(top).all():
        at = int((~np.isfinite(top[:, 0])).argmax())
        raise ValueError(
            f"logits[{layout.position(at)}] contains NaN or +∞, or nothing but −∞: "
            "pass finite logits (−∞ for an impossible class is allowed)"
        )
    return layout, scores - top, labels


def _slope_and_curvature(
    scores: NDArray, reachable: NDArray, at_label: NDArray, layout: Elements, inverse: float
) -> tuple[float, float]:
    """First and second derivative of the mean NLL in 1/T: E[z] − z_y and Var[z] under softmax(z/T)."""
    p = np.exp(scores * inverse)
    p /= p.sum(-1, keepdims=True)
    mean = np.einsum("nk,nk->n", p, reachable)
    spread = np.einsum("nk,nk->n", p, (reachable - mean[:, None]) ** 2)
    return layout.average(mean - at_label), layout.average(spread)


def fit_temperature(logits: Values, y: Values, weight: Values | None = None) -> float:
    """argmin_T of the mean −ln softmax(z/T)_y (`latentbe` eq. 23), T in [0.01, 100].

    The NLL is convex in 1/T, so its slope has one zero: Newton's method finds it, bisection guards it. Where the
    optimum lies outside the interval (0 for data that the logits separate perfectly, ∞ for logits worse than chance)
    the nearer end is returned with a RuntimeWarning. Logits that are equal within every row have no temperature: 1.
    """
    layout, scores, labels = _scores(logits, y, weight)
    at_label = scores[np.arange(len(labels)), labels]
    if np.isinf(at_label).any():
        where = layout.position(np.isinf(at_label).argmax())
        raise ValueError(
            f"the true class at [{where}] has probability 0 at every temperature: "
            "pass logits, or log-probabilities computed in float64 without underflow"
        )
    reachable = np.where(np.isinf(scores), 0.0, scores)  # such a class has p = 0, and 0 · ∞ must be 0
    if not reachable.any():
        return 1.0
    low, high = 1 / HIGHEST, 1 / LOWEST
    for end, beyond in ((high, -1), (low, 1)):
        slope, _ = _slope_and_curvature(scores, reachable, at_label, layout, end)
        if slope * beyond >= 0:
            warnings.warn(
                f"the best temperature is not inside [{LOWEST}, {HIGHEST}] and was cut to {1 / end:g}: "
                "use more, or harder, validation data",
                RuntimeWarning,
                stacklevel=2,
            )
            return 1 / end
    inverse, last_step = 1.0, np.inf
    while high - low > 1e-13 * high:
        slope, curvature = _slope_and_curvature(scores, reachable, at_label, layout, inverse)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        step = -slope / curvature if curvature > 0 else np.inf
        if abs(step) <= 1e-13 * inverse:
            break
        # Newton, as long as it stays inside and its steps at least halve; otherwise the middle on a logarithmic scale.
        if not (low < inverse + step < high and abs(step) < last_step / 2):
            step = np.sqrt(low * high) - inverse
        inverse, last_step = inverse + step, abs(step)
    return float(1 / inverse)


def _softmax(scores: NDArray, temperature: float) -> NDArray:
    p = np.exp(scores / temperature)
    return p / p.sum(-1, keepdims=True)


def calibrated_nll(
    validation_logits: Values,
    validation_y: Values,
    logits: Values,
    y: Values,
    validation_weight: Values | None = None,
    weight: Values | None = None,
) -> float:
    """Mean −ln softmax(z/T*)_y with T* fitted on the validation data (`latentbe` eq. 24, as a mean).

    Taken from the logits, so that a tiny probability of the true class does not become 0 on the way.
    """
    temperature = fit_temperature(validation_logits, validation_y, validation_weight)
    layout, scores, labels = _scores(logits, y, weight)
    at_label = scores[np.arange(len(labels)), labels]
    return layout.average(np.log(np.exp(scores / temperature).sum(-1)) - at_label / temperature)


def calibrated_ece(
    validation_logits: Values,
    validation_y: Values,
    logits: Values,
    y: Values,
    bins: int = 15,
    validation_weight: Values | None = None,
    weight: Values | None = None,
) -> float:
    """ECE of softmax(z/T*) with T* fitted on the validation data (`latentbe` eq. 25)."""
    temperature = fit_temperature(validation_logits, validation_y, validation_weight)
    layout, scores, labels = _scores(logits, y, weight)
    return ece(_softmax(scores, temperature), labels, bins, layout.weight)
