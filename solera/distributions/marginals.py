"""What a prediction says about each dimension of a continuous target by itself, in one form for all of them."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from solera.distributions.base import Prediction
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.distributions.normal_wishart import NormalWishart


class Marginals(NamedTuple):
    """In every dimension, Gaussians mixed by `weights` (None: all alike), or one Student-t of `freedom` degrees."""

    mean: Float[Tensor, "*batch M D"]
    log_variance: Float[Tensor, "*batch M D"]  # of a Student-t: ln of its squared scale
    weights: Float[Tensor, "*batch M"] | None = None
    freedom: Float[Tensor, "*batch"] | None = None


def marginals(prediction: Prediction) -> Marginals:
    """In float64. A ValueError where the prediction is one of classes."""
    if isinstance(prediction, Mixture) and isinstance(prediction.members, Gaussian):
        members = prediction.members
        return Marginals(members.mean.double(), members.log_variance.double(), prediction.weights)
    if isinstance(prediction, Gaussian):
        return Marginals(*(t.double().unsqueeze(-2) for t in (prediction.mean, prediction.log_variance)))
    if isinstance(prediction, NormalWishart):
        mean, variance, belief, freedom = (
            t.double() for t in (prediction.mean, prediction.log_variance, prediction.belief, prediction.freedom)
        )
        n = freedom - mean.shape[-1] + 1
        wider = torch.log1p(1 / belief) + torch.log1p(-2 / n)  # than E[σ²]: (1 + 1/κ)(n − 2)/n
        return Marginals(mean.unsqueeze(-2), (variance + wider.unsqueeze(-1)).unsqueeze(-2), freedom=n)
    raise ValueError(
        "the labels are floating-point numbers, so continuous targets, and a model gives classes: "
        "pass whole numbers as classes, -100 where there is none"
    )
