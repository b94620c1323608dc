"""Real targets, of one or several dimensions, in the units users gave."""

import warnings
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera import metrics
from solera.core.checks import require_finite
from solera.distributions.base import Prediction
from solera.distributions.families import Family
from solera.distributions.gaussian import Gaussian, beside
from solera.distributions.mixture import Mixture
from solera.distributions.normal_wishart import NormalWishart
from solera.metrics.regression import crps_column, mixture_cdf
from solera.metrics.student_t import crps_student_t_column, student_t_cdf
from solera.tasks.base import Columns, Row, Task, as_columns, uncertainties

Ends = tuple[np.ndarray, np.ndarray]
Marginal = tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]


class Regression(Task):
    """One number per example, or D of them on the last axis. An unlabelled example's is NaN."""

    family: ClassVar[Family] = "gaussian"
    better: ClassVar[dict[str, int]] = {
        "RMSE": -1,
        "NLL": -1,
        "CRPS": -1,
        "width 90 %": -1,
        "coverage error": -1,
        "ρ error": 1,
        "PRR": 1,
    }

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
        """`predicted`, `total`, where they exist `data` and `knowledge`, and the `width` of the 90 % interval; with
        targets `squared_error`, `nll`, `crps` and `pit`.

        `pit` is the probability of a target below the true one: even over [0, 1] if the prediction is calibrated. Of
        several dimensions, squared errors are summed, widths and CRPS averaged, and `pit` has one column for each.
        """
        mean = prediction.mean
        found = {"predicted": mean.squeeze(-1) if mean.shape[-1] == 1 else mean, **uncertainties(prediction)}
        each, shape = list(_marginals(prediction)), mean.shape[:-1]
        low, high = self.ends(prediction)
        widths = (high - low).mean(-1)
        if target is None:
            return {**as_columns(found), "width": widths}
        y = beside(target, mean)
        found |= {"squared_error": (y - mean).square().sum(-1), "nll": -prediction.log_prob(target)}
        told = list(zip(_numbers(y), each, strict=True))
        pit = np.stack([cdf(value).reshape(shape) for value, (cdf, _) in told], -1)
        crps = np.mean([score(value) for value, (_, score) in told], 0).reshape(shape)
        pit = pit.squeeze(-1) if pit.shape[-1] == 1 else pit
        return {**as_columns(found), "width": widths, "crps": crps, "pit": pit}

    def ends(self, prediction: Prediction) -> Ends:
        """Where the 90 % interval of every dimension begins and ends, `[*batch, D]`, in float64."""
        assert isinstance(prediction, (Gaussian, Mixture, NormalWishart))
        low, high = prediction.interval(0.9, torch.float64)
        require_finite("the ends of the 90 % intervals", torch.stack([low, high]))
        return low.cpu().numpy(), high.cpu().numpy()

    def compare(self, prediction: Prediction, reference: Prediction) -> Columns:
        """`away`: the squared distance of the two means, beside the reference's total variance."""
        away = (prediction.mean - reference.mean).square().sum(-1) / reference.total
        return as_columns({"away": away})

    def error(self, columns: Columns) -> np.ndarray:
        return columns["squared_error"]

    def scores(self, columns: Columns) -> Row:
        """RMSE, NLL and CRPS; coverage and width of the 90 % interval, and how far coverage is off over all levels;
        rank correlation of error and total uncertainty, and how well it ranks them to be rejected (1: like an oracle).

        All in the target's units, of several dimensions the average of each (NLL: of all together).
        """
        error, dimensions = columns["squared_error"].astype(np.float64), columns["pit"].ndim - columns["nll"].ndim
        dimensions = columns["pit"].shape[-1] if dimensions else 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one total for all, or no error at all: a dash says it
            ranked = metrics.error_correlation(columns["total"], np.sqrt(error))
            kept = metrics.retention_ratio(columns["total"], error)
        return {
            "RMSE": float(np.sqrt(error.mean() / dimensions)),
            "NLL": float(columns["nll"].mean(dtype=np.float64)),
            "CRPS": float(columns["crps"].mean()),
            "coverage 90 %": metrics.coverage_at(columns["pit"], 0.9),
            "width 90 %": float(columns["width"].mean()),
            "coverage error": metrics.coverage_error(columns["pit"]),
            "ρ error": ranked,
            "PRR": kept,
        }


def _numbers(values: Tensor) -> list[np.ndarray]:
    """One float64 column per dimension."""
    return list(np.moveaxis(values.double().cpu().numpy().reshape(-1, values.shape[-1]), -1, 0))


def _marginals(prediction: Prediction) -> Iterator[Marginal]:
    """For each dimension: its distribution function, and the CRPS of every target."""
    if isinstance(prediction, NormalWishart):
        (belief,), (freedom,) = (_numbers(t.unsqueeze(-1)) for t in (prediction.belief, prediction.freedom))
        size = prediction.mean.shape[-1]
        wider = (1 + 1 / belief) * (freedom - size - 1) / (freedom - size + 1)  # of the Student-t than E[σ²]
        for mean, log_variance in zip(_numbers(prediction.mean), _numbers(prediction.log_variance), strict=True):
            told = mean, np.sqrt(np.exp(log_variance) * wider), freedom - size + 1
            yield (
                lambda y, told=told: student_t_cdf(y, *told),
                lambda y, told=told: crps_student_t_column(y, *told),
            )
        return
    if isinstance(prediction, Mixture):
        members, weights = prediction.members, prediction.weights
    elif isinstance(prediction, Gaussian):
        members, weights = Gaussian(prediction.mean.unsqueeze(-2), prediction.log_variance.unsqueeze(-2)), None
    else:
        raise TypeError(f"a {type(prediction).__name__} is no prediction of a real target")
    assert isinstance(members, Gaussian)
    shares = None if weights is None else weights.double().cpu().numpy().reshape(-1, weights.shape[-1])
    count = members.mean.shape[-2]
    for d in range(members.mean.shape[-1]):
        mean, variance = (t[..., d].double().cpu().numpy().reshape(-1, count) for t in (members.mean, members.variance))
        told = mean, variance, shares
        yield (
            lambda y, told=told: mixture_cdf(y, *told),
            lambda y, told=told: crps_column(y, *told),
        )
