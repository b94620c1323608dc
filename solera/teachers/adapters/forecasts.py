"""Plain forecasts: an array of the numbers that every member predicted for every example."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.checks import require_finite
from solera.data import Batch, tensors_in
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.teachers.adapters.arrays import examples_first, require_known
from solera.teachers.adapters.files import read, real
from solera.teachers.adapters.noise import as_noise, with_noise
from solera.teachers.base import as_saw, member_weights, with_mask


def _loaded(values: Any, examples: int | None, key: str | None, what: str) -> Float[Tensor, "N M D"]:
    array = read(values, key).values if isinstance(values, (str, Path)) else real(np.asarray(values), what)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"{what} need the axes (examples, members) or (examples, members, D), got {array.shape}")
    result = torch.from_numpy(np.array(examples_first(array, examples), dtype=np.float32))
    require_finite(what, result)
    return result


class Forecasts:
    """A teacher made of the numbers that members predicted: `(examples, members)`, or with a last axis of D dimensions.

    With `examples`, the axis of that length is the examples'; where both are, the first one is. Beside the means, give
    either `variances`, an array of the same shape, or `noise`, one data variance per dimension, for members that have
    none of their own (`solera.committee` estimates it). Arrays, or files that hold one.
    """

    live = False
    class_names = None

    def __init__(
        self,
        means: Any,
        examples: int | None = None,
        *,
        variances: Any = None,
        noise: Any = None,
        key: str | None = None,
        saw: Any = None,
    ) -> None:
        self.means = _loaded(means, examples, key, "member forecasts")
        if (variances is None) == (noise is None):
            raise ValueError(
                "forecasts need a variance: pass variances=... (the members' own) or noise=... (the data's); "
                "solera.committee(forecasts, inputs, targets) estimates the noise from residuals"
            )
        self.noise = as_noise(noise)
        if self.noise is not None:
            if len(self.noise) != self.means.shape[-1]:
                raise ValueError(
                    f"noise needs {self.means.shape[-1]} numbers, one per dimension, got {len(self.noise)}"
                )
            self.log_variances = self.noise.log().expand_as(self.means)
        else:
            own = _loaded(variances, examples, key, "member variances")
            if own.shape != self.means.shape:
                raise ValueError(f"means have the shape {tuple(self.means.shape)}, variances {tuple(own.shape)}")
            if not (own > 0).all():
                place = (own <= 0).nonzero()[0].tolist()
                raise ValueError(f"variances must be positive, got {own[tuple(place)]:.4g} at {place}")
            self.log_variances = own.log()
        self.saw = as_saw(saw, self.members, len(self.means))

    @property
    def members(self) -> int:
        return self.means.shape[1]

    @property
    def fingerprints(self) -> list[str]:
        whole = torch.cat([self.means, self.log_variances], -1)
        own = [hashlib.sha256(whole[:, m].contiguous().numpy().tobytes()).hexdigest()[:16] for m in range(self.members)]
        return with_noise(with_mask(own, self.saw), self.noise)

    def check(self, batch: Batch) -> None:
        """Refuses an example that no forecast is for, or that every member was trained on."""
        require_known(batch, len(self.means))
        member_weights(self.saw, batch.index)

    def __call__(self, batch: Batch) -> Mixture:
        self.check(batch)
        device = tensors_in(batch.inputs)[0].device
        weights = member_weights(self.saw, batch.index)
        if weights is None:
            return self._all.rows(batch.index, device)
        said = Gaussian(self.means[batch.index].to(device), self.log_variances[batch.index].to(device))
        return Mixture(said, weights.to(said.mean))

    @cached_property
    def _all(self) -> Mixture:
        return Mixture(Gaussian(self.means, self.log_variances))
