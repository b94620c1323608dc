"""Ordinary and cruel inputs, of few distinct values so that 60-digit arithmetic stays quick, and what they give."""

from functools import cache

import numpy as np
import torch
from hypothesis import settings

from tests import referee

quick = settings(
    max_examples=50, deadline=None
)  # a deadline fails where the machine is busy, not where the code is wrong

LEVELS = (-30.0, -5.0, 0.0, 5.0, 15.0, 20.0, 40.0)
FLOATS = [torch.float32, torch.float64]
MEMBERS = ["ordinary", "cruel", "one-hot", "disagree", "identical", "nearly identical"]
CONCENTRATIONS = ["ordinary", "one", "ten million", "large", "huge", "tiny", "small", "sure", "surer", "everything"]


@cache
def members_of(kind: str, classes: int, members: int = 3) -> np.ndarray:
    """Logits [M, K]."""
    generator = np.random.default_rng(classes)
    if kind == "ordinary":
        return generator.choice([-3.0, -1.0, 0.0, 0.5, 2.0], (members, classes))
    if kind == "cruel":
        return generator.choice(LEVELS, (members, classes))
    if kind == "one-hot":
        logits = np.full((members, classes), -40.0)
        logits[:, 1] = 40.0 - np.arange(members)
        return logits
    if kind == "disagree":
        logits = np.full((members, classes), -40.0)
        logits[np.arange(members), np.arange(members) % classes] = 40.0
        return logits
    if kind == "identical":
        return np.repeat(generator.choice(LEVELS, (1, classes)), members, 0)
    assert kind == "nearly identical"
    logits = np.repeat(generator.choice([-3.0, 0.0, 2.0], (1, classes)), members, 0)
    logits[0, 0] += 2.0**-10
    return logits


@cache
def mixture_of(kind: str, classes: int) -> dict:
    """The referee's word on `members_of`."""
    return referee.mixture([referee.numbers(row) for row in members_of(kind, classes)])


@cache
def concentration_of(kind: str, classes: int) -> np.ndarray:
    """α [K], from 1e-17 to 1e17."""
    generator = np.random.default_rng(classes)
    if kind in ("sure", "surer"):
        concentration = np.ones(classes)
        concentration[0] = 1e5 if kind == "sure" else 1e17
        return concentration
    values = {
        "ordinary": [0.3, 0.7, 1.0, 2.5, 8.0],
        "one": [1.0],
        "ten million": [1e7 / classes],  # α₀
        "large": [1e5, 3e6],
        "huge": [1e15, 1e16, 1e17],
        "tiny": [1e-17],
        "small": [1e-17, 1e-8, 1e-3],
        "everything": [1e-17, 1e-6, 1.0, 1e4, 1e17],
    }
    return generator.choice(values[kind], classes)


@cache
def dirichlet_of(kind: str, classes: int, dtype: torch.dtype) -> dict:
    """The referee's word on `concentration_of`, rounded to this precision first."""
    return referee.dirichlet(referee.numbers(torch.tensor(concentration_of(kind, classes), dtype=dtype)))
