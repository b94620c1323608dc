"""M heads against an explicit loop over M copies of the network: outputs, gradients, running statistics."""

import copy
import threading

import pytest
import torch
from safetensors.torch import load, save
from torch import nn
from torch._C._functorch import is_batchedtensor

from solera.nn import MLP, ConvNet, Heads, grow

M = 3


class Residual(nn.Module):
    """Convolutions, batch norm, in-place operations, a skip connection."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4))
        self.dropout, self.classifier = nn.Dropout(dropout), nn.Linear(4, 5)
        self.seen = lambda features: None

    def forward(self, x):
        x = torch.relu_(self.norm(self.stem(x)))
        x = self.dropout(x)
        self.seen(x)
        out = self.block(x)
        out += x
        return self.classifier(torch.relu_(out).mean((2, 3)))


class Tagger(nn.Module):
    """A transformer over tokens: inputs are a dict, the output has a token axis."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.embed, self.encoder = nn.Embedding(11, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(8, 4)

    def forward(self, inputs):
        hidden = self.encoder(self.embed(inputs["tokens"]), src_key_padding_mask=inputs["padding"])
        return self.classifier(hidden)


class Bert(nn.Module):
    """A Hugging Face classifier from a configuration; inputs are a tuple."""

    def __init__(self):
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
        rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.bert = BertForSequenceClassification(BertConfig(vocab_size=31, num_labels=3, **sizes, **rates))

    def forward(self, inputs):
        tokens, mask = inputs
        return self.bert(input_ids=tokens, attention_mask=mask).logits


def images():
    return torch.randn(6, 1, 8, 8)


def sentences():
    return {"tokens": torch.randint(11, (2, 7)), "padding": torch.arange(7) >= torch.tensor([[7], [4]])}


def texts():
    return torch.randint(31, (2, 7)), (torch.arange(7) < torch.tensor([[7], [4]])).long()


def rows():
    return torch.randn(6, 4)


def nested():
    body = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU())
    return nn.Sequential(body, nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 3, bias=False))))


def normed():
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


CASES = {
    "linear alone": (lambda: nn.Linear(4, 3), rows, 1),
    "mlp": (lambda: MLP(4, 3, (8, 8)), rows, 1),
    "mlp, 2 layers": (lambda: MLP(4, 3, (8, 8)), rows, 2),
    "mlp, all layers": (lambda: MLP(4, 3, (8, 8)), rows, 3),
    "mlp with units": (lambda: MLP(4, 6, (8, 8), activation="softplus", targets=3), rows, 2),
    "convnet": (lambda: ConvNet((1, 8, 8), 3), images, 1),
    "convnet, with convolutions": (lambda: ConvNet((1, 8, 8), 3), images, 3),
    "nested": (nested, rows, 1),
    "nested, 2 layers": (nested, rows, 2),
    "nested, by name": (nested, rows, "1.1"),
    "layer norm in the head": (normed, rows, 2),
    "residual": (Residual, images, 1),
    "residual, batch norm in the head": (Residual, images, 2),
    "residual, block in the head": (Residual, images, "block"),
    "residual, everything": (Residual, images, 5),
    "transformer, tokens": (Tagger, sentences, 1),
    "transformer, a layer in the head": (Tagger, sentences, "encoder.layers.1"),
    "bert": (Bert, texts, 1),
    "bert, pooler": (Bert, texts, 2),
    "bert, a layer in the head": (Bert, texts, "bert.bert.encoder.layer.1"),
}


def grown_apart(network, head, members=M):
    """Heads that differ."""
    heads = grow(network, members, head)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return heads


def copies_of(network, heads):
    """The same as separate networks."""
    mine, theirs = network.state_dict(), heads.state_dict()
    copies = [copy.deepcopy(network) for _ in range(heads.members)]
    for number, one in enumerate(copies):
        one.load_state_dict({k: v if v.shape == mine[k].shape else v[number] for k, v in theirs.items()})
    return copies


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("case", CASES)
def test_heads_do_what_a_loop_over_networks_does(case, training):
    make, inputs_of, head = CASES[case]
    torch.manual_seed(0)
    network = make().double().train(training)
    inputs = inputs_of()
    inputs = inputs.double() if isinstance(inputs, torch.Tensor) else inputs
    heads = grown_apart(network, head)
    copies = copies_of(network, heads)
    ours, theirs = heads(inputs), torch.stack([one(inputs) for one in copies], -2)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)

    pull = torch.randn_like(ours)
    (ours * pull).sum().backward()
    (theirs * pull).sum().backward()
    expected = [dict(one.named_parameters()) for one in copies]
    for name, parameter in heads.named_parameters():
        gradients = torch.stack([own[name].grad for own in expected])
        if parameter.shape == expected[0][name].shape:
            gradients = gradients.sum(0)
        torch.testing.assert_close(parameter.grad, gradients, rtol=1e-8, atol=1e-8, msg=name)
    buffers = [dict(one.named_buffers()) for one in copies]
    for name, buffer in heads.named_buffers():
        every = torch.stack([own[name] for own in buffers])
        torch.testing.assert_close(buffer, every[0] if buffer.shape == every[0].shape else every, msg=name)


def test_without_gradients_too():
    """torch has another transformer for that."""
    torch.manual_seed(0)
    network, inputs = Tagger().eval(), sentences()
    for head in (1, "encoder.layers.1"):
        heads = grown_apart(network, head)
        with torch.no_grad():
            ours = heads(inputs)
            theirs = torch.stack([one(inputs) for one in copies_of(network, heads)], -2)
        keep = ~inputs["padding"]
        torch.testing.assert_close(ours[keep], theirs[keep], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_all_heads_start_as_the_network(case):
    make, inputs_of, head = CASES[case]
    torch.manual_seed(0)
    network, inputs = make().eval(), inputs_of()
    before = copy.deepcopy(network.state_dict())
    heads = grow(network, M, head)
    single = network(inputs)
    torch.testing.assert_close(heads(inputs), torch.stack([single] * M, -2), rtol=1e-5, atol=1e-6)
    assert list(heads.state_dict()) == list(before)
    assert [n for n, _ in heads.named_parameters()] == [n for n, _ in network.named_parameters()]
    for parameter in heads.parameters():
        nn.init.zeros_(parameter)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_sizes_of_what_is_copied():
    shapes = {name: tuple(p.shape) for name, p in grow(MLP(4, 3, (8, 6)), 5, head=2).named_parameters()}
    first = {"1.weight": (8, 4), "1.bias": (8,)}
    assert shapes == first | {"3.weight": (5, 6, 8), "3.bias": (5, 6), "5.weight": (5, 3, 6), "5.bias": (5, 3)}


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 7, 4), (0, 4)], ids=str)
@pytest.mark.parametrize("head", [1, 2])
def test_any_batch_axes(shape, head):
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    assert grow(network, 5, head)(torch.randn(shape)).shape == (*shape[:-1], 5, 3)


@pytest.mark.parametrize("make", [lambda: MLP(4, 3, (8,)), Tagger], ids=["products", "vmap"])
def test_copies_files_and_dtypes(make):
    torch.manual_seed(0)
    inputs = rows() if make is not Tagger else sentences()
    heads = grown_apart(make(), 1).eval()
    twin = copy.deepcopy(heads)
    assert torch.equal(twin(inputs), heads(inputs))
    with torch.no_grad():
        next(twin.parameters()).add_(1)
    assert not torch.equal(twin(inputs), heads(inputs))
    fresh = grow(make(), M).eval()
    fresh.load_state_dict(load(save(heads.state_dict())))
    assert torch.equal(fresh(inputs), heads(inputs))
    assert len({id(p) for p in heads.parameters()}) == len(list(heads.parameters()))
    assert {p.dtype for p in fresh.double().parameters()} == {torch.double}
    if make is not Tagger:
        assert fresh(inputs.double()).dtype == torch.double


def test_heads_of_heads():
    heads = grow(MLP(4, 3), 5)
    assert grow(heads, 5) is heads
    with pytest.raises(
        ValueError, match="has 5 heads already and cannot grow to 4: pass the network that they were grown"
    ):
        grow(heads, 4)


@pytest.mark.parametrize("head", [0, 4, -1, "6", "classifier"])
def test_a_cut_that_does_not_exist(head):
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    with pytest.raises(ValueError, match=rf"head={head!r} is no place to cut this Sequential: .* 1 to 3, .*: 0, 2, 4"):
        grow(network, 2, head)


def test_nothing_with_parameters_after_the_cut():
    with pytest.raises(ValueError, match="head='1' is no place to cut"):
        grow(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), 2, "1")
    with pytest.raises(ValueError, match="at least one head, got members=0"):
        grow(MLP(4, 3), 0)


@pytest.mark.parametrize("make", [Tagger, Bert])
def test_any_dropout_is_the_bodys_once_and_every_heads_own(make):
    """In the body one mask serves all heads; so heads that are copies differ only by their own dropout."""
    torch.manual_seed(0)
    network, inputs = make(), sentences() if make is Tagger else texts()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.5
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    layer = "encoder.layers.1" if make is Tagger else "bert.bert.encoder.layer.1"
    single = network.train()
    assert not torch.equal(single(inputs), single(inputs))
    last = "classifier" if make is Tagger else "bert.classifier"
    shared = grow(network, M, last).train()(inputs)
    torch.testing.assert_close(shared, shared[..., :1, :].expand_as(shared))
    own = grow(network, M, layer).train()(inputs)
    assert (own[..., 0, :] - own[..., 1, :]).abs().max() > 0.01


def test_dropout_in_plain_heads_is_every_heads_own():
    torch.manual_seed(0)
    out = grow(MLP(4, 3, (8, 8), dropout=0.5), M, head=2).train()(rows())
    assert (out[:, 0] - out[:, 1]).abs().max() > 0.01
    shared = grow(MLP(4, 3, (8, 8), dropout=0.5), M).train()(rows())
    torch.testing.assert_close(shared, shared[:, :1].expand_as(shared))


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_the_body_is_computed_once(training):
    heads, seen = grow(Residual(dropout=0.5), M, "block").train(training), []
    heads._inner[0].seen = lambda features: seen.append(is_batchedtensor(features))
    assert heads(images()).shape == (6, M, 5)
    assert seen == [False]
    assert heads.norm.num_batches_tracked.tolist() == int(training)
    assert heads.block[1].num_batches_tracked.tolist() == [int(training)] * M


def test_weights_tied_to_the_body_come_loose():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.decode = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.decode.weight = self.embed.weight

        def forward(self, tokens):
            return self.decode(self.embed(tokens))

    network, tokens = Tied(), torch.tensor([1, 5])
    heads = grow(network, M)
    assert heads.embed.weight.shape == (7, 4)
    assert heads.decode.weight.shape == (M, 7, 4)
    torch.testing.assert_close(heads(tokens), torch.stack([network(tokens)] * M, -2))


def test_parametrised_layers_are_copied_whole():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)))
    heads, inputs = grow(network, M), rows()
    torch.testing.assert_close(heads(inputs), torch.stack([network(inputs)] * M, -2))
    assert heads.get_parameter("0.weight").shape == (8, 4)
    assert heads.get_parameter("2.bias").shape == (M, 3)


def test_threads_do_not_disturb_each_other():
    torch.manual_seed(0)
    heads, inputs, right = grown_apart(Residual().eval(), 3).eval(), images(), []
    with torch.no_grad():
        expected = heads(inputs)

    def ask():
        with torch.no_grad():
            for _ in range(20):
                right.append(torch.equal(heads(inputs), expected))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 60


@pytest.mark.parametrize(
    "case", ["mlp", "mlp, 2 layers", "mlp with units", "convnet", "residual", "transformer, tokens"]
)
def test_a_grown_network_can_be_exported(case):
    make, inputs_of, head = CASES[case]
    torch.manual_seed(0)
    heads, inputs = grown_apart(make().eval(), head).eval(), inputs_of()
    program = torch.export.export(heads, (inputs,))
    torch.testing.assert_close(program.module()(inputs), heads(inputs), rtol=1e-4, atol=1e-5)
    if case.startswith("mlp, 2"):
        used = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
        assert "aten.baddbmm.default" in used
        assert len([n for n in program.graph.nodes if n.op == "call_function"]) < 25


def test_settings_rebuild_the_network():
    torch.manual_seed(0)
    for network, inputs in ((MLP(4, 3, (8, 8), dropout=0.1), rows()), (ConvNet((1, 8, 8), 3), images())):
        heads = grown_apart(network, 2).eval()
        again = Heads(**heads.settings).eval()
        again.load_state_dict(heads.state_dict())
        assert torch.equal(again(inputs), heads(inputs))
    assert not hasattr(grow(Residual(), M), "settings")
