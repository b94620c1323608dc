"""Small networks asked as one: the same answers after any change of weights; one by one where they are not alike."""

import copy

import pytest
import torch
from torch import nn

from solera.nn import MLP, ConvNet
from solera.nn.side_by_side import SideBySide
from solera.nn.stacked import Stacked
from solera.nn.standardize import Standardize
from solera.teachers import Ensemble


def networks(count=4, **settings):
    return [MLP(6, 3, (8, 5), **settings).eval().requires_grad_(False) for _ in range(count)]


def one_by_one(members, inputs):
    return torch.stack([member(inputs) for member in members], -2)


@pytest.mark.parametrize("batch", [(7,), (1,), (0,)])
@pytest.mark.parametrize(
    "settings", [{}, {"dropout": 0.5}, {"standardize": True, "activation": "gelu"}, {"targets": 1}], ids=str
)
def test_the_same_answers_as_one_by_one(settings, batch):
    members, inputs = networks(**settings), torch.randn(*batch, 2, 3)
    found = SideBySide(members)(inputs)
    torch.testing.assert_close(found, one_by_one(members, inputs))


def test_tokens_keep_their_axes():
    members = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).requires_grad_(False) for _ in range(3)]
    inputs = torch.randn(2, 6, 4)
    torch.testing.assert_close(SideBySide(members)(inputs), one_by_one(members, inputs))


@torch.no_grad()
def test_changed_weights_and_layers_are_noticed():
    members, inputs = networks(), torch.randn(5, 6)
    together = SideBySide(members)
    together(inputs)
    members[1][1].weight.mul_(2)
    torch.testing.assert_close(together(inputs), one_by_one(members, inputs))
    members[2].load_state_dict(networks(1)[0].state_dict(), assign=True)
    torch.testing.assert_close(together(inputs), one_by_one(members, inputs))
    members[3][1] = nn.Linear(6, 8, bias=False).requires_grad_(False)
    assert together(inputs) is None


def test_networks_that_are_not_alike_are_asked_one_by_one():
    inputs = torch.randn(5, 6)
    assert SideBySide([MLP(6, 3, (8,)), MLP(6, 3, (9,))])(inputs) is None
    assert SideBySide([nn.Sequential(nn.LeakyReLU(s), nn.Linear(6, 3)) for s in (0.1, 0.2)])(inputs) is None
    assert SideBySide(networks(1))(inputs) is None
    assert SideBySide([MLP(6, 3, (2000, 200)), MLP(6, 3, (2000, 200))])(inputs) is None
    assert SideBySide([ConvNet((1, 8, 8), 3) for _ in range(2)])(torch.randn(2, 1, 8, 8)) is None
    watched = networks()
    watched[0].register_forward_hook(lambda *_: None)
    assert SideBySide(watched)(inputs) is None
    other = networks(standardize=True)
    other[0][1].mean.add_(1)
    assert SideBySide(other)(inputs) is None
    units = networks(targets=1)
    units[3][-1].scale.mul_(2)
    assert SideBySide(units)(inputs) is None


def test_members_in_training_are_asked_one_by_one():
    members, inputs = networks(dropout=0.5), torch.randn(5, 6)
    together = SideBySide(members)
    assert together(inputs) is not None
    members[0].train()
    assert together(inputs) is None
    members[0].eval().requires_grad_(True)
    assert together(inputs) is None


def test_a_gradient_reaches_the_inputs_even_after_inference_mode():
    members, inputs = networks(), torch.randn(5, 6, requires_grad=True)
    together = SideBySide(members)
    with torch.inference_mode():
        together(inputs.detach())
    (found,) = torch.autograd.grad(together(inputs).square().sum(), inputs)
    (wanted,) = torch.autograd.grad(one_by_one(members, inputs).square().sum(), inputs)
    torch.testing.assert_close(found, wanted)


def test_an_ensemble_asks_alike_and_different_members():
    inputs = torch.randn(9, 6)
    for members in (networks(), [MLP(6, 3, (8,)), MLP(6, 3, (9,))]):
        ensemble = Ensemble(members)
        torch.testing.assert_close(ensemble.predict(inputs).members.logits, one_by_one(ensemble.models, inputs))
        again = copy.deepcopy(ensemble)
        assert torch.equal(again.predict(inputs).members.logits, ensemble.predict(inputs).members.logits)


def test_images_are_asked_channels_last_with_the_same_answers():
    ensemble, images = Ensemble([ConvNet((1, 8, 8), 3) for _ in range(3)]), torch.randn(5, 1, 8, 8)
    layouts = []
    ensemble.models[0][1].register_forward_hook(
        lambda _, inputs, __: layouts.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    torch.testing.assert_close(ensemble.predict(images).members.logits, one_by_one(ensemble.models, images))
    assert layouts[0]


STACKED = {
    "plain": lambda: MLP(6, 3, (8, 5)),
    "standardized": lambda: MLP(6, 3, (8, 5), standardize=True),
    "in units": lambda: MLP(6, 3, (8, 5), targets=1),
    "by vmap": lambda: nn.Sequential(nn.Flatten(), Standardize(6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
}


@pytest.mark.parametrize("kind", STACKED)
def test_a_stack_gives_each_network_its_own_inputs_and_gradients(kind):
    members, inputs = [STACKED[kind]() for _ in range(4)], torch.randn(7, 4, 2, 3)
    for number, member in enumerate(members):
        for buffer in member.buffers():
            buffer.add_(number)
    stack = Stacked(members)
    assert bool(stack._chain) == (kind != "by vmap")
    found, wanted = stack(inputs), torch.stack([member(inputs[:, m]) for m, member in enumerate(members)], -2)
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for place, name in enumerate(stack.names):
        slopes = torch.stack([dict(member.named_parameters())[name].grad for member in members])
        torch.testing.assert_close(stack.parameters_[place].grad, slopes)
