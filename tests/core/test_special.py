"""The special functions against 50-digit arithmetic."""

import mpmath as mp
import numpy as np
import pytest
import torch

from solera.core import special

mp.mp.dps = 50
ARGUMENTS = np.concatenate([np.exp(np.linspace(-40, 40, 401)), np.linspace(1e-3, 30, 301)])
TOLERANCE = {torch.float32: 4e-7, torch.float64: 2e-15}


def digamma1p(a):
    u = (1 + a).reciprocal()
    return a.log1p() + u * special.digamma_remainder(u)


def lgamma1p(a):
    u = (1 + a).reciprocal()
    return (a + 0.5) * a.log1p() - a + a * u * special.lgamma_remainder(u)


def trigamma1p(a):
    u = (1 + a).reciprocal()
    return u * (1 + u * special.trigamma_tail(u))


def one_minus_a_trigamma(a):
    return 1 - a * mp.polygamma(1, 1 + a)


CASES = {
    "digamma1p": (digamma1p, lambda a: mp.digamma(1 + a), 1.0),
    "lgamma1p": (lgamma1p, lambda a: mp.loggamma(1 + a), 1.0),
    "digamma_excess": (special.digamma_excess, lambda a: mp.digamma(1 + a) - mp.log(a), 0.0),
    "trigamma1p": (trigamma1p, lambda a: mp.polygamma(1, 1 + a), 0.0),
    "trigamma_deficit": (lambda a: special.trigamma_deficit(1 / (1 + a)) / (1 + a), one_minus_a_trigamma, 0.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_mpmath(name, dtype):
    ours, referee, scale = CASES[name]
    arguments = torch.tensor(ARGUMENTS, dtype=dtype)
    true = np.array([float(referee(mp.mpf(float(a)))) for a in arguments])
    # relative to the value, or (where a function crosses zero) to its scale there
    error = np.abs(ours(arguments).double().numpy() - true) / np.maximum(np.abs(true), scale)
    assert error.max() < TOLERANCE[dtype], (name, float(arguments[error.argmax()]), error.max())


def test_half_precision_is_refused_by_name():
    with pytest.raises(TypeError, match=r"float32 or float64, not torch\.bfloat16"):
        special.digamma_remainder(torch.ones(3, dtype=torch.bfloat16))
