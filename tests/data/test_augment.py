"""Named views: seeded, alike in any batch, and what their equations say."""

import pytest
import torch

from solera import Batches
from solera.core.seeds import generator
from solera.data import UNLABELLED, Augmented, Views, default_views
from solera.data.augment import (
    Blend,
    Crop,
    Flip,
    Gibbs,
    InTurn,
    Jitter,
    Munge,
    Noise,
    OneOf,
    Plain,
    Resample,
    Shift,
)
from solera.data.auto_views import MOST_ROWS
from solera.data.draws import Fresh, Keyed

TABLE = torch.randn(40, 5, generator=generator(0)) * torch.tensor([1.0, 10.0, 0.1, 1.0, 0.0])
IMAGES = torch.rand(30, 2, 9, 7, generator=generator(1)) + 1
ROWS = [Plain(), Resample(TABLE), Munge(TABLE), Gibbs(TABLE), Jitter(TABLE), Blend(TABLE), Noise()]
ROWS += [InTurn(Resample(TABLE), Jitter(TABLE)), OneOf(*ROWS)]
PICTURES = [Shift(), Crop(), Flip(), Blend(IMAGES), Noise(), InTurn(Flip(), Shift(1), Noise())]
EVERY = [(view, TABLE) for view in ROWS] + [(view, IMAGES) for view in PICTURES]


def name(value):
    return type(value).__name__


@pytest.mark.parametrize(("view", "inputs"), EVERY, ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_generator_alone_decides_and_shape_and_precision_stay(view, inputs, dtype):
    inputs = inputs.to(dtype)
    before = inputs.clone()
    torch.manual_seed(1)
    first, again, other = (view(inputs, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == isinstance(view, Plain)
    assert first.shape == inputs.shape
    assert first.dtype == dtype
    assert torch.equal(inputs, before)


@pytest.mark.parametrize(("view", "inputs"), EVERY, ids=name)
def test_a_seeded_view_is_the_same_bits_in_any_batch_and_epochs_go_round(view, inputs):
    whole, parts = (Views(Batches(inputs, batch_size=size), view, views=3, seed=5) for size in (64, 7))
    seen = {int(i): x for b in whole for i, x in zip(b.index, b.inputs, strict=True)}
    assert len(seen) == 3 * len(inputs)
    for epoch in range(3):
        for batch in parts.shuffled(2, epoch):
            for i, x in zip(batch.index, batch.inputs, strict=True):
                assert torch.equal(x, seen[int(i)])
    if not isinstance(view, (Plain, Flip)):
        moved = torch.stack([seen[i] - inputs[i // 3] for i in sorted(seen)])
        changed = moved[moved.flatten(1).abs().sum(1) > 0]
        assert len(changed.unique(dim=0)) > 0.2 * len(changed)  # by random numbers of its own
    assert Views(Batches(inputs), view, 3, seed=6).fingerprint() != whole.fingerprint()


def test_each_epoch_shows_another_view_and_labels_stay():
    target = torch.arange(len(TABLE))
    seen = Augmented(Batches(TABLE, target, batch_size=16), Jitter(TABLE), seed=1)
    epochs = []
    for epoch in range(2):
        batches = list(seen.shuffled(3, epoch))
        index = torch.cat([b.index for b in batches])
        assert torch.equal(torch.cat([b.target for b in batches]), index)
        epochs.append(torch.cat([b.inputs for b in batches])[index.argsort()])
    assert (epochs[0] != epochs[1]).any(-1).all()
    for batch in Views(Batches(TABLE, target, batch_size=16), Jitter(TABLE), views=2):
        assert torch.equal(batch.target, batch.index // 2)


@pytest.mark.parametrize("target", [torch.arange(40), torch.rand(40), torch.rand(40, 2)], ids=["class", "y", "two"])
@pytest.mark.parametrize("view", [Resample(TABLE), Blend(TABLE), OneOf(Plain(), Blend(TABLE))], ids=name)
def test_a_row_that_is_no_longer_of_its_class_has_no_label(view, target):
    plain = Batches(TABLE, target, batch_size=16)
    for seen, per in ((Augmented(plain, view), 1), (Views(plain, view, 2), 2)):
        for batch in seen.shuffled(0):
            mine = batch.index // per
            changed = (batch.inputs != TABLE[mine]).any(-1)
            assert torch.equal(batch.target[~changed], target[mine][~changed])
            lost = batch.target[changed]
            assert (lost.isnan() if lost.is_floating_point() else lost == UNLABELLED).all()


@pytest.mark.parametrize("draws", [Fresh(generator(3)), Keyed(3, torch.arange(2000))], ids=name)
def test_random_numbers_are_uniform_normal_and_independent(draws):
    scipy = pytest.importorskip("scipy.stats")
    for distribution, numbers in (("uniform", draws.uniform(2000, 3)), ("norm", draws.normal(2000, 3))):
        assert scipy.kstest(numbers.flatten().double(), distribution).pvalue > 1e-3
        assert (torch.corrcoef(numbers.T.double()) - torch.eye(3)).abs().max() < 0.1  # numbers of one example
        assert abs(float(torch.corrcoef(torch.stack([numbers[1:, 0], numbers[:-1, 0]]).double())[0, 1])) < 0.1
    counts = draws.below(10, 2000, 3).flatten().bincount(minlength=10)
    assert len(counts) == 10
    assert scipy.chisquare(counts).pvalue > 1e-3


def test_resampled_features_come_from_their_own_column_with_that_probability():
    inputs = torch.full((4000, 5), 99.0)
    table = torch.arange(40.0)[:, None] + 100 * torch.arange(1.0, 6)
    seen = Resample(table, 0.3)(inputs, generator(0))
    taken = seen != 99
    torch.testing.assert_close(taken.float().mean(0), torch.full((5,), 0.3), atol=0.03, rtol=0)
    column = torch.arange(1, 6).expand_as(seen)
    assert torch.equal((seen // 100).long()[taken], column[taken])
    both = seen[taken.all(-1)] % 100
    assert (both[:, 0] != both[:, 1]).float().mean() > 0.7  # each from a row of its own
    assert len((seen[taken] % 100).unique()) == 40


def test_munged_features_come_near_those_of_the_nearest_other_row():
    table = torch.tensor([[0.0, 0.0, 7.0], [1.0, 100.0, 7.0], [10.0, 0.0, 7.0], [11.0, 300.0, 7.0]])
    row = table[:1].expand(20_000, 3)  # in standard deviations (5, 122), row 1 is nearer than row 2
    seen = Munge(table, share=0.5, sharpness=2.0)(row, torch.Generator().manual_seed(0))
    changed = seen[:, 0] != 0
    assert abs(changed.double().mean() - 0.5) < 0.02
    for feature, centre in ((0, 1.0), (1, 100.0)):
        moved = seen[:, feature][seen[:, feature] != 0].double()
        assert abs(moved.mean() / centre - 1) < 0.02
        assert abs(moved.std() / (centre / 2) - 1) < 0.02
    assert (seen[:, 2] == 7).all()


def test_a_gibbs_step_draws_a_feature_from_where_the_others_are_alike():
    random = torch.Generator().manual_seed(0)
    first = torch.rand(2000, 1, generator=random) * 10
    table = torch.cat([first, 100 * first.floor() + torch.rand(2000, 1, generator=random)], 1)  # one tells the other
    row = torch.tensor([[3.5, 350.5]]).expand(4000, 2)
    seen = Gibbs(table, share=0.5, neighbours=20)(row, generator(0))
    taken = seen != row
    torch.testing.assert_close(taken.double().mean(0), torch.full((2,), 0.5, dtype=torch.float64), atol=0.03, rtol=0)
    own = [set(table[:, d].tolist()) for d in (0, 1)]
    assert all(value in own[d] for d in (0, 1) for value in seen[taken[:, d], d].tolist())
    alone = taken[:, 1] & ~taken[:, 0]  # the first stayed: the second is that of rows whose first is near
    nearest = (table[:, 0] - 3.5).abs().topk(20, largest=False).indices
    assert set(seen[alone, 1].tolist()) == set(table[nearest, 1].tolist())
    both = seen[taken.all(1)]
    assert ((both[:, 1] / 100).floor() - both[:, 0].floor()).abs().max() <= 1  # in turn: the second follows the first


def test_jitter_is_in_standard_deviations_and_a_constant_feature_stays():
    seen = Jitter(TABLE, 0.5)(torch.zeros(5000, 5), generator(0))
    torch.testing.assert_close(seen.std(0), 0.5 * TABLE.std(0, correction=0), rtol=0.05, atol=0)


def test_a_blend_lies_between_two_examples():
    inputs = torch.zeros(1000, 2)
    seen = Blend(torch.tensor([[1.0, 2.0]]))(inputs, generator(0))
    torch.testing.assert_close(seen[:, 1], 2 * seen[:, 0])
    assert 0 <= seen[:, 0].min() < 0.05
    assert 0.95 < seen[:, 0].max() <= 1
    assert float(seen[:, 0].mean()) == pytest.approx(0.5, abs=0.05)


def test_shift_brings_in_zeros_crop_repeats_edges_flip_turns_every_second_image():
    image = torch.arange(1.0, 10).reshape(1, 1, 3, 3).repeat(400, 1, 1, 1)
    padded = {Shift: "constant", Crop: "replicate"}
    for kind, mode in padded.items():
        wide = torch.nn.functional.pad(image[:1], (1, 1, 1, 1), mode=mode)
        wanted = {tuple(wide[0, 0, a : a + 3, b : b + 3].flatten().tolist()) for a in range(3) for b in range(3)}
        assert {tuple(x.flatten().tolist()) for x in kind(1)(image, generator(0))} == wanted
    turned = Flip()(image, generator(0))[:, 0, 0, 0] == 3
    assert float(turned.float().mean()) == pytest.approx(0.5, abs=0.1)


def test_one_of_takes_each_with_the_same_probability():
    view = OneOf(Plain(), Blend(torch.full((1, 1), 1.0)), Jitter(torch.tensor([[-1.0], [1.0]])))
    seen = view(torch.full((3000, 1), 5.0), generator(0))
    assert float((seen == 5).float().mean()) == pytest.approx(1 / 3, abs=0.03)
    assert float((seen < 4).float().mean()) == pytest.approx(1 / 4, abs=0.03)  # a third of them is blended, ¾ that far


@pytest.mark.parametrize("view", [*ROWS[1:5], OneOf(Noise()), Shift()], ids=name)
def test_token_ids_are_refused(view):
    with pytest.raises(ValueError, match=r"the inputs are torch.int64: token ids.*views=None"):
        view(torch.zeros(3, 5, dtype=torch.long), generator(0))


def test_what_cannot_be_viewed_is_said():
    with pytest.raises(ValueError, match=r"shape \(5,\), the inputs are \(4,\)"):
        Resample(TABLE)(torch.zeros(2, 4), generator(0))
    with pytest.raises(ValueError, match=r"Shift takes images.*\(2, 4\)"):
        Shift()(torch.zeros(2, 4), generator(0))
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1, got 1.5"):
        Resample(TABLE, 1.5)
    with pytest.raises(ValueError, match="pixels must be positive"):
        Crop(0)


def test_the_default_follows_the_kind_of_input():
    rows, images = default_views(TABLE), default_views(torch.rand(10, 3, 16, 16))
    assert rows is not None
    assert images is not None
    assert torch.equal(rows(TABLE, generator(0))[:, 4], TABLE[:, 4])
    assert images(torch.rand(4, 3, 16, 16), generator(0)).shape == (4, 3, 16, 16)
    for none in (torch.zeros(5, 7, dtype=torch.long), {"ids": TABLE}, (TABLE, TABLE), torch.zeros(3, 4, 5)):
        assert default_views(none) is None
    off = default_views(TABLE, continuous=True)(TABLE.repeat(100, 1), generator(0))
    beyond = (off > TABLE.amax(0)) | (off < TABLE.amin(0))
    assert 0.15 < beyond.any(1).float().mean() < 0.25  # every fifth row leaves the range
    many = default_views(torch.arange(10_000.0)[:, None])
    seen = many(torch.full((20_000, 1), -1.0), generator(0))
    assert 2 < len(seen.unique()) <= MOST_ROWS + 1
    assert seen.max() > 9_000  # the table is no first part of the rows


def test_the_random_numbers_themselves_are_new_in_every_epoch_and_step():
    """The order differs between epochs, so equal noise at equal places would still make other inputs."""
    plain = Batches(TABLE, batch_size=20)
    drawn = []
    for epoch in range(2):
        for batch in Augmented(plain, Noise(1.0)).shuffled(3, epoch):
            drawn.append(batch.inputs - TABLE[batch.index])
    for number, one in enumerate(drawn):
        assert all((one - other).abs().mean() > 0.5 for other in drawn[:number])
