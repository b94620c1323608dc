import pytest
import torch

from solera import Training, train_ensemble
from solera.nn import MLP, ConvNet
from solera.nn.stacked import Stacked, stackable
from tests.helpers import small_batches


def test_stacked_networks_answer_like_themselves():
    torch.manual_seed(0)
    networks = [MLP(4, 3, (8,)) for _ in range(5)]
    inputs = torch.randn(7, 5, 4)
    together = Stacked(networks)(inputs)
    assert together.shape == (7, 5, 3)
    for number, network in enumerate(networks):
        torch.testing.assert_close(together[:, number], network(inputs[:, number]))


def test_stacked_training_gives_the_same_members_as_one_by_one():
    """Same seeds, same shuffles: only the arithmetic is batched."""
    batches, training = small_batches(), Training(epochs=4, lr=0.01, weight_decay=0.01)
    both = [train_ensemble(lambda: MLP(4, 3, (8,)), batches, 3, training, stacked=s) for s in (True, False)]
    for a, b in zip(*(e.models for e in both), strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)


def test_members_differ_and_seeds_decide():
    batches = small_batches()
    first, again, other = (train_ensemble(lambda: MLP(4, 3), batches, 2, Training(epochs=1, seed=s)) for s in (0, 0, 1))
    assert first.fingerprints == again.fingerprints
    assert len({*first.fingerprints, *other.fingerprints}) == 4


def test_only_small_plain_networks_are_stacked():
    assert stackable(MLP(4, 3))
    assert not stackable(ConvNet((1, 8, 8), 3))
    assert not stackable(MLP(4, 3, (1000, 1000)))
    assert not stackable(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)))


@pytest.mark.parametrize("stacked", [None, False])
def test_inputs_of_another_width_are_refused_before_training(stacked):
    with pytest.raises(ValueError, match=r"the network \(MLP\) does not take float32 inputs of shape \(4,\) \(mat1"):
        train_ensemble(lambda: MLP(5, 3, (8,)), small_batches(), 2, Training(epochs=1), stacked=stacked)


def test_bad_labels_are_refused_before_training():
    batches = small_batches(classes=5)
    with pytest.raises(ValueError, match="labels must lie between 0 and 2"):
        train_ensemble(lambda: MLP(4, 3), batches, 2)
    with pytest.raises(ValueError, match="at least one member"):
        train_ensemble(lambda: MLP(4, 3), batches, 0)
