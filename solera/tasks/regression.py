"""Continuous targets, of one or several dimensions, in the units users gave."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from solera import metrics
from solera.core.checks import require_finite
from solera.core.seeds import sample
from solera.data import Batch
from solera.distributions.base import Prediction
from solera.distributions.families import Family
from solera.distributions.gaussian import Gaussian, beside
from solera.distributions.marginals import marginals
from solera.distributions.mixture import as_one
from solera.metrics.curves import coverage_curve, pit_histogram
from solera.metrics.regression import crps_column, mixture_cdf
from solera.metrics.student_t import crps_student_t_column, student_t_cdf
from solera.tasks.base import (
    Columns,
    ErrorKind,
    Figure,
    Margin,
    Row,
    Score,
    Task,
    beside_examples,
    mean_of,
    uncertainties,
)

POINTS = 1500  # of a picture
MOST_DISTANCE = 0.3  # of a student's means from its ensemble's, in the ensemble's standard deviations
HOLDS = 0.8  # of the targets: a 90 % interval that holds fewer is over-confident
Ends = tuple[np.ndarray, np.ndarray]
Marginal = tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]


@dataclass(frozen=True)
class Regression(Task):
    """One number per example, or D of them on the last axis. An unlabelled example's is NaN."""

    name: ClassVar[str] = "regression"
    family: ClassVar[Family] = "gaussian"
    table: ClassVar[tuple[Score, ...]] = (
        Score("RMSE", -1, "The root of the mean squared error, in the target's units."),
        Score("NLL", -1, "How surprised the model is by the truth: minus the logarithm of the density it gave it."),
        Score("CRPS", -1, "How far the predicted distribution is from the truth, in the target's units."),
        Score("coverage 90 %", 0, "How often the 90 % interval holds the truth: it should be 90.", percent=True),
        Score("width 90 %", -1, "How wide the 90 % interval is on average, in the target's units."),
        Score(
            "coverage error",
            -1,
            "How far the coverage of all intervals is from what they promise, on average.",
            percent=True,
            inflated=True,
        ),
        Score("ρ error", 1, "How well the uncertainty ranks the errors: 1 is the same order."),
        Score(
            "PRR",
            1,
            "How much of an oracle's gain is had when the least certain answers are rejected: 100 is all, 0 is chance.",
            percent=True,
        ),
        Score(
            "mean's distance, in σ",
            -1,
            "How far its mean is from the ensemble's, in standard deviations of the ensemble.",
        ),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "RMSE", 0.05, relative=True),
        Margin("calibration", "coverage error", 0.05),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("RMSE", "NLL", "coverage error")
    beside: ClassVar[tuple[str, ...]] = ("away",)
    errors: ClassVar[ErrorKind] = ErrorKind("squared error", percent=False, wanted=(0.90, 0.75, 0.50), relative=True)
    question: ClassVar[str] = "Do its intervals hold as many targets as they promise?"

    def check_target(self, batch: Batch, size: int) -> None:
        target = batch.target
        assert target is not None
        if not target.is_floating_point():
            raise ValueError(
                f"continuous targets are floating-point numbers, got {target.dtype}: call .float() on them"
            )
        require_finite("targets", target.nan_to_num(0.0, torch.inf, -torch.inf), batch.index)
        if target.ndim > 1 and target.shape[-1] != size and size != 1:
            raise ValueError(f"targets have the shape {tuple(target.shape)}, predictions {size} dimensions")

    def outputs(self, target: Float[Tensor, "..."], size: int) -> int:
        return 2 * (target[:1].numel() if target.ndim > 1 else 1)

    def labelled(self, batch: Batch, axes: int | None = None) -> Bool[Tensor, "*batch"]:
        """Without weights, a second axis is that of the target's dimensions."""
        assert batch.target is not None
        known = ~batch.target.isnan()
        axes = axes or (1 if batch.weight is None else batch.weight.ndim)
        return known.all(-1) if known.ndim > axes else known

    def filled(self, target: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return target.nan_to_num(0.0)

    def recalibrated(self, prediction: Prediction, spread: Float[Tensor, " examples"]) -> Prediction | None:
        """The Gaussian of the same mean and the spread's square times the variance; none of a Normal-Wishart."""
        law = marginals(as_one(prediction))
        if law.freedom is not None:
            return None
        mean, log_variance = (t.squeeze(-2).to(prediction.mean) for t in (law.mean, law.log_variance))
        return Gaussian(mean, log_variance + 2 * beside_examples(spread, mean).log())

    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """`predicted`, `total`, where they exist `data` and `knowledge`, and the `width` of the 90 % interval; with
        targets `squared_error`, `nll`, `crps` and `pit`.

        `pit` is the probability of a target below the true one: even over [0, 1] if the prediction is calibrated. Of
        several dimensions, squared errors are summed, widths and CRPS averaged, and `pit` has one column for each.
        """
        mean = prediction.mean
        found = {"predicted": mean.squeeze(-1) if mean.shape[-1] == 1 else mean, **uncertainties(prediction)}
        each, shape = list(_each_dimension(prediction)), mean.shape[:-1]
        low, high = self.ends(prediction)
        widths = (high - low).mean(-1)
        if batch.target is None:
            return {**found, "width": widths}
        target = self.filled(batch.target).to(mean.device)
        y = beside(target, mean)
        found |= {"squared_error": (y - mean).square().sum(-1), "nll": -prediction.log_prob(target)}
        told = list(zip(_numbers(y), each, strict=True))
        pit = np.stack([cdf(value).reshape(shape) for value, (cdf, _) in told], -1)
        crps = np.mean([score(value) for value, (_, score) in told], 0).reshape(shape)
        pit = pit.squeeze(-1) if pit.shape[-1] == 1 else pit
        return {**found, "width": widths, "crps": crps, "pit": pit}

    def ends(self, prediction: Prediction) -> Ends:
        """Where the 90 % interval of every dimension begins and ends, `[*batch, D]`, in float64."""
        low, high = prediction.interval(0.9, torch.float64)
        require_finite("the ends of the 90 % intervals", torch.stack([low, high]))
        return low.cpu().numpy(), high.cpu().numpy()

    def compare(self, prediction: Prediction, reference: Prediction) -> dict[str, Tensor | np.ndarray]:
        """`away`: the squared distance of the two means, beside the reference's total variance."""
        return {"away": (prediction.mean - reference.mean).square().sum(-1) / reference.total}

    def likeness(self, columns: Columns) -> Row:
        return {"mean's distance, in σ": float(np.sqrt(mean_of(columns, "away")))}

    def stands_in(self, likeness: Row) -> bool:
        """Its means are within 0.3 of the ensemble's standard deviations: squared errors grow by less than 9 %."""
        distance = likeness.get("mean's distance, in σ")
        return distance is None or distance <= MOST_DISTANCE

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
        weight = columns.get("weight")
        each = weight if weight is None or dimensions == 1 else np.repeat(weight[:, None], dimensions, 1)
        return {
            "RMSE": float(np.sqrt(mean_of(columns, "squared_error") / dimensions)),
            "NLL": mean_of(columns, "nll"),
            "CRPS": mean_of(columns, "crps"),
            "coverage 90 %": metrics.coverage_at(columns["pit"], 0.9, weight=each),
            "width 90 %": mean_of(columns, "width"),
            "coverage error": metrics.coverage_error(columns["pit"], weight=each),
            "ρ error": ranked,
            "PRR": kept,
        }

    def overconfident(self, columns: Columns) -> bool:
        """Its 90 % interval holds less than 80 % of the targets."""
        return metrics.coverage_at(columns["pit"], 0.9) < HOLDS

    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        levels, pit = coverage_curve(columns["pit"]), pit_histogram(columns["pit"])
        found = [
            Figure(
                "coverage",
                "Coverage",
                "On the diagonal, an interval that promises 90 % holds 90 % of the targets; below it the intervals are "
                "too narrow.",
                "line",
                levels["level"],
                levels["covered"],
                ("promised", "held"),
                "promised %{x:.0%}, held %{y:.1%}",
                percent=(True, True),
                guide="diagonal",
            ),
            Figure(
                "pit",
                "Where the targets fall (PIT)",
                "Even bars are calibrated; a hollow middle means intervals too narrow, a hump means too wide, a slope "
                "means a bias.",
                "bars",
                pit["edges"],
                pit["share"],
                ("probability of a smaller target", "share of targets"),
                "%{y:.1%} of the targets",
                percent=(False, True),
                guide="even",
            ),
        ]
        if columns["predicted"].ndim == 1:
            some = sample(len(target), POINTS)
            found.append(
                Figure(
                    "truth",
                    "Predicted and true",
                    "Each point is one test example: the closer to the diagonal, the better the prediction.",
                    "points",
                    target.reshape(-1)[some],
                    columns["predicted"][some],
                    ("true", "predicted"),
                    "true %{x:.4~g}, predicted %{y:.4~g}",
                    guide="diagonal",
                )
            )
        return found

    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        """`mean` and the ends of the 90 % interval; of several dimensions the uncertainties alone are shown."""
        mean = prediction.mean.detach().cpu().numpy()
        if mean.shape[-1] > 1 or mean.ndim > 2:
            return [{} for _ in mean]
        low, high = self.ends(prediction)
        return [{"mean": m, "low": a, "high": b} for m, a, b in zip(mean[:, 0], low[:, 0], high[:, 0], strict=True)]

    def label(self, target: Any, names: Sequence[str] | None) -> Any:
        """The number; none of several dimensions."""
        return target if np.ndim(target) == 0 and np.isfinite(target) else None


def _numbers(values: Tensor) -> list[np.ndarray]:
    """One float64 column per dimension."""
    return list(np.moveaxis(values.double().cpu().numpy().reshape(-1, values.shape[-1]), -1, 0))


def _each_dimension(prediction: Prediction) -> Iterator[Marginal]:
    """For each dimension: its distribution function, and the CRPS of every target."""
    law = marginals(prediction)
    mean, variance = (t.cpu().numpy() for t in (law.mean, law.log_variance.exp()))
    weights, freedom = (None if t is None else t.double().cpu().numpy() for t in (law.weights, law.freedom))
    count = mean.shape[-2]
    for d in range(mean.shape[-1]):
        told: tuple[Any, ...] = mean[..., d].reshape(-1, count), variance[..., d].reshape(-1, count)
        if freedom is None:
            told = (*told, None if weights is None else weights.reshape(-1, count))
            yield (lambda y, told=told: mixture_cdf(y, *told), lambda y, told=told: crps_column(y, *told))
        else:
            told = told[0][:, 0], np.sqrt(told[1][:, 0]), freedom.reshape(-1)
            yield (lambda y, told=told: student_t_cdf(y, *told), lambda y, told=told: crps_student_t_column(y, *told))
