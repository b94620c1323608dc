"""Targets in users' own units."""

import math

import pytest
import torch

from solera.distributions import Gaussian, NormalWishart
from solera.nn import MLP, Units
from solera.nn.standardize import Standardize


def test_a_likelihood_in_units_differs_by_a_constant_only():
    torch.manual_seed(0)
    y = 1000 + 50 * torch.randn(200, dtype=torch.double)
    units = Units(1).double()
    units.learn(y)
    raw = torch.randn(200, 2, dtype=torch.double, requires_grad=True)
    inside = Gaussian(raw[:, :1], 20 * torch.tanh(raw[:, 1:] / 20)).log_prob((y - units.mean) / units.scale)
    outside = Gaussian.from_output(units(raw)).log_prob(y)
    torch.testing.assert_close(outside, inside - units.scale.log())
    ours, theirs = (torch.autograd.grad(value.sum(), raw)[0] for value in (outside, inside))
    torch.testing.assert_close(ours, theirs)


def test_outputs_beyond_mean_and_variance_stay_as_they_are():
    units = Units(2)
    units.learn(torch.tensor([[1.0, 10.0], [3.0, 50.0]]))
    output = torch.randn(5, 6)
    torch.testing.assert_close(units(output)[:, 4:], output[:, 4:])
    told = NormalWishart.from_output(units(torch.zeros(5, 6)))
    torch.testing.assert_close(told.mean, torch.tensor([2.0, 30.0]).expand(5, 2))


def test_a_constant_target_is_only_shifted():
    for value in (0.0, 5.0, -1e6):
        units = Units(1)
        units.learn(torch.full((7,), value))
        assert units.scale == 1
        assert units(torch.zeros(1, 2))[0, 0] == value


def test_log_variance_cannot_run_away():
    bent = Units(1)(torch.tensor([[0.0, -1e9], [0.0, 1e9]]))[:, 1]
    torch.testing.assert_close(bent, torch.tensor([-20.0, 20.0]))


def test_other_targets_are_refused():
    with pytest.raises(ValueError, match="for 2 targets, got 1"):
        Units(2).learn(torch.randn(4))


def test_a_regressor_standardises_both_ends():
    torch.manual_seed(0)
    x, y = 100 + 5 * torch.randn(50, 3), 7 - 0.01 * torch.randn(50)
    said = Gaussian.from_output(MLP.for_inputs(x, 2, targets=y)(x))
    assert (said.mean - 7).abs().max() < 0.1
    assert abs(said.log_variance.mean() - 2 * math.log(0.01)) < 2


def test_inputs_are_shifted_and_divided_by_their_scale():
    inputs = torch.tensor([[1.0, 100.0, 5.0], [3.0, 500.0, 5.0], [5.0, 300.0, 5.0]])
    standardize = Standardize(3)
    assert torch.equal(standardize(inputs), inputs)  # before it has learned anything
    standardize.learn(inputs)
    seen = standardize(inputs)
    torch.testing.assert_close(seen[:, :2].std(0, unbiased=False), torch.ones(2))
    torch.testing.assert_close(seen.mean(0), torch.zeros(3), rtol=0, atol=1e-6)
    assert torch.equal(seen[:, 2], torch.zeros(3))  # a constant feature is only shifted
    torch.testing.assert_close(standardize(torch.tensor([[3.0, 300.0, 6.0]])), torch.tensor([[0.0, 0.0, 1.0]]))
