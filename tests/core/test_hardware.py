"""bfloat16 where the processor has to emulate it: who asks for it is told what it costs."""

import warnings

import pytest
import torch

from solera.core import hardware
from solera.nn import MLP
from solera.teachers import Ensemble
from solera.training import Training
from solera.training.engine import engine

SLOW = "precision='bf16-mixed' is about ten times slower than float32 on this CPU, which does not multiply bfloat16: "


@pytest.fixture(params=[{"avx512_bf16": False, "avx2": True}, {"avx512_bf16": True}, {"amx_bf16": True}])
def able(request, monkeypatch):
    """Whether a CPU with these features multiplies bfloat16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: request.param, raising=False)
    hardware.multiplies_bfloat16.cache_clear()
    yield any("bf16" in name and has for name, has in request.param.items())
    hardware.multiplies_bfloat16.cache_clear()


def test_a_torch_that_cannot_tell_is_believed(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    hardware.multiplies_bfloat16.cache_clear()
    assert hardware.multiplies_bfloat16()
    hardware.multiplies_bfloat16.cache_clear()


def train_in_bfloat16():
    engine(Training(precision="bf16-mixed").precision, "cpu")


def ask_in_bfloat16():
    Ensemble([MLP(2, 2)], precision="bf16-mixed").said(torch.randn(3, 2))


@pytest.mark.parametrize(
    ("act", "remedy"),
    [
        (train_in_bfloat16, "leave Training(precision=...) at 'auto'"),
        (ask_in_bfloat16, "leave Ensemble(precision=...) out"),
    ],
)
def test_emulated_bfloat16_is_warned_of_and_real_is_not(act, remedy, able):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        act()
    told = {str(one.message) for one in heard if "bfloat16" in str(one.message)}
    assert told == (set() if able else {SLOW + remedy})


def test_float32_is_never_warned_of(able):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine("32-true", "cpu")
        Ensemble([MLP(2, 2)]).said(torch.randn(3, 2))
