"""The Hydra paper's recipes, end to end on real data at a tiny scale: resumable, with every column filled."""

import json
from pathlib import Path

import pytest

from solera.recipes import hydra_mnist, hydra_mnist_page
from solera.recipes.base import Workspace, settings_of
from solera.recipes.hydra_mnist import HydraMnist
from solera.recipes.uci import Uci

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not there")


def run(recipe, folder):
    return recipe.run(Workspace(folder, settings_of(recipe)))


@pytest.mark.data
@needs_data
def test_uci(tmp_path):
    recipe = Uci(data=str(DATA), sets=("yacht",), splits=2, members=3, steps=40)
    page = run(recipe, tmp_path)
    (row,) = [line for line in page.splitlines() if line.startswith("| yacht") and "-0.164" in line]
    assert row.count("±") == 5  # one member, ensemble and three students, over two splits
    assert "| set | Hydra's below EnD's | the ensemble's below Hydra's |" in page
    found = json.loads((tmp_path / "yacht-0.json").read_text())
    assert found["ensemble"]["ρ knowledge"] == pytest.approx(1)
    (tmp_path / "yacht-1.json").unlink()
    assert run(recipe, tmp_path) == page  # the first split is remembered, the second comes out the same
    assert (tmp_path / "uci.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.data
@needs_data
def test_hydra_mnist(tmp_path, monkeypatch):
    for module in (hydra_mnist, hydra_mnist_page):
        monkeypatch.setattr(module, "ANGLES", (0, 90))
        monkeypatch.setattr(module, "PIXELS", (0, 8))
    whole = hydra_mnist.load_npz
    monkeypatch.setattr(hydra_mnist, "load_npz", lambda *where: {key: a[:400] for key, a in whole(*where).items()})
    recipe = HydraMnist(data=str(DATA), members=2, images=300, epochs=1, student_epochs=1, repeats=1)
    page = run(recipe, tmp_path)
    assert "| Hydra | " in page
    assert "199,210" in page
    assert (tmp_path / "hydra-mnist.png").read_bytes().startswith(b"\x89PNG")
    assert run(recipe, tmp_path) == page


def test_whether_hydra_is_nearer_is_judged_student_by_student():
    def student(gap, rho):
        kinds = ["MNIST", "Fashion", *(f"{angle}°" for angle in hydra_mnist_page.ANGLES)]
        kinds += [f"{pixels} pixels" for pixels in hydra_mnist_page.PIXELS]
        return {kind: {"gap": gap, "ρ": rho} for kind in kinds}

    found = {"EnD²": [student(gap, 0.5) for gap in (0.3, 0.5, 0.4)]}
    found["Hydra"] = [student(gap, rho) for gap, rho in ((0.2, 0.93), (0.4, 0.89), (0.3, 0.91))]
    (row,) = hydra_mnist_page.claims(found).splitlines()[2:]
    name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    assert name == "Hydra"
    assert cells[:4] == ["**Held** +0.1000 (+0.1000 to +0.1000)"] * 4
    assert cells[4].startswith("**Held by the mean, not surely** +0.910 (+0.860 to +0.960)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uci(sets=("iris",)), "there is no UCI set 'iris': choose among boston"),
        (lambda: Uci(splits=0), "splits must be positive"),
        (lambda: HydraMnist(images=-1), "images must be 0"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
