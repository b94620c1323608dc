"""Real targets, of one or several dimensions, in the units users gave."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from solera import metrics
from solera.core.checks import require_finite
from solera.distributions.base import Prediction
from solera.distributions.families import Family
from solera.distributions.gaussian import Gaussian, beside
from solera.distributions.mixture import Mixture
from solera.distributions.normal_wishart import NormalWishart
from solera.metrics.regression import mixture_cdf, mixture_quantile
from solera.metrics.student_t import student_t_cdf, student_t_quantile
from solera.tasks.base import Columns, Row, Task, as_columns, uncertainties


class Regression(Task):
    """One number per example, or D of them on the last axis. An unlabelled example's is NaN."""

    family: ClassVar[Family] = "gaussian"

    def check(self, target: Float[Tensor, "..."], size: int) -> None:
        require_finite("targets", target[~target.isnan()])
        if target.ndim > 1 and target.shape[-1] != size and size != 1:
            raise ValueError(f"targets have the shape {tuple(target.shape)}, predictions {size} dimensions")

    def labelled(self, target: Float[Tensor, "..."], axes: int) -> Bool[Tensor, "*batch"]:
        known = ~target.isnan()
        return known.all(-1) if target.ndim > axes else known

    def filled(self, target: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return target.nan_to_num(0.0)

    def columns(self, prediction: Prediction, target: Float[Tensor, "..."] | None = None) -> Columns:
        """`predicted`, `total`, where they exist `data` and `knowledge`; with targets `squared_error`, `nll` and `pit`.

        `pit` is the probability of a target below the true one: even over [0, 1] if the prediction is calibrated.
        """
        mean = prediction.mean
        found = {"predicted": mean.squeeze(-1) if mean.shape[-1] == 1 else mean, **uncertainties(prediction)}
        if target is None:
            return as_columns(found)
        y = beside(target, mean)
        found |= {"squared_error": (y - mean).square().sum(-1), "nll": -prediction.log_prob(target)}
        pit = np.stack([cdf(value) for value, (cdf, _, _) in zip(_numbers(y), _marginals(prediction), strict=True)], -1)
        return {**as_columns(found), "pit": pit.squeeze(-1) if pit.shape[-1] == 1 else pit}

    def scores(self, prediction: Prediction, columns: Columns, target: Float[Tensor, "..."]) -> Row:
        """RMSE, NLL and CRPS; coverage and width of the 90 % interval, and how far coverage is off over all levels;
        rank correlation of error and total uncertainty, and how well it ranks them to be rejected (1: like an oracle).

        All in the target's units, of several dimensions the average of each (NLL: of all together).
        """
        y, error = _numbers(beside(target, prediction.mean)), columns["squared_error"]
        each = list(zip(y, _marginals(prediction), strict=True))
        widths = [quantile(0.95) - quantile(0.05) for _, (_, quantile, _) in each]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one total for all, or no error at all: a dash says it
            ranked = metrics.error_correlation(columns["total"], np.sqrt(error))
            kept = metrics.retention_ratio(columns["total"], error)
        return {
            "RMSE": float(np.sqrt(error.mean() / len(each))),
            "NLL": float(columns["nll"].astype(np.float64).mean()),
            "CRPS": float(np.mean([crps(value) for value, (_, _, crps) in each])),
            "coverage 90 %": metrics.coverage_at(columns["pit"], 0.9),
            "width 90 %": float(np.mean(widths)),
            "coverage error": metrics.coverage_error(columns["pit"]),
            "ρ error": ranked,
            "PRR": kept,
        }


def _numbers(values: Tensor) -> list[np.ndarray]:
    """One float64 column per dimension."""
    return list(np.moveaxis(values.double().cpu().numpy().reshape(-1, values.shape[-1]), -1, 0))


def _marginals(prediction: Prediction) -> Iterator[tuple[Any, Any, Any]]:
    """For each dimension: its distribution function, its quantiles, and the CRPS of a column of targets."""
    if isinstance(prediction, NormalWishart):
        (belief,), (freedom,) = (_numbers(t.unsqueeze(-1)) for t in (prediction.belief, prediction.freedom))
        size = prediction.mean.shape[-1]
        wider = (1 + 1 / belief) * (freedom - size - 1) / (freedom - size + 1)  # of the Student-t than E[σ²]
        for mean, log_variance in zip(_numbers(prediction.mean), _numbers(prediction.log_variance), strict=True):
            told = mean, np.sqrt(np.exp(log_variance) * wider), freedom - size + 1
            yield (
                lambda y, told=told: student_t_cdf(y, *told),
                lambda p, told=told: student_t_quantile(p, *told),
                lambda y, told=told: metrics.crps_student_t(y, *told),
            )
        return
    if isinstance(prediction, Mixture):
        members, weights = prediction.members, prediction.weights
    elif isinstance(prediction, Gaussian):
        members, weights = Gaussian(prediction.mean.unsqueeze(-2), prediction.log_variance.unsqueeze(-2)), None
    else:
        raise TypeError(f"a {type(prediction).__name__} is no prediction of a real target")
    assert isinstance(members, Gaussian)
    told_weights = None if weights is None else weights.double().cpu().numpy().reshape(-1, weights.shape[-1])
    for d in range(members.mean.shape[-1]):
        mean, variance = (
            t[..., d].double().cpu().numpy().reshape(-1, t.shape[-2]) for t in (members.mean, members.variance)
        )
        yield tuple(
            partial(_ask, ask, mean, variance, told_weights) for ask in (mixture_cdf, mixture_quantile, metrics.crps)
        )  # type: ignore[misc]


def _ask(ask: Any, mean: np.ndarray, variance: np.ndarray, weights: np.ndarray | None, value: Any) -> Any:
    return ask(value, mean, variance, weights)
