"""The truncation study: what it calls a loss, and all of it at a tiny scale, stopped and gone on with."""

import re
from pathlib import Path

import pytest
from scipy import stats

from solera.recipes import find
from solera.recipes.base import Workspace, settings_of
from solera.recipes.truncation import KEPT, Truncation, as_good, codecs, gained

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


def rows(*accuracies, nll=1.0):
    return [{"accuracy": a, "NLL": nll + a / 10, "ECE": 0.1, "ρ knowledge": None} for a in accuracies]


def test_as_good_means_surely():
    """Against scipy's paired t-test; a mean that is good enough does not suffice."""
    scores = {
        "dense": {"EnD": rows(0.60, 0.62, 0.61)},
        "top-5": {"EnD": rows(0.601, 0.621, 0.610)},
        "top-3": {"EnD": rows(0.62, 0.59, 0.61)},  # the mean is hardly lower, but who knows
        "top-1": {"EnD": rows(0.50, 0.52, 0.51)},
    }
    assert [as_good(scores, memory, "EnD") for memory in scores] == [True, True, False, False]
    low, middle, high = gained(scores, "top-3", "EnD", "accuracy")
    wanted = stats.ttest_rel([0.62, 0.59, 0.61], [0.60, 0.62, 0.61]).confidence_interval()
    assert (low, high) == pytest.approx(tuple(wanted))
    assert middle == pytest.approx(-0.01 / 3)
    assert gained(scores, "top-1", "EnD", "NLL")[1] == pytest.approx(0.01 / 1.061, rel=1e-3)


def test_every_set_has_a_memory_that_keeps_all_classes():
    for name, kept in KEPT.items():
        assert f"top-{kept[-1]}" in codecs(name)
        assert kept[-1] == {"MNIST": 10, "CIFAR-100": 100}[name]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"repeats": 1}, "at least 2, got 1"), ({"sets": ("SVHN",)}, "among MNIST"), ({"epochs": (1,)}, "each of")],
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        Truncation(**settings)


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/\S+: pass the folder .* --data"):
        run(tmp_path, Truncation(data="nowhere"))


@pytest.mark.long
@pytest.mark.data
@needs_data
def test_end_to_end_stopped_and_gone_on_with(tmp_path, monkeypatch):
    import solera.recipes.truncation as module

    tiny = {"sets": ("CIFAR-100",), "members": 2, "epochs": (1,), "repeats": 2, "images": 256}
    monkeypatch.setitem(module.KEPT, "CIFAR-100", (5, 100))
    recipe = Truncation(data=str(DATA), **tiny)
    real, calls = module.distill, []

    def stops_at_the_fifth(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "distill", stops_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, recipe)
    page = run(tmp_path, recipe)
    students = 2 * 2 * len(codecs("CIFAR-100"))
    assert len(calls) == students + 1  # the one that was stopped, and no other, again
    assert run(tmp_path, recipe) == page
    assert len(calls) == students + 1
    assert (tmp_path / "truncation.png").read_bytes().startswith(b"\x89PNG")
    # the sizes that the codecs promise, 24 bytes of bookkeeping, and the files' headers
    for memory, promised in (("dense", 2 * 2 * 100), ("mean", 2 * 100 + 8), ("top-5", 4 * 5 + 12)):
        size = int(re.findall(rf"\| {memory} \| (\d+) \|", page)[-1])
        assert promised + 24 <= size <= promised + 28
    assert "Made by `solera run truncation sets=CIFAR-100 members=2 epochs=1 repeats=2 images=256" in page


def test_the_command_line_finds_it():
    assert find("truncation") is Truncation
