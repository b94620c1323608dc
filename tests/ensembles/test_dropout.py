import copy

import numpy as np
import pytest
import torch
from torch import nn

from solera import Batch
from solera.ensembles import DropoutEnsemble
from solera.ensembles.dropout import _uniform
from solera.nn import MLP, ConvNet
from solera.testing import check_teacher
from tests.helpers import small_batches


def network(seed=0):
    torch.manual_seed(seed)
    return MLP(4, 3, (32, 32), dropout=0.3)


def logits(ensemble, inputs):
    return ensemble(Batch(inputs, torch.arange(len(inputs)))).members.logits


class Tagger(nn.Module):
    """Tokens in, logits per token out; dropout on whole activations and inside transformer layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.encoder, self.dropout, self.out = nn.TransformerEncoder(layer, 2), nn.Dropout(0.2), nn.Linear(8, 3)

    def forward(self, tokens):
        hidden = self.encoder(self.dropout(self.embed(tokens)), src_key_padding_mask=tokens == 0)
        return self.out(self.dropout(hidden))


def test_is_a_teacher():
    check_teacher(DropoutEnsemble(network(), 5), small_batches().all)


def test_an_answer_does_not_depend_on_the_batch():
    ensemble, inputs = DropoutEnsemble(network(), 6), small_batches().all.inputs
    whole = logits(ensemble, inputs)
    order = torch.randperm(50)
    torch.testing.assert_close(logits(ensemble, inputs[order]), whole[order])
    torch.testing.assert_close(torch.cat([logits(ensemble, row) for row in inputs.split(1)]), whole)
    torch.testing.assert_close(ensemble.predict(inputs, batch_size=7).members.logits, whole)


def test_an_answer_does_not_depend_on_the_padding():
    torch.manual_seed(0)
    ensemble, tokens = DropoutEnsemble(Tagger(), 4), torch.randint(1, 20, (3, 5))
    padded = nn.functional.pad(tokens, (0, 4))
    with torch.no_grad():
        short, long = logits(ensemble, tokens), logits(ensemble, padded)
    torch.testing.assert_close(long[:, :5], short)
    assert (short[:, :, 0] - short[:, :, 1]).abs().amax() > 0.01
    assert short.std(-2).min() > 0


def test_members_are_the_network_with_units_silenced():
    """Brute force: for one layer, every member is the eval network with some hidden units × 1/(1 − p), others × 0."""
    torch.manual_seed(0)
    plain, inputs = MLP(4, 3, (16,), dropout=0.3), torch.randn(9, 4)
    answers = logits(DropoutEnsemble(plain, 8), inputs)
    hidden = nn.Sequential(*list(plain)[:3])(inputs)
    silenced = 0
    for number in range(8):
        # the mask is the least-squares solution of hidden · diag(mask) · W = logits − bias
        system = (hidden[:, None, :] * plain[-1].weight).reshape(-1, 16).double()
        found = torch.linalg.lstsq(system, (answers[:, number] - plain[-1].bias).reshape(-1, 1).double()).solution[:, 0]
        mask = found.where(system.abs().amax(0) > 0.1, 0)
        on, off = (mask - 1 / 0.7).abs() < 1e-3, mask.abs() < 1e-3
        assert (on | off).all()
        silenced += int(off.sum())
    assert 0 < silenced < 8 * 16


def test_members_differ_and_the_seed_decides():
    inputs = small_batches().all.inputs
    first, again, other = (DropoutEnsemble(network(), 4, seed) for seed in (0, 0, 1))
    assert torch.equal(logits(first, inputs), logits(again, inputs))
    assert first.fingerprints == again.fingerprints
    assert len({*first.fingerprints, *other.fingerprints}) == 8
    answers = torch.cat([logits(first, inputs), logits(other, inputs)], -2)
    for a in range(8):
        for b in range(a):
            assert (answers[:, a] - answers[:, b]).abs().max() > 0.01
    assert torch.equal(logits(DropoutEnsemble(network(), 2), inputs), logits(first, inputs)[:, :2])


def test_another_rate_has_another_fingerprint():
    other = network()
    other[-2].p = 0.31
    assert DropoutEnsemble(other, 1).fingerprints != DropoutEnsemble(network(), 1).fingerprints


def test_logits_of_a_linear_layer_have_the_mean_and_variance_of_dropout():
    """E[z] is the network without dropout; Var[z_k] = p/(1 − p) · Σ_j (w_kj x_j)², and members are independent."""
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Dropout(0.4), nn.Linear(12, 3)).double(), torch.randn(4, 12).double()
    members = 2000
    answers = logits(DropoutEnsemble(model, members), inputs)
    variance = 0.4 / 0.6 * (inputs.square() @ model[1].weight.square().T)
    error = (answers.mean(-2) - model.eval()(inputs)) / (variance / members).sqrt()
    assert error.abs().max() < 5
    torch.testing.assert_close(answers.var(-2), variance, rtol=0.15, atol=0)
    consecutive = answers - answers.mean(-2, keepdim=True)
    correlation = (consecutive[:, 1:] * consecutive[:, :-1]).mean(-2) / variance
    assert correlation.abs().max() < 5 / members**0.5


def test_many_members_agree_with_torch_dropout():
    model, inputs = network(), 2 * torch.randn(3, 4)
    mine = logits(DropoutEnsemble(model, 1000), inputs).softmax(-1)
    model.train()
    with torch.no_grad():
        torchs = model(inputs.repeat_interleave(20000, 0)).view(3, 20000, 3).softmax(-1)
    error = (mine.mean(1) - torchs.mean(1)) / (mine.var(1) / 1000 + torchs.var(1) / 20000).sqrt()
    assert error.abs().max() < 5
    torch.testing.assert_close(mine.std(1), torchs.std(1), rtol=0.15, atol=1e-3)


def test_a_units_number_does_not_depend_on_the_axes():
    whole = _uniform(5, (40, 30))
    assert np.array_equal(whole[:7, :11], _uniform(5, (7, 11)))
    assert len(np.unique(whole)) == whole.size
    assert abs(whole.mean() - 0.5) < 5 * (1 / 12 / whole.size) ** 0.5
    assert np.abs(np.corrcoef(whole.T)[np.triu_indices(30, 1)]).max() < 0.75
    assert abs((_uniform(5, (1000,)) * _uniform(6, (1000,))).mean() - 0.25) < 5 * 0.22 / 1000**0.5


def test_channels_fall_silent_as_a_whole():
    images = torch.ones(2, 6, 4, 4)
    model = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten())
    answers = logits(DropoutEnsemble(model, 50), images).view(2, 50, 6, 16)
    assert torch.equal(answers, answers[:1, :, :, :1].expand_as(answers))
    assert set(answers.unique().tolist()) == {0.0, 2.0}


def test_a_layer_used_twice_makes_two_choices():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x):
            return torch.cat([self.dropout(x), self.dropout(x)], -1)

    answers = logits(DropoutEnsemble(Twice(), 1), torch.ones(2, 64))
    assert not torch.equal(answers[..., :64], answers[..., 64:])


def test_everything_but_dropout_is_in_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    model(3 * torch.randn(64, 4) + 1)  # statistics of its own
    before = copy.deepcopy(model.state_dict())
    ensemble = DropoutEnsemble(model, 3)
    answers = logits(ensemble, torch.randn(5, 4))
    torch.testing.assert_close(logits(ensemble, torch.randn(5, 4)).shape, answers.shape)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert torch.equal(tensor, ensemble.models[0].network.state_dict()[name])
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert sum(p.numel() for p in ensemble.parameters()) == sum(p.numel() for p in model.parameters())


def test_gradients_reach_the_inputs():
    inputs = torch.randn(2, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(logits(DropoutEnsemble(network(), 2), inputs).sum(), inputs)
    assert gradient.abs().min() > 0


def test_copies_say_the_same():
    ensemble, inputs = DropoutEnsemble(network(), 3), torch.randn(4, 4)
    assert torch.equal(logits(copy.deepcopy(ensemble), inputs), logits(ensemble, inputs))


def test_dropping_everything_leaves_zeros():
    model = nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 3, bias=False))
    assert torch.equal(logits(DropoutEnsemble(model, 2), torch.randn(2, 4)), torch.zeros(2, 2, 3))


def test_networks_without_dropout_are_refused():
    for model in (MLP(4, 3), ConvNet((1, 8, 8), 3), nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3))):
        with pytest.raises(ValueError, match=r"no dropout layer with p > 0.*train it with nn\.Dropout layers"):
            DropoutEnsemble(model)
    with pytest.raises(ValueError, match=r"AlphaDropout is not supported: use nn\.Dropout"):
        DropoutEnsemble(nn.Sequential(nn.AlphaDropout(0.1), nn.Linear(4, 3)))
    with pytest.raises(ValueError, match="at least one member, got members=0"):
        DropoutEnsemble(network(), 0)
