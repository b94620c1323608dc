"""Batches, views and the one reduction."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera import Batch, Batches, capture
from solera.data import Augmented, Views
from tests.helpers import small_batches, small_ensemble


@given(examples=st.integers(1, 40), size=st.integers(1, 15), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_every_example_comes_once_an_epoch_and_the_seed_decides(examples, size, seed, epoch):
    batches = Batches(torch.arange(examples)[:, None].float(), batch_size=size)
    order = [torch.cat([b.index for b in batches.shuffled(seed, epoch)]) for _ in range(2)]
    assert torch.equal(*order)
    assert order[0].sort().values.tolist() == list(range(examples))
    assert len(list(batches)) == len(batches)
    for batch in batches.shuffled(seed, epoch):
        assert torch.equal(batch.inputs[:, 0].long(), batch.index)


def test_epochs_differ():
    batches = small_batches()
    first, second = (torch.cat([b.index for b in batches.shuffled(0, epoch)]) for epoch in (0, 1))
    assert not torch.equal(first, second)


def test_average_divides_by_the_weight_not_the_count_and_an_all_padding_batch_is_zero_not_nan():
    loss = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 2.0]])  # their sum, 3, is neither the count of tokens nor of those > 0
    index = torch.arange(2)
    assert Batch(index, index).average(loss).item() == 2.5
    assert Batch(index, index, weight=weight).average(loss).item() == 3.0
    assert Batch(index, index, weight=0 * weight).average(loss).item() == 0.0


def test_nested_inputs_are_dealt_together():
    inputs = {"ids": torch.arange(10)[:, None], "more": (torch.arange(10) * 2,)}
    batch = next(iter(Batches(inputs, batch_size=4).shuffled(3)))
    assert torch.equal(batch.inputs["ids"][:, 0], batch.index)
    assert torch.equal(batch.inputs["more"][0], 2 * batch.index)


def jitter(x, draw):
    return x + torch.randn(x.shape, generator=draw)


def test_views_are_always_the_same_and_remembered_targets_match_them(tmp_path):
    batches = small_batches(examples=20, batch_size=6)
    views = Views(batches, jitter, views=3, seed=1)
    remembered = capture(small_ensemble(), views, tmp_path, codec="dense")
    assert len(remembered) == 60
    seen = set()
    for epoch in range(3):
        for batch in views.shuffled(9, epoch):
            remembered.check(batch)  # fingerprints of the very inputs: any difference would raise
            seen.update(batch.index.tolist())
    assert seen == set(range(60))


def test_views_do_not_depend_on_the_batch():
    whole, parts = (Views(small_batches(batch_size=size), jitter, views=2) for size in (50, 7))
    inputs = [torch.cat([b.inputs for b in v]) for v in (whole, parts)]
    index = [torch.cat([b.index for b in v]) for v in (whole, parts)]
    assert torch.equal(inputs[0][index[0].argsort()], inputs[1][index[1].argsort()])
    with pytest.raises(ValueError, match="at least one view"):
        Views(small_batches(), jitter, views=0)


def test_augmented_batches_are_fresh_in_every_epoch_and_the_same_again():
    plain = small_batches(batch_size=7)
    seen = Augmented(plain, jitter, seed=1)
    epochs = [torch.cat([batch.inputs for batch in seen.shuffled(3, epoch)]) for epoch in (0, 1, 0)]
    order = torch.cat([batch.index for batch in seen.shuffled(3, 0)])
    torch.testing.assert_close(epochs[0], epochs[2], rtol=0, atol=0)
    orders = [order, torch.cat([batch.index for batch in seen.shuffled(3, 1)])]
    first, second = (epoch - plain.all.inputs[rows] for epoch, rows in zip(epochs[:2], orders, strict=True))
    # the same random numbers for the same step of every epoch would hide behind the other order of examples
    assert (first - second).abs().median() > 0.1
    assert (first[orders[0].argsort()] - second[orders[1].argsort()]).abs().median() > 0.1
    moved = first
    assert len(moved.flatten().unique()) > 0.9 * moved.numel()  # every example by random numbers of its own
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(seen, plain, strict=True))  # in order: as they are
