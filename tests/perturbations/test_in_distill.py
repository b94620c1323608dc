"""Perturbations in the loop: asked of live teachers, the same every time, and refused where nothing can answer."""

import pytest
import torch

import solera
from solera.data import Batches
from solera.methods import AEKD, BatchEnsemble, EnD, Hydra, LatentBE, ProxyDirichlet
from solera.nn import MLP
from solera.perturbations import ODS, ConfODS, GaussianNoise, TDiv, TDivSDiv
from solera.training import Training
from tests.helpers import small_batches, small_ensemble


def distilled(method, perturbation, folder=None, epochs=2):
    torch.manual_seed(0)
    ensemble, batches = small_ensemble(members=3), small_batches(examples=60)
    network = MLP(4, 3, (8,))
    return solera.distill(
        ensemble, network, batches, method, Training(epochs=epochs), perturbation=perturbation, folder=folder
    )


EVERY = [EnD(), AEKD(), ProxyDirichlet(), Hydra(), BatchEnsemble(), LatentBE()]
PAIRS = [(method, TDivSDiv) for method in EVERY]  # all that a perturbation can ask for
PAIRS += [(LatentBE(), kind) for kind in (GaussianNoise, ODS, ConfODS, TDiv)]


@pytest.mark.parametrize(("method", "perturbation"), PAIRS)
def test_every_method_learns_from_moved_inputs(method, perturbation):
    kind = perturbation(range=None, step=0.5)
    first, second = (distilled(method, kind).model.state_dict() for _ in range(2))
    plain = distilled(method, None).model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], plain[name]) for name in first)
    assert all(tensor.isfinite().all() for tensor in first.values())


def test_a_stopped_run_goes_on_with_the_same_random_numbers(tmp_path, monkeypatch):
    kind = TDivSDiv(range=None, step=0.5)
    whole = distilled(Hydra(), kind, epochs=4).model.state_dict()
    calls, move = 0, TDivSDiv.direction

    def stopped(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == 7:
            raise KeyboardInterrupt
        return move(self, *arguments)

    monkeypatch.setattr(TDivSDiv, "direction", stopped)
    with pytest.raises(KeyboardInterrupt):
        distilled(Hydra(), kind, tmp_path / "run", epochs=4)
    again = distilled(Hydra(), kind, tmp_path / "run", epochs=4).model.state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_memory_cannot_be_asked_about_moved_inputs(tmp_path):
    ensemble, batches = small_ensemble(members=3), small_batches(examples=20)
    remembered = solera.capture(ensemble, batches, tmp_path / "set")
    with pytest.raises(ValueError, match="pass the live Ensemble"):
        solera.distill(remembered, MLP(4, 3), batches, EnD(), perturbation=ODS(range=None, step=0.1))


def test_padding_does_not_change_what_ae_kd_weighs():
    """Tokens of weight 0 hold anything; the student must come out the same."""

    def student(filling):
        torch.manual_seed(0)
        inputs, weight = torch.randn(12, 5, 4), (torch.rand(12, 5) < 0.6).float()
        weight[:, 0] = 1
        inputs = torch.where(weight.unsqueeze(-1) > 0, inputs, torch.tensor(filling))
        teacher = solera.Ensemble([torch.nn.Linear(4, 3) for _ in range(3)])
        batches = Batches(inputs, weight=weight, batch_size=4)
        return solera.distill(teacher, torch.nn.Linear(4, 3), batches, AEKD(), Training(epochs=3)).model.state_dict()

    one, other = student(0.0), student(50.0)
    for name in one:
        torch.testing.assert_close(one[name], other[name])
