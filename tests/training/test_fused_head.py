"""Training with the head inside the loss: the same student, and a clear no where the numbers would differ."""

import pytest
import torch
from torch import nn

from solera import EnD, ProxyDirichlet, Training, distill
from solera.data import Batch, Batches
from solera.distributions import Categorical, Mixture
from solera.methods import EnD2, fused_head
from solera.nn import MLP, Translator
from solera.nn.last_layer import call_unfinished, last_linear
from solera.tasks import Classification
from solera.training import head as module
from tests.helpers import small_batches, small_ensemble


def network():
    torch.manual_seed(0)
    return MLP(4, 3, (8,))


def small_targets(*shape):
    return Mixture(Categorical(torch.randn(*shape[:-1], 3, shape[-1])))


def weights(student):
    return torch.cat([p.detach().flatten() for p in student.model.parameters()])


@pytest.mark.parametrize("method", [EnD(), ProxyDirichlet()])
@pytest.mark.parametrize("labels", [0.0, 0.25])
def test_the_student_is_the_same_to_rounding(method, labels, monkeypatch):
    used = []
    real = module.fused_loss
    monkeypatch.setattr("solera.training.lesson.fused_loss", lambda *a: used.append(1) or real(*a))
    settings = {"epochs": 2, "label_weight": labels, "label_smoothing": 0.1 if labels else 0.0}
    students = [
        distill(small_ensemble(), network(), small_batches(), method, Training(fused_head=fused, **settings))
        for fused in (False, True)
    ]
    assert used
    torch.testing.assert_close(weights(students[1]), weights(students[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:precision='bf16-mixed' is about ten times slower")
@pytest.mark.parametrize("method", [EnD(), ProxyDirichlet()])
def test_in_mixed_precision_products_are_taken_in_bfloat16(method, monkeypatch):
    used = []
    real = module.fused_head
    monkeypatch.setattr(module, "fused_head", lambda *a, **k: used.append(k["product_dtype"]) or real(*a, **k))
    batches = small_batches()
    students = [
        distill(small_ensemble(), network(), batches, method, Training(epochs=2, precision="bf16-mixed", fused_head=f),
                validation=batches)
        for f in (False, True)
    ]  # fmt: skip
    assert set(used) == {torch.bfloat16, None}, "held-out examples are asked in float32"
    first = torch.cat([p.detach().flatten() for p in network().parameters()])
    whole, fused = (weights(student) for student in students)
    assert 0 < (fused - whole).norm() < 0.05 * (whole - first).norm()


def test_auto_takes_it_where_logits_are_many_and_only_there(monkeypatch):
    def chosen(method=None, network_=None, **settings):
        (batch,) = Batches(torch.randn(6, 4), torch.arange(6) % 3, batch_size=6)
        task, teacher = Classification(), small_ensemble()
        return module.head_to_fuse(
            network_ or network(), method or EnD(), task, teacher, batch, Training(epochs=1, **settings)
        )

    assert chosen() is None
    monkeypatch.setattr(module, "MANY", 18)  # 6 rows of 3 classes
    assert isinstance(chosen(), nn.Linear)
    assert isinstance(chosen(label_weight=0.5), nn.Linear)
    assert chosen(fused_head=False) is None
    assert chosen(EnD2()) is None
    assert chosen(network_=nn.Sequential(network(), nn.Tanh())) is None
    assert isinstance(chosen(precision="bf16-mixed"), nn.Linear)
    assert chosen(precision="16-mixed") is None
    assert chosen(ProxyDirichlet(as_published=True), label_weight=0.5) is None
    assert isinstance(chosen(ProxyDirichlet(as_published=True)), nn.Linear)
    crf = network()
    crf.label_loss = lambda batch: None
    assert chosen(network_=crf, label_weight=0.5) is None
    monkeypatch.setattr(module, "MANY", 19)
    assert chosen() is None


def test_what_is_asked_for_and_impossible_is_refused():
    with pytest.raises(ValueError, match="fused_head=True, but EnD2 has no kernel: pass fused_head='auto' or False"):
        distill(small_ensemble(), network(), small_batches(), EnD2(), Training(epochs=1, fused_head=True))


def test_a_task_whose_labels_are_not_one_class_says_so():
    class Ranked(Classification):
        one_class = False

    training = Training(epochs=1, fused_head=True, label_weight=0.5)
    with pytest.raises(ValueError, match="the labels' part of the loss of EnD is not the softmax's"):
        distill(small_ensemble(), network(), small_batches(), EnD(), training, task=Ranked())


def test_a_tied_embedding_gets_both_gradients():
    torch.manual_seed(0)
    translator = Translator(23, 8, encoder=1, decoder=1, heads=2, dropout=0.0)
    ids = torch.randint(23, (2, 5))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": ids}
    layer, output = last_linear(translator, inputs)
    assert layer is translator.output
    found = call_unfinished(layer, translator, inputs)
    torch.testing.assert_close(layer(found.hidden), output)
    assert "forward" not in vars(layer)  # finished again
    targets = small_targets(2, 5, 23)
    batch = Batch(inputs, torch.arange(2), None, torch.tensor([[1.0] * 5, [1.0] * 3 + [0.0] * 2]))
    for method in (EnD(), ProxyDirichlet()):
        whole = method.loss(translator(inputs), targets)
        fused = fused_head(found.hidden, layer.weight, layer.bias, targets, method, importance=batch.weight)
        ours, theirs = (
            torch.autograd.grad(batch.average(loss), translator.embedding.weight, retain_graph=True)
            for loss in (fused, whole)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_head_of_a_causal_language_model_is_found():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=31, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    layer, output = last_linear(model, {"input_ids": torch.randint(31, (2, 5))})
    assert layer is model.lm_head
    assert output.shape == (2, 5, 31)
