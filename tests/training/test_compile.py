"""Compiling by itself: where the forecast says so, recorded, and never in a short run."""

import warnings

import jaxtyping
import pytest
import torch

from solera import ProxyDirichlet, Training, distill
from solera.core import fused as module
from solera.core.fused import Choice, compiled, fused
from solera.core.progress import quiet
from solera.nn import MLP
from tests.core.test_fused import square
from tests.helpers import small_batches, small_ensemble


def train(folder=None, **settings):
    torch.manual_seed(0)
    return distill(
        small_ensemble(), MLP(4, 3, (8,)), small_batches(), ProxyDirichlet(), Training(**settings), folder=folder
    )


def kernels_compiled(monkeypatch):
    """Kernels that were handed to the compiler, which does nothing here."""
    handed = []
    monkeypatch.setattr(module, "_compile", lambda kernel: handed.append(kernel.__name__) or kernel)
    return handed


def test_a_short_training_compiles_nothing(monkeypatch):
    handed = kernels_compiled(monkeypatch)
    train(epochs=2)
    assert handed == []


def test_a_long_training_compiles_and_says_so_once(monkeypatch, capsys):
    handed = kernels_compiled(monkeypatch)
    monkeypatch.setattr(module, "_COMPILE_SECONDS", 1e-6)
    with quiet(False):
        train(epochs=2)
    assert set(handed) == {"_reverse_kl", "_measure"}  # the loss, and what the live members say
    assert capsys.readouterr().err.count("kernels are compiled: about") == 1
    handed.clear()
    train(epochs=2, compile=False)
    assert handed == []


def test_the_forecast_counts_logits_and_steps():
    for steps, wanted in ((40, False), (400, True)):
        choice = Choice(None, steps)
        choice.consider(logits=20_000_000, device="cpu")  # a tenth of a second each
        assert choice.compile is wanted
        choice.consider(logits=1, device="cpu")
        assert choice.compile is wanted  # decided once


def test_the_choice_is_in_the_checkpoint_and_outlives_another_forecast(tmp_path, monkeypatch):
    handed = kernels_compiled(monkeypatch)
    monkeypatch.setattr(module, "_COMPILE_SECONDS", 1e-6)

    def kill(epoch, network):
        if epoch == 1:
            raise KeyboardInterrupt

    settings = Training(epochs=3, checkpoint_seconds=0.0)
    torch.manual_seed(0)
    teacher, network = small_ensemble(), MLP(4, 3, (8,))
    first = {k: v.clone() for k, v in network.state_dict().items()}
    with pytest.raises(KeyboardInterrupt):
        distill(teacher, network, small_batches(), ProxyDirichlet(), settings, folder=tmp_path, watch=kill)
    monkeypatch.setattr(module, "_COMPILE_SECONDS", 1e9)  # from now on nothing is worth it
    handed.clear()
    network.load_state_dict(first)
    distill(teacher, network, small_batches(), ProxyDirichlet(), settings, folder=tmp_path)
    assert handed


def test_no_compiler_is_one_warning_with_the_reason(monkeypatch):
    monkeypatch.setattr(module, "_COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(module, "_compile", lambda kernel: lambda *_: (_ for _ in ()).throw(RuntimeError("no g++")))
    monkeypatch.setattr(module, "_uncompilable", set())
    logits = torch.randn(4, 5, requires_grad=True)
    with compiled(Choice(None, 10)):
        with pytest.warns(UserWarning, match=r"uncompiled, more slowly: no g\+\+"):
            fused(square, logits, torch.zeros(4))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fused(square, logits, torch.zeros(4))


@pytest.mark.parametrize("name", ["compile", "fused_head"])
def test_settings_other_than_these_are_refused(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as in a user's process
    with pytest.raises(ValueError, match=f"{name} must be True, False or 'auto', got 'always'"):
        Training(**{name: "always"})
