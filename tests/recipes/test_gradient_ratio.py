"""Figure 1 of the proxy paper: against the values in METHODS §4, against mpmath, and against the losses we ship."""

import mpmath as mp
import pytest
import torch

from solera.methods import end2_loss, end_loss
from solera.methods.proxy_dirichlet import dense_proxy_loss
from solera.recipes.base import Workspace, settings_of
from solera.recipes.gradient_ratio import (
    CRITERIA,
    EPSILON,
    SITUATIONS,
    TARGET_PRECISION,
    GradientRatio,
    gradient,
    gradient_ratio,
    number,
    situation,
    sparse,
)

# METHODS §4, at K = 10, 100, 1000, 10000, to the digits given there
CHECKED = {
    ("reverse KL", "initialisation"): ("1.46", "1.63", "1.63", "1.55"),
    ("reverse KL", "near convergence"): ("0.82", "0.41", "0.051", "0.0051"),
    ("reverse KL", "misclassified"): ("1.0", "2.6", "22", "206"),
    ("reverse KL, +1", "initialisation"): ("1.16", "1.28", "1.28", "1.25"),
    ("reverse KL, +1", "near convergence"): ("1.0", "2.5", "20", "218"),
    ("reverse KL, +1", "misclassified"): ("0.82", "0.44", "0.070", "0.0074"),
    **{("cross-entropy", where): ("0.9", "0.99", "0.999", "0.9999") for where in SITUATIONS},
}


@pytest.mark.parametrize(("name", "where"), CHECKED)
def test_the_checked_values(name, where):
    for classes, text in zip((10, 100, 1000, 10000), CHECKED[name, where], strict=True):
        half_a_digit = 0.5 * 10.0 ** -len(text.partition(".")[2])
        assert gradient_ratio(CRITERIA[name], where, classes) == pytest.approx(float(text), abs=1.01 * half_a_digit)


def referee(name, e, classes):
    """∂L/∂z_k by hand, in 40 digits, for the first class, one of the K − 2 in the middle, and the last."""
    plus = 1 if name.endswith("+1") else 0
    target = [1 - mp.mpf(EPSILON)] + [mp.mpf(EPSILON) / (classes - 1)] * 2
    a, b = [x + plus for x in e], [p * mp.mpf(TARGET_PRECISION) + plus for p in target]
    a0, b0, e0 = (v[0] + (classes - 2) * v[1] + v[2] for v in (a, b, e))
    rows = zip(e, a, b, target, strict=True)
    if name == "cross-entropy":
        return [x / e0 - p for x, _, _, p in rows]
    if name == "Dirichlet NLL":
        return [x * (mp.psi(0, x) - mp.psi(0, e0) - mp.log(p)) for x, _, _, p in rows]
    if name.startswith("forward"):
        return [x * (mp.psi(0, i) - mp.psi(0, a0) - mp.psi(0, j) + mp.psi(0, b0)) for x, i, j, _ in rows]
    return [x * ((i - j) * mp.psi(1, i) - (a0 - b0) * mp.psi(1, a0)) for x, i, j, _ in rows]


@pytest.mark.parametrize("where", SITUATIONS)
@pytest.mark.parametrize("name", CRITERIA)
def test_gradients_against_mpmath(name, where):
    classes = 1000
    e = situation(where, classes)
    found = gradient(CRITERIA[name], e)
    with mp.workdps(40):
        expected = [float(g) for g in referee(name, [mp.mpf(float(e[k])) for k in (0, 1, -1)], classes)]
    assert found[[0, 1, -1]].tolist() == pytest.approx(expected, rel=1e-8)


def shipped_gradient(loss, e):
    z = e.log().requires_grad_()
    return torch.autograd.grad(loss(z).sum(), z)[0]


@pytest.mark.parametrize("where", SITUATIONS)
def test_the_losses_we_ship_pull_alike(where):
    """EnD, EnD² and Proxy-Dirichlet have the gradients this page shows, up to a factor that ρ does not see."""
    classes = 100
    e, target = situation(where, classes), sparse(classes, EPSILON)
    precision = torch.tensor(TARGET_PRECISION, dtype=torch.float64)
    losses = {
        "cross-entropy": lambda z: end_loss(z, target.log().unsqueeze(0)),
        "Dirichlet NLL": lambda z: end2_loss(z, target.log().unsqueeze(0), smoothing=0.0),
        "reverse KL, +1": lambda z: TARGET_PRECISION * dense_proxy_loss(z, target, precision),
    }
    for name, loss in losses.items():
        torch.testing.assert_close(
            shipped_gradient(loss, e), gradient(CRITERIA[name], e), rtol=1e-7, atol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_page_has_the_numbers_and_the_figure(tmp_path):
    recipe = GradientRatio(classes=(2, 10, 1000))
    page = recipe.run(Workspace(tmp_path, settings_of(recipe)))
    assert "| reverse KL, +1 | 0.5063 | 1.005 | 20.27 |" in page
    assert "classes=(2, 10, 1000)" not in page
    assert "solera run gradient-ratio classes=2,10,1000" in page
    assert (tmp_path / "gradient-ratio.png").read_bytes().startswith(b"\x89PNG")
    assert recipe.run(Workspace(tmp_path, settings_of(recipe))) == page


def test_few_classes_show_no_trend(tmp_path):
    recipe = GradientRatio(classes=(2, 3))
    assert "1,000 classes or more" in recipe.run(Workspace(tmp_path, settings_of(recipe)))


@pytest.mark.parametrize("classes", [(), (1, 10), (100, 10), (10, 10)])
def test_bad_classes_are_refused(classes):
    with pytest.raises(ValueError, match="increasing numbers"):
        GradientRatio(classes=classes)


def test_numbers_as_people_write_them():
    assert [number(v) for v in (None, 0.9999, 218.46, 2500.2, 1.13e-4)] == ["–", "0.9999", "218.5", "2,500", "1.1e-4"]
