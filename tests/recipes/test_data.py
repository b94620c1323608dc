"""The readers of the recipes' data, and what happens when it is not there."""

from pathlib import Path

import numpy as np
import pytest
import torch

from solera.recipes.base import Workspace, settings_of
from solera.recipes.data import blends, load_colour, rotated
from solera.recipes.mnist import Mnist
from solera.recipes.tabular import Tabular, load

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")


@pytest.mark.parametrize("recipe", [Mnist(data="nowhere"), Tabular(data="nowhere")], ids=lambda r: type(r).__name__)
def test_missing_data_is_named_before_any_work(tmp_path, recipe):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/\S+: pass the folder .* --data"):
        recipe.run(Workspace(tmp_path, settings_of(recipe)))


def test_a_quarter_turn_is_a_quarter_turn():
    images = torch.rand(3, 1, 9, 9)
    torch.testing.assert_close(rotated(images, 90), torch.rot90(images, 1, (2, 3)), rtol=0, atol=1e-5)
    torch.testing.assert_close(rotated(images, 0), images, rtol=0, atol=1e-6)


def test_blends_lie_between_two_images():
    images = torch.rand(20, 1, 4, 4)
    mixed = blends(images, 50, seed=0)
    assert mixed.shape == (50, 1, 4, 4)
    assert mixed.min() >= images.min()
    assert mixed.max() <= images.max()
    assert torch.equal(mixed, blends(images, 50, seed=0))


@pytest.mark.data
@needs_data
def test_colour_images_are_pictures():
    """Neighbouring pixels of photographs are alike; wrongly decoded planes are noise."""
    images, labels = load_colour(str(DATA), "images/mnist_m_test2k.npz")
    assert images.shape == (2000, 32, 32, 3)
    assert set(labels.tolist()) == set(range(10))
    steps = np.abs(np.diff(images.astype(int), axis=2)).mean()
    assert 2 < steps < 40


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "rows", "classes"), [("satellite", 4435, 6), ("letter", 16000, 26), ("adult", 32561, 2)]
)
def test_tables_have_the_published_sizes(name, rows, classes):
    x, y, x_test, y_test = load(str(DATA), name)
    assert len(x) == len(y) == rows
    assert x.shape[1] == x_test.shape[1]
    assert len(y.unique()) == len(y_test.unique()) == classes
    if name == "adult":
        assert int(y.sum()) == 7841
        assert int(y_test.sum()) == 3846
