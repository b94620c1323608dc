"""Augmentation and corruptions: shapes, range, seeds, severity, and what each is said to do."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from solera.core.seeds import generator
from solera.data import Batches, Views
from solera.recipes import names
from solera.recipes.corruptions import (
    CORRUPTIONS,
    FAMILIES,
    SEVERITIES,
    brightness,
    contact_sheet,
    contrast,
    corrupted,
    defocus_blur,
    gaussian_blur,
    gaussian_noise,
    jpeg,
    motion_blur,
    pixelate,
)
from solera.recipes.data import load_colour, rotated
from solera.recipes.images import augmented, flipped, shifted, turned

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
every_corruption = pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c.__name__)


def pictures(count: int = 6, channels: int = 3, height: int = 32, width: int = 32) -> torch.Tensor:
    """Blots with edges: smooth fields, some of them cut off."""
    torch.manual_seed(0)
    coarse = torch.rand(count, channels, 5, 5)
    smooth = functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    return torch.where(smooth.mean(1, keepdim=True) > 0.55, smooth, 0.5 * smooth)


def test_there_are_enough_of_every_family():
    assert len(CORRUPTIONS) >= 12
    assert set(FAMILIES) == {"noise", "blur", "weather", "digital"}
    assert all(len(family) >= 3 for family in FAMILIES.values())
    assert "images" not in names()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 33), (1, 64, 48), (3, 8, 8), (3, 5, 7)], ids=str)
@every_corruption
def test_corrupted_images_are_images(corruption, shape):
    images = pictures(4, *shape)
    before = images.clone()
    for severity in (1, 5):
        result = corrupted(images, corruption, severity)
        assert result.shape == images.shape
        assert result.dtype == images.dtype
        assert result.isfinite().all()
        assert result.min() >= 0
        assert result.max() <= 1
        assert not torch.equal(result, images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("value", [0.0, 1.0])
@every_corruption
def test_black_and_white_stay_in_the_range(corruption, value):
    result = corrupted(torch.full((2, 3, 16, 16), value), corruption, 5)
    assert result.isfinite().all()
    assert result.min() >= 0
    assert result.max() <= 1


@every_corruption
def test_the_seed_decides(corruption):
    images = pictures()
    first, again = (corrupted(images, corruption, 3, seed=1) for _ in range(2))
    assert torch.equal(first, again)
    torch.manual_seed(99)  # the global seed has no say
    assert torch.equal(first, corrupted(images, corruption, 3, seed=1))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 64, 64)], ids=str)
@every_corruption
def test_more_severe_is_further_away(corruption, shape):
    images = pictures(12, *shape)
    change = [(corrupted(images, corruption, severity) - images).abs().mean().item() for severity in SEVERITIES]
    assert all(a < b for a, b in pairwise(change)), change
    assert change[0] > 1e-4


@pytest.mark.data
@needs_data
@every_corruption
def test_more_severe_is_further_away_from_photographs(corruption):
    images, _ = load_colour(str(DATA), "images/cifar10_test.npz")
    x = torch.from_numpy(np.ascontiguousarray(images[:300])).movedim(-1, 1).float() / 255
    change = [(corrupted(x, corruption, severity) - x).abs().mean().item() for severity in SEVERITIES]
    assert all(a * 1.05 < b for a, b in pairwise(change)), change
    assert change[-1] < 0.35


def test_severities_and_images_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="severity must be 1, 2, 3, 4 or 5, got 0"):
        corrupted(pictures(), jpeg, 0)
    with pytest.raises(ValueError, match=r"take images in \[0, 1\]: divide bytes by 255"):
        corrupted(255 * pictures(), jpeg, 1)


def test_noise_has_its_size():
    noise = gaussian_noise(torch.full((20, 3, 32, 32), 0.5), 3, generator(0)) - 0.5
    assert noise.std().item() == pytest.approx(0.08, rel=0.02)


@pytest.mark.parametrize("blur", [gaussian_blur, defocus_blur, motion_blur])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_blur_spreads_a_point_and_keeps_its_light(blur, severity):
    point = torch.zeros(2, 3, 33, 33)
    point[..., 16, 16] = 1.0
    spread = blur(point, severity, generator(0))
    torch.testing.assert_close(spread.sum((-2, -1)), torch.ones(2, 3), rtol=0, atol=1e-5)
    assert (spread.amax((-2, -1)) < 1).all()
    torch.testing.assert_close(spread, spread.flip(-1, -2), rtol=0, atol=1e-5)  # about the point


@pytest.mark.parametrize("corruption", [gaussian_blur, defocus_blur, motion_blur, pixelate, contrast])
def test_an_even_image_stays_even(corruption):
    even = torch.full((2, 3, 17, 32), 0.3)
    torch.testing.assert_close(corruption(even, 5, generator(0)), even)


def test_brightness_adds():
    images = 0.5 * pictures()
    torch.testing.assert_close(brightness(images, 2, generator(0)), images + 0.12)


def test_jpeg_of_good_quality_is_the_image_nearly():
    """The transform and its inverse; and blocks are compressed by themselves."""
    images = pictures(2, 3, 24, 19)
    fine = jpeg(images, 1, generator(0))
    assert (fine - images).abs().mean() < 0.03
    part = jpeg(images[..., 8:16, 8:16], 3, generator(0))
    torch.testing.assert_close(jpeg(images, 3, generator(0))[..., 8:16, 8:16], part, rtol=0, atol=1e-5)


def test_jpeg_is_what_other_programs_make_of_it():
    """Pillow's own encoder at quality 25, without reduced colour planes."""
    image_module = pytest.importorskip("PIL.Image")
    import io

    pixels = (255 * pictures(1)[0].movedim(0, -1)).round().byte().numpy()
    file = io.BytesIO()
    image_module.fromarray(pixels).save(file, format="jpeg", quality=25, subsampling=0)
    theirs = torch.from_numpy(np.asarray(image_module.open(file)).copy()).movedim(-1, 0).float() / 255
    ours = corrupted(torch.from_numpy(pixels).movedim(-1, 0).unsqueeze(0).float() / 255, jpeg, 4)[0]
    assert (ours - theirs).abs().mean() < 0.004


def test_a_flip_exchanges_left_and_right_in_half_of_them():
    images = pictures(400, 1, 4, 4)
    result = flipped(images, generator(0))
    turned_over = (result == images.flip(-1)).flatten(1).all(1)
    same = (result == images).flatten(1).all(1)
    assert (turned_over | same).all()
    assert 150 < int((turned_over & ~same).sum()) < 250


def test_a_shift_moves_each_image_by_its_own_whole_pixels():
    images = torch.arange(1.0, 50 * 63 + 1).view(50, 1, 7, 9)
    result, seen = shifted(images, generator(0), pixels=2), set()
    for image, moved in zip(images[:, 0], result[:, 0], strict=True):
        padded = functional.pad(image, (2, 2, 2, 2))
        crops = {(i, j): padded[i : i + 7, j : j + 9] for i in range(5) for j in range(5)}
        (found,) = [place for place, crop in crops.items() if torch.equal(crop, moved)]
        seen.add(found)
    assert len(seen) > 15


def test_a_turn_is_a_turn():
    images = pictures(3, 3, 21, 21)
    torch.testing.assert_close(turned(images, generator(0), 0.0), images, rtol=0, atol=1e-5)
    draw = float(2 * torch.rand(1, generator=generator(5)) - 1)
    ours = turned(images[:1], generator(5), 30.0)
    torch.testing.assert_close(ours, rotated(images[:1], 30 * draw), rtol=0, atol=1e-5)


def test_a_turn_of_an_oblong_image_keeps_its_shape():
    """A square in a wide image stays a square: distances in pixels are kept."""
    images = torch.zeros(1, 1, 41, 81)
    images[..., 16:25, 36:45] = 1.0
    result = turned(images, generator(1), 80.0)
    assert result.sum().item() == pytest.approx(81, rel=0.02)


@pytest.mark.parametrize("augment", [flipped, shifted, turned, augmented])
def test_augmentation_is_seeded_and_stays_in_the_range(augment):
    images = pictures(8, 3, 20, 24)
    first, again, other = (augment(images, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == images.shape
    assert first.min() >= 0
    assert first.max() <= 1


def test_views_take_one_image_at_a_time():
    views = Views(Batches(pictures(5), batch_size=2), augmented, views=2)
    batch = next(iter(views))
    assert batch.inputs.shape == (2, 3, 32, 32)
    assert torch.equal(batch.inputs, next(iter(views)).inputs)


def test_the_contact_sheet_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    contact_sheet(pictures(2, 1, 12, 12), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
