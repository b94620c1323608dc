"""BatchEnsemble against an explicit loop over M networks whose weights are W ∘ s_m r_mᵀ, and back to one network."""

import copy
import threading

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from solera.nn import MLP, ConvNet, ResNet, Subnetworks, WideResNet, branch, merge
from solera.nn.batch_ensemble import BatchEnsembleLinear, OwnNorms
from tests.nn.test_heads import Bert, Residual, Tagger, sentences, texts

M = 3


class Grouped(nn.Module):
    """Groups, strides, padding by reflection, no bias, one and two dimensions."""

    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(2, 4, 3, groups=2, bias=False, padding=1, padding_mode="reflect")
        self.grouped, self.line = nn.Conv2d(4, 6, (3, 1), stride=2, groups=2), nn.Conv1d(6, 4, 3, groups=2, dilation=2)
        self.classifier = nn.Linear(4, 5, bias=False)

    def forward(self, x):
        x = torch.tanh(self.grouped(torch.tanh(self.depthwise(x))))
        return self.classifier(torch.tanh(self.line(x.flatten(2))).mean(-1))


class Flattening(nn.Module):
    """Batch and tokens become one axis on the way."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.second(hidden.flatten(0, 1)).unflatten(0, x.shape[:2])


class Twice(nn.Module):
    """One layer under two names."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = self.one
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.two(torch.tanh(self.one(x)))))


class Tied(nn.Module):
    """An embedding that is also the last layer's weight."""

    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.decode = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7)
        self.decode.weight = self.embed.weight

    def forward(self, tokens):
        return self.decode(torch.tanh(self.hidden(self.embed(tokens))))


def rows():
    return torch.randn(6, 4)


def images():
    return torch.randn(6, 1, 8, 8)


CASES = {
    "linear alone": (lambda: nn.Linear(4, 3), rows),
    "mlp": (lambda: MLP(4, 3, (8, 8)), rows),
    "tokens": (lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), lambda: torch.randn(2, 5, 4)),
    "flattening": (Flattening, lambda: torch.randn(2, 5, 4)),
    "convnet": (lambda: ConvNet((1, 8, 8), 3), images),
    "groups": (Grouped, lambda: torch.randn(6, 2, 8, 9)),
    "one layer twice": (Twice, rows),
    "tied embedding": (Tied, lambda: torch.randint(7, (6,))),
    "residual": (Residual, images),
    "wide residual": (lambda: WideResNet(10, 1, (1, 8, 8), 3), images),
    "transformer": (Tagger, sentences),
    "bert": (Bert, texts),
}
NORMED = ("tokens", "residual", "wide residual", "transformer", "bert")


def apart(network, **settings):
    """Subnetworks that differ, and tensors that are no longer what they were at the start."""
    subnetworks = branch(network, M, **settings)
    with torch.no_grad():
        for parameter in subnetworks.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return subnetworks


def factored(subnetworks):
    """(name of the weight, r, s, groups) of every layer that has factors."""
    for name, module in subnetworks.network.named_modules():
        if hasattr(module, "input_excess"):
            yield f"{name}.weight".lstrip("."), 1 + module.input_excess, 1 + module.output_excess, module


def weights_of(subnetworks, member):
    """This member's own weights, one by one, as a function of the shared ones and the factors."""
    own = {}
    for name, r, s, module in factored(subnetworks):
        weight, group = module.weight, module.weight.shape[0] // getattr(module, "groups", 1)
        filters = []
        for out in range(weight.shape[0]):
            first = (out // group) * weight.shape[1]
            column = r[member, first : first + weight.shape[1]]
            filters.append(s[member, out] * column.reshape(-1, *(1,) * (weight.ndim - 2)) * weight[out])
        own[name] = torch.stack(filters)
    return own


def loop(network, subnetworks, inputs):
    """Member after member, in the original class."""
    shared = dict(subnetworks.network.named_parameters()) | dict(subnetworks.network.named_buffers())
    shared = {name: tensor for name, tensor in shared.items() if "excess" not in name}
    outputs = []
    for member in range(M):
        tensors = shared | weights_of(subnetworks, member)
        outputs.append(torch.func.functional_call(network, tensors, (inputs,), tie_weights=True))
    return torch.stack(outputs, -2)


def double(inputs):
    return inputs.double() if isinstance(inputs, torch.Tensor) and inputs.is_floating_point() else inputs


@pytest.mark.parametrize("case", CASES)
def test_subnetworks_do_what_a_loop_over_networks_does(case):
    """Outputs and gradients: the shared weights' as they are, the factors' M times that."""
    make, inputs_of = CASES[case]
    torch.manual_seed(0)
    network, inputs = make().double().eval(), double(inputs_of())
    subnetworks = apart(network).eval()
    ours, theirs = subnetworks(inputs), loop(network, subnetworks, inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)

    pull, parameters = torch.randn_like(ours), dict(subnetworks.named_parameters())
    mine = torch.autograd.grad((ours * pull).sum(), list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad((theirs * pull).sum(), list(parameters.values()), allow_unused=True)
    for name, a, b in zip(parameters, mine, expected, strict=True):
        if b is not None:
            torch.testing.assert_close(a, M * b if "excess" in name else b, rtol=1e-8, atol=1e-8, msg=name)
    assert any("excess" in name for name in parameters)
    with torch.no_grad():
        torch.testing.assert_close(subnetworks(inputs), ours.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", NORMED)
def test_norms_of_their_own_make_whole_networks(case):
    """In training, too: each member's batch norm sees, and keeps statistics of, that member's rows alone."""
    make, inputs_of = CASES[case]
    torch.manual_seed(0)
    network, inputs = make().double(), double(inputs_of())
    for module in network.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    subnetworks = apart(network, norms="own").train()
    state = subnetworks.network.state_dict()
    owners = [name for name, module in subnetworks.network.named_modules() if isinstance(module, OwnNorms)]
    assert owners
    copies, outputs = [], []
    for member in range(M):
        mine = {name: tensor.detach().clone() for name, tensor in state.items() if "excess" not in name}
        for owner in owners:
            for name in [n for n in mine if n.startswith(f"{owner}.")]:
                number, rest = name.removeprefix(f"{owner}.").split(".")
                tensor = mine.pop(name)
                if int(number) == member:
                    mine[f"{owner}.{rest}"] = tensor
        copies.append(copy.deepcopy(network).train())
        mine |= {name: weight.detach() for name, weight in weights_of(subnetworks, member).items()}
        copies[-1].load_state_dict({**copies[-1].state_dict(), **mine})
        outputs.append(copies[-1](inputs))
    torch.testing.assert_close(subnetworks(inputs), torch.stack(outputs, -2), rtol=1e-9, atol=1e-9)
    for owner in owners:
        for member, norm in enumerate(subnetworks.network.get_submodule(owner)):
            for name, buffer in norm.named_buffers():
                torch.testing.assert_close(buffer, copies[member].get_submodule(owner).get_buffer(name))
    with pytest.raises(ValueError, match="norm layers of their own cannot be merged into one: use norms='shared'"):
        merge(subnetworks)


def test_one_shared_batch_norm_sees_the_tiled_batch():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)).double()
    subnetworks, inputs = apart(network).train(), rows().double()
    hidden = torch.cat([inputs @ weights_of(subnetworks, m)["0.weight"].T for m in range(M)])
    norm = copy.deepcopy(subnetworks.network[1])
    expected = norm(hidden).unflatten(0, (M, -1)).transpose(0, 1)
    torch.testing.assert_close(subnetworks(inputs), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(subnetworks.network[1].running_var, norm.running_var)


@pytest.mark.parametrize("average", ["products", "factors"])
@pytest.mark.parametrize("case", CASES)
def test_ones_are_the_network_itself_and_merge_to_its_bits(case, average):
    make, inputs_of = CASES[case]
    torch.manual_seed(0)
    network, inputs = make().eval(), inputs_of()
    before = copy.deepcopy(network.state_dict())
    subnetworks = branch(network, M)
    single = network(inputs)
    torch.testing.assert_close(subnetworks(inputs), torch.stack([single] * M, -2), rtol=1e-4, atol=1e-5)
    plain = merge(subnetworks, average)
    assert list(plain.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())
    assert torch.equal(plain(inputs), single)
    assert [type(m) for m in plain.modules()] == [type(m) for m in network.modules()]
    assert [set(vars(m)) for m in plain.modules()] == [set(vars(m)) for m in network.modules()]
    for parameter in subnetworks.parameters():
        nn.init.zeros_(parameter)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("case", CASES)
def test_merged_weights_load_into_the_users_own_class(case):
    """The mean of the members' own weights, by name; one member's share alone is that subnetwork."""
    make, inputs_of = CASES[case]
    torch.manual_seed(0)
    network, inputs = make().double().eval(), double(inputs_of())
    subnetworks = apart(network).eval()
    fresh = make().double().eval()
    fresh.load_state_dict(merge(subnetworks).state_dict())
    each = [weights_of(subnetworks, m) for m in range(M)]
    for name in each[0]:
        torch.testing.assert_close(fresh.get_parameter(name), sum(w[name] for w in each) / M)
    with torch.no_grad():
        second = merge(subnetworks, shares=[0, 1, 0])(inputs)
        torch.testing.assert_close(second, subnetworks(inputs)[..., 1, :], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(fresh(inputs), merge(subnetworks)(inputs), rtol=0, atol=0)
    assert not any("excess" in name for name in fresh.state_dict())


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(4, 3), lambda: nn.Conv1d(2, 3, 3), lambda: nn.Conv2d(2, 4, 3, groups=2)]
)
def test_of_one_layer_the_merged_output_is_the_mean_output(make):
    """Eq. 5 is exact there; averaged factors are not."""
    torch.manual_seed(0)
    layer = make().double()
    inputs = torch.randn(5, *{2: (4,), 3: (2, 9), 4: (2, 9, 9)}[layer.weight.ndim], dtype=torch.double)
    subnetworks = apart(layer)
    outputs = subnetworks.network(torch.cat([inputs] * M)).unflatten(0, (M, -1)).mean(0)
    torch.testing.assert_close(merge(subnetworks)(inputs), outputs, rtol=1e-12, atol=1e-12)
    other = merge(subnetworks, "factors")
    assert (other(inputs) - outputs).abs().max() > 1e-3
    ((_, r, s, _),) = factored(subnetworks)
    if isinstance(layer, nn.Linear):
        torch.testing.assert_close(other.weight, subnetworks.network.weight * torch.outer(s.mean(0), r.mean(0)))


@pytest.mark.parametrize("average", ["products", "factors"])
def test_one_member_merges_to_itself(average):
    torch.manual_seed(0)
    subnetworks = branch(ConvNet((1, 8, 8), 3), 1, "normal")
    inputs = images()
    torch.testing.assert_close(merge(subnetworks, average)(inputs), subnetworks(inputs)[:, 0], rtol=1e-4, atol=1e-5)


def test_shares_are_a_line_between_two_subnetworks():
    torch.manual_seed(0)
    subnetworks = branch(MLP(4, 3), 2, "normal")
    ends = [merge(subnetworks, shares=end).state_dict() for end in ([1, 0], [0, 1])]
    for name, middle in merge(subnetworks, shares=[0.25, 0.75]).state_dict().items():
        torch.testing.assert_close(middle, 0.25 * ends[0][name] + 0.75 * ends[1][name], rtol=1e-4, atol=1e-6)
    for name, middle in merge(subnetworks).state_dict().items():
        torch.testing.assert_close(middle, merge(subnetworks, shares=[0.5, 0.5]).state_dict()[name])


@pytest.mark.parametrize("factors", ["normal", "signs"])
def test_first_factors(factors):
    """As many as there are channels, of the right kind, different for every member, the same for the same seed."""
    subnetworks = branch(MLP(400, 300, (500,)), 4, factors)
    values = torch.cat([1 + excess.detach().flatten() for excess in subnetworks.factors()])
    assert [tuple(f.shape) for f in subnetworks.factors()] == [(4, 400), (4, 500), (4, 500), (4, 300)]
    if factors == "signs":
        assert set(values.tolist()) == {-1.0, 1.0}
        assert abs(values.mean()) < 0.05
    else:
        assert abs(values.mean() - 1) < 0.03
        assert abs(values.std() - 0.5) < 0.02
    torch.manual_seed(1)
    again, other = branch(MLP(400, 300, (500,)), 4, factors), branch(MLP(400, 300, (500,)), 4, factors, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(subnetworks.factors(), again.factors(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(subnetworks.factors(), other.factors(), strict=True))
    assert len(subnetworks.shared()) + len(subnetworks.factors()) == len(list(subnetworks.parameters()))


def test_what_stays_shared():
    """Attention reads its packed weights itself; a tied weight must still fit its class after the merge."""
    names = {n.rsplit(".", 1)[0] for n, _ in branch(Tagger(), M).network.named_parameters() if "excess" in n}
    assert names == {"classifier", *(f"encoder.layers.{i}.linear{k}" for i in (0, 1) for k in (1, 2))}
    assert {n for n, *_ in factored(branch(Tied(), M))} == {"hidden.weight"}
    norm = nn.Sequential(nn.Linear(4, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    assert {n for n, *_ in factored(branch(norm, M))} == {"0.weight"}
    biases = {n for n, p in branch(MLP(4, 3), M).named_parameters() if n.endswith("bias") and p.ndim != 1}
    assert not biases


def test_transformers_take_no_short_cut_past_the_factors():
    """Without gradients torch runs another transformer, which reads the weights; the merged one may have it."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    network = nn.TransformerEncoder(layer, 2).eval()

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.last = network, nn.Linear(8, 3)

        def forward(self, inputs):
            x, padding = inputs
            return self.last(self.encoder(x, src_key_padding_mask=padding))

    inputs = torch.randn(2, 5, 8), torch.arange(5) >= torch.tensor([[5], [3]])
    subnetworks, keep = apart(Masked().eval()).eval(), ~inputs[1]
    slow = subnetworks(inputs)
    with torch.no_grad():
        torch.testing.assert_close(subnetworks(inputs)[keep], slow[keep], rtol=1e-4, atol=1e-5)
    plain = merge(subnetworks)
    assert plain.encoder.use_nested_tensor is network.use_nested_tensor is True
    assert plain.encoder.layers[0].activation_relu_or_gelu == network.layers[0].activation_relu_or_gelu == 1


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 7, 4), (0, 4)], ids=str)
def test_any_batch_axes(shape):
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    assert branch(network, 5)(torch.randn(shape)).shape == (*shape[:-1], 5, 3)


def test_class_ids_alone_are_a_batch():
    assert branch(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3)), 5)(torch.tensor([1, 6])).shape == (2, 5, 3)


def test_dropout_is_every_members_own():
    torch.manual_seed(0)
    outputs = branch(MLP(4, 3, (50,), dropout=0.5), M).train()(rows())
    assert (outputs[:, 0] - outputs[:, 1]).abs().max() > 0.01


@pytest.mark.parametrize("make", [lambda: MLP(4, 3, (8,)), lambda: ConvNet((1, 8, 8), 3), Tagger])
@pytest.mark.parametrize("norms", ["shared", "own"])
def test_copies_files_and_dtypes(make, norms):
    torch.manual_seed(0)
    network = make()
    inputs = sentences() if isinstance(network, Tagger) else images() if isinstance(network, ConvNet) else rows()
    subnetworks = apart(network, norms=norms).eval()
    twin = copy.deepcopy(subnetworks)
    assert torch.equal(twin(inputs), subnetworks(inputs))
    with torch.no_grad():
        twin.factors()[0].add_(1)
    assert not torch.equal(twin(inputs), subnetworks(inputs))
    fresh = branch(make(), M, norms=norms).eval()
    fresh.load_state_dict(load(save(subnetworks.state_dict())))
    assert torch.equal(fresh(inputs), subnetworks(inputs))
    assert {p.dtype for p in fresh.double().parameters()} == {torch.double}


@pytest.mark.parametrize("norms", ["shared", "own"])
def test_settings_rebuild_the_network(norms):
    torch.manual_seed(0)
    cases = [(MLP(4, 3, (8, 8), dropout=0.1), rows()), (ResNet(8, (1, 8, 8), 3, channels=4), images())]
    for network, inputs in cases:
        subnetworks = apart(network, factors="signs", norms=norms).eval()
        again = Subnetworks(**subnetworks.settings).eval()
        again.load_state_dict(subnetworks.state_dict())
        assert torch.equal(again(inputs), subnetworks(inputs))
    assert not hasattr(branch(Residual(), M), "settings")


def test_images_stay_channels_last():
    torch.manual_seed(0)
    network = WideResNet(10, 1, (3, 8, 8), 5).to(memory_format=torch.channels_last)
    subnetworks, inputs = apart(network).eval(), torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    seen = []
    for module in subnetworks.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda m, i, o: seen.append(o.is_contiguous(memory_format=torch.channels_last))
            )
    assert subnetworks(inputs).shape == (4, M, 5)
    assert all(seen)
    assert len(seen) == 9


def test_threads_do_not_disturb_each_other():
    torch.manual_seed(0)
    subnetworks, right = apart(Residual().eval()).eval(), []
    batches = [torch.randn(size, 1, 8, 8) for size in (2, 5)]
    with torch.no_grad():
        expected = [subnetworks(batch) for batch in batches]

    def ask(number):
        with torch.no_grad():
            for _ in range(20):
                right.append(torch.equal(subnetworks(batches[number]), expected[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 40


@pytest.mark.parametrize("case", ["mlp", "convnet", "residual"])
def test_subnetworks_can_be_exported(case):
    make, inputs_of = CASES[case]
    torch.manual_seed(0)
    subnetworks, inputs = apart(make()).eval(), inputs_of()
    with torch.no_grad():
        program = torch.export.export(subnetworks, (inputs,))
        torch.testing.assert_close(program.module()(inputs), subnetworks(inputs), rtol=1e-4, atol=1e-5)


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: branch(MLP(4, 3), 0), "at least one subnetwork, got members=0"),
        (lambda: branch(nn.Embedding(4, 3), 2), "this Embedding has no Linear, Conv1d or Conv2d layer"),
        (lambda: branch(branch(MLP(4, 3), 2), 3), "has 2 subnetworks already and cannot have 3: pass the network that"),
        (lambda: branch(SequenceFirst(), 2)(torch.randn(5, 6, 4)), "first axis is not that of the batch, 10 rows of 2"),
        (lambda: merge(branch(MLP(4, 3), 2), shares=[1.0]), "one share for each of 2 members, got 1"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_network_with_subnetworks_is_left_as_it_is():
    subnetworks = branch(MLP(4, 3), 5)
    assert branch(subnetworks, 5) is subnetworks
    assert isinstance(subnetworks.network[1], BatchEnsembleLinear)
