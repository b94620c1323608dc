"""Regressors that give a number and no variance, as a teacher: their spread is knowledge, their residuals are noise."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.checks import require_finite
from solera.core.progress import tell
from solera.data import Batch
from solera.distributions.gaussian import beside
from solera.teachers.adapters import Forecasts, Regressor, adapt, is_model
from solera.teachers.ensemble import Ensemble

_LEAST = 0.01  # the share of the residuals' mean square that is noise at least, however much the members disagree


def without_variance(members: Any) -> bool:
    """Whether these are regressors that give numbers alone, or an array of such numbers."""
    if isinstance(members, (list, tuple)) and members and any(is_model(model) for model in members):
        return any(isinstance(adapt(model), Regressor) for model in members)
    return getattr(members, "ndim", 0) == 2


@torch.no_grad()
def residual_noise(teacher: Any, inputs: Any, targets: Float[Tensor, "N *D"]) -> Float[Tensor, " D"]:
    """E[(y − μ̄)²] − E[var_m μ_m] per dimension, over these examples: what is left of the residuals is the data's.

    By the law of total variance the squared residual of the mean is, on average, data plus knowledge.
    """
    said = teacher(Batch(inputs, torch.arange(len(targets))))
    members, weights = said.members.weighed(said.weights)  # in float64: targets may be far from nought
    mean = (weights * members.location).sum(-2)
    known = beside(targets, mean)
    away = (known - mean).square().mean(0)
    rounded = teacher.members * torch.finfo(torch.float64).eps * known.abs().amax(0)  # what a mean of equals is off by
    if not (away > rounded.square()).all():
        raise ValueError("the residuals are all 0: noise is estimated on examples that no member was trained on")
    return torch.maximum(away - said.members.spread(said.weights).mean(0), _LEAST * away).to(said.mean.dtype)


def committee(members: Any, inputs: Any, targets: Any, saw: Any = None) -> Ensemble | Forecasts:
    """A teacher from regressors without variances, or from their forecasts `(examples, members)`.

    Knowledge is the members' spread. Data variance is one number per target dimension, estimated from the residuals on
    `inputs` and `targets`: examples that no member was trained on, or training examples with `saw` (saw[i, m]: member m
    was trained on example i), which are then forecast out of fold. Forecasts must be for these very inputs.
    """
    y = torch.as_tensor(targets)
    y = y if y.is_floating_point() else y.float()
    require_finite("targets", y)
    size = 1 if y.ndim == 1 else y.shape[-1]
    models = isinstance(members, (list, tuple)) and any(is_model(model) for model in members)
    make = partial(Ensemble, members, family="gaussian") if models else partial(Forecasts, members, len(y))
    noise = residual_noise(make(saw=saw, noise=torch.ones(size)), torch.as_tensor(inputs), y)
    numbers = ", ".join(f"{value:.4g}" for value in noise.sqrt().tolist())
    tell(
        f"the members give no variance: data uncertainty is the same for all inputs, a standard deviation of {numbers} "
        f"from the residuals of {len(y)} examples; knowledge is the members' spread"
    )
    return make(saw=saw, noise=noise)
