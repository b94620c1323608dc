"""Summaries: right over the full class axis, small, and read by the losses without their members."""

import numpy as np
import pytest
import torch

from solera import Batch, EnD, EnD2, ProxyDirichlet, capture
from solera.distributions import Categorical, Mixture, TopK, summarize, summarize_top
from solera.distributions.summary import largest
from solera.methods import end_loss, proxy_dirichlet_loss
from solera.methods.end import end_top_k_loss
from solera.teachers import DenseCodec, MeanCodec, TopKCodec
from solera.teachers.capture import forecast
from solera.testing import check_distribution
from tests.helpers import small_batches, small_ensemble

CODECS = [DenseCodec(), DenseCodec("float32"), MeanCodec(), MeanCodec("float32"), TopKCodec(5), TopKCodec(50)]


def mixture(*batch, members=4, classes=30, scale=3.0, seed=0):
    torch.manual_seed(seed)
    return Mixture(Categorical(scale * torch.randn(*batch, members, classes)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("scale", "classes"), [(0.5, 10), (3.0, 10), (15.0, 1000)])
def test_summaries_say_what_the_members_say(scale, classes, weighted):
    targets = mixture(7, 3, scale=scale, classes=classes)
    if weighted:
        weights = torch.rand(7, 3, 4)
        weights[..., 1] = 0
        targets = Mixture(targets.members, weights / weights.sum(-1, keepdim=True))
    summary = summarize(targets)
    torch.testing.assert_close(summary.mean, targets.mean, rtol=1e-4, atol=1e-7)
    top = summarize_top(targets, 6)
    torch.testing.assert_close(top.probs, targets.mean.topk(6, -1).values, rtol=1e-4, atol=1e-7)
    for name in ("total", "data", "knowledge", "rmi", "epkl"):
        torch.testing.assert_close(getattr(summary, name), getattr(targets, name), rtol=1e-4, atol=3e-6)
        assert torch.equal(getattr(top, name), getattr(summary, name))


@pytest.mark.parametrize("offset", [0.0, -80.0])
@pytest.mark.parametrize("classes", [10, 40_000])
def test_small_differences_between_members_are_measured_to_a_few_millionths(classes, offset):
    """Against the same in float64."""
    torch.manual_seed(0)
    logits = 2 * torch.randn(6, 1, classes) + 0.03 * torch.randn(6, 3, classes) + offset
    ours, exact = summarize(Mixture(Categorical(logits))), Mixture(Categorical(logits.double()))
    for name in ("total", "knowledge", "rmi"):
        torch.testing.assert_close(getattr(ours, name).double(), getattr(exact, name), rtol=0, atol=3e-6)
    torch.testing.assert_close(ours.mean.double(), exact.mean, rtol=1e-5, atol=0)


@pytest.mark.parametrize("classes", [10, 1000, 40_000])
@pytest.mark.parametrize("apart", [0.1, 0.01, 1e-3])
@pytest.mark.parametrize("weighted", [False, True])
def test_members_that_nearly_agree_are_told_apart_to_three_digits(classes, apart, weighted):
    """Against float64; beside rows of members that do not agree. RMI sets the proxy's precision: 10⁻⁷ nats count."""
    torch.manual_seed(0)
    spread = torch.tensor([apart, 1.0, apart, 2.0]).reshape(-1, 1, 1)
    sure = torch.tensor([5.0, 1.0, 1.0, 1.0]).reshape(-1, 1, 1)
    logits = 2 * sure * torch.randn(4, 1, classes) + spread * torch.randn(4, 3, classes)
    weights = torch.tensor([0.5, 0.0, 0.5]).expand(4, 3) if weighted else None
    ours = summarize(Mixture(Categorical(logits), weights))
    exact = Mixture(Categorical(logits.double()), None if weights is None else weights.double())
    for name in ("total", "data", "knowledge", "rmi"):
        torch.testing.assert_close(getattr(ours, name).double(), getattr(exact, name), rtol=5e-4, atol=0)


def test_whoever_is_heard_alone_knows_no_disagreement():
    logits = 3 * torch.randn(4, 3, 30)
    weights = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    ours = summarize(Mixture(Categorical(logits), weights))
    assert ((ours.rmi == 0) == torch.tensor([True, False, True, False])).all()
    assert ((ours.knowledge == 0) == torch.tensor([True, False, True, False])).all()


def test_rows_in_parts_join_without_a_seam(monkeypatch):
    """Some rows of them hold a −∞, and go the slower way."""
    from solera.distributions import summary as module

    targets = mixture(2, 5, classes=50)
    targets.members.logits[1, 2, :, 7] = -torch.inf
    targets.members.logits[0, 1, 0, 3] = -torch.inf
    for elements in (1, 3 * 4 * 50):
        monkeypatch.setattr(module, "_CHUNK", elements)
        top = summarize_top(targets, 5)
        for name in ("total", "knowledge", "rmi"):
            torch.testing.assert_close(getattr(top, name), getattr(targets, name), rtol=1e-4, atol=3e-6)
        torch.testing.assert_close(top.probs, targets.mean.topk(5, -1).values)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_class_that_a_member_rules_out_stays_ruled_out(dtype):
    """As the smallest number instead, it would have a huge RMI that is finite, and spoil a proxy in silence."""
    targets = mixture(2, classes=5)
    targets.members.logits[0, 1, 3] = -torch.inf
    codec = DenseCodec(dtype)
    kept = codec.decode(codec.encode(targets), 5)
    assert torch.equal(kept.rmi.isinf(), targets.rmi.isinf())
    assert targets.rmi.isinf().tolist() == [True, False]


@pytest.mark.parametrize("silent", [float("nan"), float("inf"), -float("inf")])
def test_a_member_of_weight_zero_is_not_read(silent):
    spoken = mixture(4, members=3)
    logits = torch.cat([torch.full((4, 1, 30), silent), spoken.members.logits], -2)
    weights = torch.cat([torch.zeros(4, 1), torch.full((4, 3), 1 / 3)], -1)
    ours = summarize(Mixture(Categorical(logits), weights))
    torch.testing.assert_close(ours.mean, spoken.mean)
    for name in ("total", "knowledge", "rmi"):
        torch.testing.assert_close(getattr(ours, name), getattr(spoken, name), rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_summarized_in_float32(dtype):
    logits = mixture(3, classes=2000).members.logits.to(dtype)
    ours, exact = summarize(Mixture(Categorical(logits))), Mixture(Categorical(logits.float()))
    torch.testing.assert_close(ours.total, exact.total, rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.rmi, exact.rmi, rtol=1e-5, atol=0)


@pytest.mark.parametrize("batch", [(), (0,), (2, 0), (1, 1)])
def test_summaries_of_any_batch_axes(batch):
    top = summarize_top(mixture(*batch, classes=700), 3)
    assert top.indices.shape == (*batch, 3)
    assert top.knowledge.shape == batch
    assert summarize(mixture(*batch)).mean.shape == (*batch, 30)


@pytest.mark.parametrize("keep", [1, 3, 64, 900])
@pytest.mark.parametrize("classes", [1, 64, 1000, 4097, 40_000])
def test_the_largest_are_those_of_topk(classes, keep):
    for values in (torch.rand(3, classes), torch.rand(3, classes).sort(-1, descending=True).values):
        found, columns = largest(values, keep)
        wanted = values.topk(min(keep, classes), -1)
        assert torch.equal(found, wanted.values)
        assert torch.equal(values.gather(-1, columns), found)
        assert all(len(set(row.tolist())) == len(row) for row in columns)
    tied = torch.zeros(2, classes)
    assert len(set(largest(tied, keep)[1][0].tolist())) == min(keep, classes)


def test_a_class_ruled_out_by_a_member_is_no_nan():
    logits = torch.zeros(2, 3, 5)
    logits[0, 1, 2] = -torch.inf
    summary = summarize(Mixture(Categorical(logits)))
    assert summary.total.isfinite().all()
    assert summary.knowledge.isfinite().all()
    assert summary.rmi.tolist() == [float("inf"), 0.0]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("batch", [(6,), (2, 3)], ids=str)
def test_every_codec_keeps_the_mean_and_the_measures(codec, batch):
    targets = mixture(*batch)
    kept = codec.decode({k: v.long() if v.dtype == torch.uint16 else v for k, v in codec.encode(targets).items()}, 30)
    check_distribution(kept)
    torch.testing.assert_close(kept.mean.sum(-1), torch.ones(batch))
    for name in ("total", "knowledge", "rmi"):
        torch.testing.assert_close(getattr(kept, name), getattr(targets, name), rtol=4e-3, atol=1e-3)
    if not isinstance(codec, TopKCodec) or codec.keep > 30:
        torch.testing.assert_close(kept.mean, targets.mean, rtol=0, atol=1e-3)


def test_top_k_keeps_the_likeliest_and_the_exact_tail():
    targets = mixture(5, classes=1000)
    codec = TopKCodec(20)
    kept = codec.decode({k: v.long() if v.dtype == torch.uint16 else v for k, v in codec.encode(targets).items()}, 1000)
    order = targets.mean.sort(-1, descending=True)
    assert torch.equal(kept.indices.sort(-1).values, order.indices[:, :20].sort(-1).values)
    torch.testing.assert_close(kept.tail, order.values[:, 20:].sum(-1), rtol=1e-5, atol=0)
    absent = torch.ones(5, 1000, dtype=torch.bool).scatter(-1, kept.indices, False)
    rest = kept.mean[absent].reshape(5, 980)
    torch.testing.assert_close(rest.sum(-1), kept.tail)
    assert torch.equal(rest, rest[:, :1].expand_as(rest))


@pytest.mark.parametrize("members", [2, 10, 50])
def test_top_k_takes_268_bytes_a_token_whatever_the_members(tmp_path, members):
    tokens, classes = 40, 40_000

    class Teacher:
        live, fingerprints = True, [str(m) for m in range(members)]

        def __init__(self):
            self.members = members

        def check(self, batch):
            pass

        def __call__(self, batch):
            return mixture(*batch.inputs.shape, members=members, classes=classes)

    batch = Batch(torch.ones(1, tokens), torch.arange(1), weight=torch.ones(1, tokens))
    remembered = capture(Teacher(), [batch], tmp_path, "top_k")
    size = sum(c.nbytes for c in remembered.shards[0].values())
    assert size == tokens * 268 + 24
    assert size / tokens <= 270


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_the_forecast_is_exact(tmp_path, codec):
    ensemble, batches = small_ensemble(), small_batches()
    first = next(iter(batches))
    need = forecast(batches, codec.encode(ensemble(first)), first)
    shards = capture(ensemble, batches, tmp_path, codec).shards
    assert need == sum(column.nbytes for shard in shards for column in shard.values())


def test_a_capture_that_cannot_fit_is_refused_before_it_starts(tmp_path, monkeypatch):
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    with pytest.raises(ValueError, match=r"takes [\d,]+ bytes, its disk has 100 free: make room"):
        capture(small_ensemble(), small_batches(), tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def sparse(targets: Mixture, keep: int) -> TopK:
    codec = TopKCodec(keep)
    encoded = {k: v.long() if v.dtype == torch.uint16 else v for k, v in codec.encode(targets).items()}
    return codec.decode(encoded, targets.members.logits.shape[-1])


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize(("classes", "keep"), [(10, 3), (1000, 20), (40_000, 64), (12, 12)])
def test_the_sparse_proxy_loss_is_the_dense_one_against_the_spread_mean(classes, keep, scale):
    """Value and gradient to 1e-6, in float32."""
    from solera.methods.proxy_dirichlet import dense_proxy_loss

    kept = sparse(mixture(6, classes=classes), keep)
    logits = scale * torch.randn(6, classes)
    results = []
    for loss in (ProxyDirichlet().loss, lambda z, t: dense_proxy_loss(z, t.mean, (classes - 1) / (2 * t.rmi))):
        z = logits.clone().requires_grad_()
        value = loss(z, kept)
        results.append((value.detach(), torch.autograd.grad(value.sum(), z)[0]))
    (value, gradient), (dense_value, dense_gradient) = results
    assert ((value - dense_value).abs() / dense_value.abs()).max() < 1e-6
    largest = dense_gradient.abs().amax(-1, keepdim=True)
    assert ((gradient - dense_gradient).abs() / largest).max() < 1e-6


def test_losses_from_full_summaries_equal_those_from_members():
    targets, z = mixture(8, classes=20), torch.randn(8, 20)
    for kept in (summarize(targets), sparse(targets, 20)):
        torch.testing.assert_close(EnD().loss(z, kept), end_loss(z, targets.members.logits), rtol=1e-3, atol=1e-4)
        proxy = proxy_dirichlet_loss(z, targets.members.logits)
        torch.testing.assert_close(ProxyDirichlet().loss(z, kept), proxy, rtol=1e-3, atol=1e-4)


def test_the_top_k_loss_of_end_is_a_kl():
    targets, z = mixture(8, classes=20), torch.randn(8, 20)
    kept = sparse(targets, 4)
    mean, q = kept.mean.double(), z.double().softmax(-1)
    grouped = []
    for probs in (mean, q):
        top = probs.gather(-1, kept.indices)
        grouped.append(torch.cat([top, 1 - top.sum(-1, keepdim=True)], -1).numpy())
    true = (grouped[0] * np.log(grouped[0] / grouped[1])).sum(-1)
    ours = end_top_k_loss(z, kept.indices, kept.probs, kept.tail)
    np.testing.assert_allclose(ours.numpy(), true, rtol=1e-5)
    same = kept.mean.log()
    torch.testing.assert_close(EnD().loss(same, kept), torch.zeros(8), rtol=0, atol=1e-6)
    dropped = EnD(tail="dropped").loss(z, kept)
    np.testing.assert_allclose(dropped.numpy(), -(grouped[0][:, :-1] * np.log(grouped[1][:, :-1])).sum(-1), rtol=1e-5)


@pytest.mark.parametrize(("classes", "keep"), [(10, 3), (12, 12), (1000, 20)])
@pytest.mark.parametrize("sure", [0.0, 30.0, 300.0])
def test_the_top_k_loss_of_end_and_its_gradient_against_float64(classes, keep, sure):
    """`sure`: how far the student puts the kept classes above all others; the mass of these must not vanish."""
    kept = sparse(mixture(6, classes=classes), keep)
    logits = 3 * torch.randn(6, classes)
    logits = logits.scatter_add(-1, kept.indices, torch.full((6, keep), sure))
    z, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    log_q = exact.log_softmax(-1)
    others = log_q.scatter(-1, kept.indices, -torch.inf).logsumexp(-1)
    probs, tail = kept.probs.double(), kept.tail.double()
    true = (torch.xlogy(probs, probs) - probs * log_q.gather(-1, kept.indices)).sum(-1) + torch.xlogy(tail, tail)
    true = true - torch.where(tail > 0, tail * others, 0.0)
    ours = end_top_k_loss(z, kept.indices, kept.probs, kept.tail)
    torch.testing.assert_close(ours.double(), true, rtol=1e-6, atol=1e-6)
    slopes = [torch.autograd.grad(loss.sum(), x)[0].double() for loss, x in ((ours, z), (true, exact))]
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", [EnD2(), EnD(temperature=2.0)], ids=str)
def test_a_method_that_needs_every_member_names_the_codec(method):
    with pytest.raises(ValueError, match="codec='dense'"):
        method.loss(torch.randn(3, 10), summarize(mixture(3, classes=10)), 1.0)
