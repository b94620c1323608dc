import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solera import Batch, Batches, Training
from solera.core.errors import MismatchError
from solera.core.seeds import generator
from solera.ensembles import bag_rows, fold_ids, train_bags, train_folds
from solera.ensembles.folds import saw_mask
from solera.nn import MLP
from solera.testing import check_teacher
from tests.helpers import small_batches

SHORT = Training(epochs=2, checkpoint_seconds=0.0)


def make():
    return MLP(4, 3, (8,))


@given(st.integers(2, 60), st.data(), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_folds_are_even_and_so_are_the_labels_in_them(examples, data, seed):
    folds = data.draw(st.integers(2, examples))
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=examples, max_size=examples)))
    for ids in (fold_ids(examples, folds, seed), fold_ids(examples, folds, seed, labels)):
        sizes = torch.bincount(ids, minlength=folds)
        assert sizes.sum() == examples
        assert sizes.max() - sizes.min() <= 1
    for label in labels.unique():
        counts = torch.bincount(ids[labels == label], minlength=folds)
        assert counts.max() - counts.min() <= 1
    assert torch.equal(ids, fold_ids(examples, folds, seed, labels))


def test_folds_are_random():
    """An example is as often in one fold as in another, and two examples share a fold as often as chance has it."""
    ids = torch.stack([fold_ids(10, 5, seed) for seed in range(2000)])
    for fold in range(5):
        share = (ids == fold).double().mean(0)
        assert (share - 0.2).abs().max() < 5 * (0.2 * 0.8 / 2000) ** 0.5
    together = (ids[:, 0] == ids[:, 1]).double().mean()
    assert abs(together - 1 / 9) < 5 * (1 / 9 * 8 / 9 / 2000) ** 0.5


def test_a_row_is_in_a_bag_as_often_as_the_bootstrap_says():
    """Counts are binomial(N, 1/N): a share (1 − 1/N)^N of the rows is missing, and the variance is 1 − 1/N."""
    rows, saw = bag_rows(30, 4000, seed=1)
    counts = torch.stack([torch.bincount(r, minlength=30) for r in rows], -1)
    assert torch.equal(saw, counts > 0)
    assert (counts.sum(0) == 30).all()
    missing = (1 - 1 / 30) ** 30
    assert abs((~saw).double().mean() - missing) < 5 * (missing * (1 - missing) / saw.numel()) ** 0.5
    assert abs(counts.double().var() - (1 - 1 / 30)) < 0.03
    again, _ = bag_rows(30, 4000, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(again, rows, strict=True))
    assert not torch.equal(rows[0], bag_rows(30, 4000, seed=2)[0][0])


@given(st.integers(20, 300), st.integers(2, 12), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_every_row_is_out_of_some_bag(examples, members, seed):
    """Rows that were in every bag leave exactly one; the others stay where the bootstrap put them."""
    rows, saw = bag_rows(examples, members, seed)
    plain = [torch.randint(examples, (examples,), generator=generator(seed, "bag", m)) for m in range(members)]
    before = torch.stack([torch.bincount(r, minlength=examples) > 0 for r in plain], -1)
    assert [len(r) for r in rows] == [examples] * members
    assert torch.equal(saw, torch.stack([torch.bincount(r, minlength=examples) > 0 for r in rows], -1))
    assert torch.equal((before & ~saw).sum(1), before.all(1).long())
    assert not (saw & ~before).any()


def test_every_example_is_held_out_once_per_repeat():
    ensemble = train_folds(make, small_batches(), 4, SHORT, repeats=3)
    assert ensemble.members == 12
    assert ensemble.saw.shape == (50, 12)
    assert ((~ensemble.saw).view(50, 3, 4).sum(-1) == 1).all()
    held = (~ensemble.saw).view(50, 3, 4).double().argmax(-1)
    assert not torch.equal(held[:, 0], held[:, 1])
    check_teacher(ensemble, small_batches().all)


def test_members_are_trained_on_what_they_saw_and_nothing_else():
    """A held-out example with another input leaves the members that did not see it, and only those, as they are."""
    batches = small_batches()
    ensemble = train_folds(make, batches, 5, SHORT)
    inputs = batches.all.inputs.clone()
    inputs[7] += 1
    changed = train_folds(make, Batches(inputs, batches.all.target, batch_size=16), 5, SHORT)
    same = torch.tensor([a == b for a, b in zip(ensemble.fingerprints, changed.fingerprints, strict=True)])
    assert torch.equal(same, ~ensemble.saw[7])


def test_bags_know_what_they_saw():
    batches = small_batches()
    ensemble = train_bags(make, batches, 3, SHORT)
    _, saw = bag_rows(50, 3, SHORT.seed)
    assert torch.equal(ensemble.saw, saw)
    inputs = batches.all.inputs.clone()
    row = int((saw.sum(1) == 2).nonzero()[0])
    check_teacher(ensemble, batches.all)
    inputs[row] += 1
    changed = train_bags(make, Batches(inputs, batches.all.target, batch_size=16), 3, SHORT)
    same = torch.tensor([a == b for a, b in zip(ensemble.fingerprints, changed.fingerprints, strict=True)])
    assert torch.equal(same, ~saw[row])


def test_examples_keep_their_index():
    """Of a part of the data, the mask speaks about the examples by their index; the others nobody saw."""
    part, rest = small_batches().split(0.5)
    ensemble = train_folds(make, part, 2, SHORT)
    assert (ensemble.saw[part.all.index].sum(1) == 1).all()
    there = rest.all.index[rest.all.index < len(ensemble.saw)]
    assert not ensemble.saw[there].any()
    assert saw_mask(torch.tensor([5, 2]), [torch.tensor([0]), torch.tensor([0, 1, 1])]).nonzero().tolist() == [
        [2, 1],
        [5, 0],
        [5, 1],
    ]


def test_out_of_fold_answers_come_from_members_that_did_not_see_the_example():
    batches = small_batches()
    ensemble = train_folds(make, batches, 5, SHORT, repeats=2)
    answer = ensemble(batches.all).mean
    for row in (0, 13, 49):
        one = batches.all.take(slice(row, row + 1))
        new = [m for m, saw in zip(ensemble.models, ensemble.saw[row].tolist(), strict=True) if not saw]
        expected = torch.stack([m(one.inputs).softmax(-1) for m in new]).mean(0)
        torch.testing.assert_close(answer[row], expected[0])
    unknown = Batch(torch.randn(3, 4), torch.arange(1000, 1003))
    everyone = torch.stack([m(unknown.inputs).softmax(-1) for m in ensemble.models]).mean(0)
    torch.testing.assert_close(ensemble(unknown).mean, everyone)


@pytest.mark.parametrize("train", [train_folds, train_bags])
def test_resumed_members_are_the_same_bits(train, tmp_path):
    batches = small_batches()
    whole = train(make, batches, 3, SHORT, folder=tmp_path)
    assert whole.fingerprints == train(make, batches, 3, SHORT).fingerprints
    (tmp_path / "member-1" / "checkpoint.safetensors").unlink()
    times = [(tmp_path / f"member-{m}" / "checkpoint.safetensors").stat().st_mtime_ns for m in (0, 2)]
    assert train(make, batches, 3, SHORT, folder=tmp_path).fingerprints == whole.fingerprints
    assert times == [(tmp_path / f"member-{m}" / "checkpoint.safetensors").stat().st_mtime_ns for m in (0, 2)]


def test_other_folds_or_data_in_the_same_folder_are_refused(tmp_path):
    """Otherwise the mask would not tell what the members saw."""
    train_folds(make, small_batches(), 3, SHORT, folder=tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        train_folds(make, small_batches(), 4, SHORT, folder=tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        train_folds(make, small_batches(seed=1), 3, SHORT, folder=tmp_path)


def test_impossible_folds_and_bags_are_refused():
    for folds in (1, 51):
        with pytest.raises(ValueError, match=f"between 2 and the number of examples, 50, got {folds}"):
            train_folds(make, small_batches(), folds)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        train_folds(make, small_batches(), repeats=0)
    with pytest.raises(ValueError, match="at least one example and one member, got 50 and 0"):
        train_bags(make, small_batches(), 0)
    with pytest.raises(ValueError, match="3 labels for 10 examples"):
        fold_ids(10, 2, labels=torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="labels must lie between 0 and 2"):
        train_folds(make, small_batches(classes=5))
