"""The one pass over members: against each measure by itself in float64, in chunks, and where numbers are too small."""

from contextlib import nullcontext

import jaxtyping
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import solera.core.rowwise as chunks
from solera.distributions import Categorical, Mixture
from solera.distributions.members import Measures, _carefully, _measure, measure

NAMES = ["mean", "total", "data", "knowledge", "rmi"]


def exactly(logits, weights=None):
    """Each measure by itself, in float64."""
    members = Categorical(logits.double())
    weights = None if weights is None else weights.double()
    return Measures(*_carefully(members if weights is None else members.heard(weights), weights))


@pytest.mark.parametrize("members", [2, 3, 20])
@pytest.mark.parametrize("apart", [1e-4, 1e-2, 1.0, 10.0])
def test_every_measure_is_as_good_as_float32_allows(apart, members):
    """A KL near 0 is ½ Σ p·d² and feels the rounding δ of its d by δ·√(2·KL)."""
    logits = 2 * torch.randn(8, 1, 500) + apart * torch.randn(8, members, 500)
    ours, true = measure(Categorical(logits)), exactly(logits)
    for name in NAMES:
        found, wanted = getattr(ours, name).double(), getattr(true, name)
        assert ((found - wanted).abs() <= 3e-6 * wanted + 3e-7 * wanted.sqrt() * (name != "mean")).all(), name


def test_chunks_join_without_a_seam_and_small_numbers_are_minded(monkeypatch):
    """Rows with a −∞, with a gap that float32 cannot hold, and with a silent member."""
    logits, weights = 3 * torch.randn(2, 5, 4, 30), torch.rand(2, 5, 4)
    logits[1, 2, :, 7] = -torch.inf
    logits[0, 1, 0, 3] = -torch.inf
    logits[0, 3, :, 4] -= 150.0
    logits[1, 4, 2], weights[1, 4, 2] = torch.nan, 0.0
    weights /= weights.sum(-1, keepdim=True)
    true = exactly(logits, weights)
    for elements in (1, 3 * 4 * 30, 1 << 17):
        monkeypatch.setattr(chunks, "_CHUNK", elements)
        ours = measure(Categorical(logits), weights)
        for name in NAMES:
            torch.testing.assert_close(getattr(ours, name).double(), getattr(true, name), rtol=1e-5, atol=1e-7)
    unlikely = Mixture(Categorical(logits[0, 3])).log_prob(torch.tensor(4))
    assert -200 < unlikely < -100


def test_a_question_without_a_gradient_leaves_the_next_one_its_gradient():
    logits = torch.randn(3, 4, 5, requires_grad=True)
    targets = Mixture(Categorical(logits))
    with torch.no_grad():
        before = targets.rmi
    assert not before.requires_grad
    assert targets.rmi.requires_grad
    torch.testing.assert_close(targets.rmi, before)


@pytest.mark.parametrize("members", [1, 3, 20])
def test_the_form_for_the_compiler_is_one_graph_and_says_the_same(members):
    """Traced by the compiler's front end and run without its back end, which needs a C++ compiler and half a minute."""
    logits, weights = 3 * torch.randn(5, members, 7), torch.rand(5, members)
    weights /= weights.sum(-1, keepdim=True)
    jaxtyping.config.update("jaxtyping_disable", True)  # the compiler cannot see through the shape checks
    try:
        found = torch.compile(_measure, fullgraph=True, backend="eager")(logits, weights)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    for ours, wanted in zip(found, _measure(logits, weights), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("members", [3, 20])
@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_the_pass_runs_wherever_torch_does(device, members):
    """Shapes, types and devices on tensors without numbers: nothing in it is for CPUs alone."""
    with nullcontext() if device == "meta" else FakeTensorMode():
        logits, weights = torch.empty(5, members, 301, device=device), torch.empty(5, members, device=device)
        found = _measure(logits, weights)
    assert {value.device.type for value in found} == {device}
    assert [value.shape for value in found] == [(5, 301), (5, 301), *[(5,)] * 5]
