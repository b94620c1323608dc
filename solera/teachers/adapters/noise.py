"""Members that give no variance: the data's noise, one number per target dimension, stands in for all of them."""

import hashlib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def as_noise(noise: Any) -> Float[Tensor, " D"] | None:
    """A variance per target dimension, once it is sure to be one."""
    if noise is None:
        return None
    variance = torch.as_tensor(noise, dtype=torch.float32).reshape(-1)
    if not (variance > 0).all() or not variance.isfinite().all():
        raise ValueError(f"noise is the variance of the data and must be positive, got {variance.tolist()}")
    return variance


def with_variance(
    answer: Float[Tensor, "*batch outputs"], noise: Float[Tensor, " D"] | None, who: str
) -> Float[Tensor, "*batch twice"]:
    """Means and log-variances of a member: its own where it gives 2D numbers, the noise's where it gives D."""
    if noise is None:
        if answer.shape[-1] % 2:
            raise ValueError(
                f"{who} answers {tuple(answer.shape)}, which is not means and log-variances: if it gives means alone, "
                "let solera.committee(models, inputs, targets) estimate the noise"
            )
        return answer
    if answer.shape[-1] == 2 * len(noise):
        return answer
    if answer.shape[-1] != len(noise):
        raise ValueError(f"{who} answers {tuple(answer.shape)}, but noise was given for {len(noise)} dimensions")
    return torch.cat([answer, noise.log().to(answer).expand_as(answer)], -1)


def with_noise(fingerprints: list[str], noise: Float[Tensor, " D"] | None) -> list[str]:
    """The members' fingerprints; the noise is part of what each of them says."""
    if noise is None:
        return fingerprints
    return [hashlib.sha256(f"{name}{noise.tolist()}".encode()).hexdigest()[:16] for name in fingerprints]
