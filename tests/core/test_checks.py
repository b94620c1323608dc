"""What is refused, and by which name."""

import inspect
import math

import pytest
import torch

from solera.core.checks import (
    require_finite,
    require_finite_weights,
    require_fraction,
    require_labels,
    require_positive,
)
from solera.core.errors import DivergedError
from solera.methods import (
    ae_kd_loss,
    dirichlet_mixture_loss,
    end2_loss,
    end_loss,
    logistic_normal_loss,
    proxy_dirichlet_loss,
)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_do_not_pass_for_numbers(value):
    values = torch.zeros(3, 2)
    values[1, 0] = value
    with pytest.raises(ValueError, match=rf"inputs hold {value} in example 7, at \[0\]: drop or impute"):
        require_finite("inputs", values, torch.tensor([5, 7, 9]))
    with pytest.raises(DivergedError, match="kept: bias is not finite: lower the rate"):
        require_finite_weights({"weight": torch.ones(2), "bias": values}, "kept", "lower the rate")


def test_finite_numbers_whose_sum_overflows_pass():
    require_finite("inputs", torch.full((4,), 3e38))


def two_laws(logits, members):
    """A mixture of two, its outputs made of the logits."""
    return inspect.unwrap(dirichlet_mixture_loss)(torch.zeros(4, 12), members)


def one_factor(logits, members):
    """A logistic-normal of rank 1."""
    return inspect.unwrap(logistic_normal_loss)(torch.zeros(4, 15), members, rank=1)


@pytest.mark.parametrize("loss", [end_loss, end2_loss, proxy_dirichlet_loss, ae_kd_loss, two_laws, one_factor])
@pytest.mark.parametrize(
    "shape", [(4, 5), (5,), (4, 3, 6), (3, 5, 5)], ids=["no members", "no batch", "classes", "batch"]
)
def test_members_of_other_examples_or_classes_are_refused(loss, shape):
    plain = inspect.unwrap(loss)  # while the tests run, its annotations would catch that
    with pytest.raises(ValueError, match=r"members of shape \(.*\) do not belong to logits of shape \(4, 5\)"):
        plain(torch.zeros(4, 5), torch.zeros(shape))


def test_nan_is_neither_positive_nor_a_share():
    with pytest.raises(ValueError, match="rate must be positive, got nan"):
        require_positive("rate", math.nan)
    with pytest.raises(ValueError, match="share must lie between 0 and 1, got nan"):
        require_fraction("share", math.nan)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_beyond_the_classes_are_named_by_their_example(label):
    with pytest.raises(ValueError, match=f"between 0 and 2 for 3 classes, got {label} in example 8"):
        require_labels("labels", torch.tensor([0, 2, label]), 3, torch.tensor([4, 6, 8]))
