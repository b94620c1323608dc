"""Many classes: which image is of which class and side, the verdicts, and a tiny run, stopped and gone on with."""

import json
from pathlib import Path

import pytest
import torch

from solera.data import train_bpe
from solera.data.pairs import read_lines
from solera.recipes import find, many_classes, names, next_token
from solera.recipes.base import Workspace, settings_of
from solera.recipes.data import grey, load_npz
from solera.recipes.many_classes import METHODS, ManyClasses, load
from solera.recipes.many_classes_page import CLAIMS, PUBLISHED, answer, claims

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
TINY = {"classes": (6, 10), "members": 2, "epochs": 1, "steps": 1, "tokens": 300, "places": 500, "resamples": 10}


@pytest.fixture
def _few_captions(monkeypatch):
    monkeypatch.setattr(next_token, "read_lines", lambda file: read_lines(file)[:300])


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(("classes", "others"), [(60, True), (242, True), (968, False)])
def test_every_class_has_its_images_and_no_drawing_is_on_both_sides(classes, others):
    found = load(DATA, classes)
    for (images, labels), each in ((found.train, 16), (found.test, 4)):
        assert images.shape == (each * classes, 1, 28, 28)
        assert (labels.bincount(minlength=classes) == each).all()
    assert (found.other is not None) == others
    upright = {
        side: images[labels % 4 == 0].flatten(1)
        for side, (images, labels) in (("train", found.train), ("test", found.test))
    }
    assert torch.cdist(upright["test"][:100], upright["train"]).min() > 0


@pytest.mark.data
@needs_data
def test_a_class_is_a_character_and_a_rotation():
    arrays, (images, labels) = load_npz(str(DATA), "images/omniglot_28x28.npz"), load(DATA, 12).train
    first = grey(arrays["x"][arrays["character"] == 2][:16])
    for turn in range(4):
        torch.testing.assert_close(images[labels == 8 + turn], first.rot90(turn, (-2, -1)))


@pytest.mark.data
@needs_data
def test_more_classes_than_there_are():
    with pytest.raises(ValueError, match="242 characters in 4 rotations are 968 classes, not 1000"):
        load(DATA, 1000)


def made_up(**gaps):
    pairs = {f"{one} − {other}" for (one, other), *_ in CLAIMS.values()}
    return {"60 classes": {"gaps": {pair: {k: [v - 0.01, v, v + 0.02] for k, v in gaps.items()} for pair in pairs}}}


def test_claims_follow_the_sign_of_what_is_better():
    better = claims(made_up(accuracy=0.1, NLL=-0.1, **{"OOD Fashion knowledge": 0.1})).splitlines()[2:]
    assert [line.split("|")[2].strip().split("**")[-2:][0] for line in better] == [
        "Held", "Not held", "Held", "Held", "Held", "Held", "–", "Held", "Held", "–", "–"
    ]  # fmt: skip
    worse = claims(made_up(accuracy=-0.1, NLL=0.1, **{"OOD Fashion knowledge": -0.1})).splitlines()[2:]
    assert [line.split("|")[2].strip().split("**")[-2:][0] for line in worse] == [
        "Not held", "Held", "Not held", "Not held", "Not held", "Not held", "–", "Not held", "Not held", "–", "–"
    ]  # fmt: skip
    assert "+10.0 (+8.0 to +11.0)" in worse[1], "the ends of an interval change places with its sign"


def test_where_the_likelihood_fails_is_told_from_where_it_does_not():
    def one(low, high):
        rows = {name: {"accuracy": 0.6, "NLL": 1.5} for name in ("single", "ensemble", "EnD", "EnD²", "Proxy")}
        return {"rows": rows, "gaps": {"EnD² − EnD": {"accuracy": [low, (low + high) / 2, high]}}}

    found = {"60 classes": one(-0.3, -0.06), "242 classes": one(-0.3, -0.04)}
    assert answer(found).endswith("EnD² is surely over 5 points behind EnD with 60 classes, but not with 242 classes.")
    assert "behind" not in answer({"242 classes": one(-0.3, -0.04)})


def test_the_answer_is_of_the_most_classes():
    few = {name: {"accuracy": 0.6, "NLL": 1.5} for name in ("single", "ensemble", "EnD", "EnD²", "Proxy")}
    most = few | {"Proxy": {"accuracy": 0.625, "NLL": 1.25}}
    seen = {name: {**row, "OOD Fashion knowledge": 0.8 if name == "ensemble" else 0.4} for name, row in most.items()}
    text = answer({"60 classes": {"rows": few}, "968 classes": {"rows": seen}, "4,000 tokens": {"rows": few}})
    assert text == (
        "With 968 classes the proxy is right on 62.5 %, with an NLL of 1.250 (a single network, the ensemble, EnD and "
        "EnD²: 60.0, 60.0, 60.0, 60.0 %; 1.500, 1.500, 1.500, 1.500). "
        "AUROC of unfamiliar inputs by knowledge, proxy / ensemble (50 is chance): Fashion 40.0 / 80.0 (968 classes)."
    )


@pytest.mark.data
@needs_data
@pytest.mark.usefixtures("_few_captions")
def test_end_to_end_stopped_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(many_classes, "UNFAMILIAR", 50)
    recipe = ManyClasses(data=str(DATA), **TINY)
    real = ManyClasses.characters

    def stops_at_the_second(self, classes):
        if classes == 10:
            raise KeyboardInterrupt
        return real(self, classes)

    monkeypatch.setattr(ManyClasses, "characters", stops_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        recipe.run(Workspace(tmp_path, settings_of(recipe)))
    finished = (tmp_path / "6.json").read_bytes()
    monkeypatch.setattr(ManyClasses, "characters", real)
    page = recipe.run(Workspace(tmp_path, settings_of(recipe)))
    assert (tmp_path / "6.json").read_bytes() == finished
    rows = json.loads((tmp_path / "10.json").read_text())["rows"]
    assert {"single", "ensemble", *METHODS, PUBLISHED} <= set(rows)
    assert rows["Proxy"]["accuracy"] == rows[PUBLISHED]["accuracy"]
    assert rows["Proxy"]["NLL"] != rows[PUBLISHED]["NLL"]
    assert f"| Proxy | {100 * rows['Proxy']['accuracy']:.1f} / {100 * rows['Proxy']['ECE']:.1f} | 77.1 / 1.6 |" in page
    assert (tmp_path / "many-classes.png").read_bytes().startswith(b"\x89PNG")
    assert "solera run many-classes classes=6,10 members=2 epochs=1 steps=1 tokens=300 places=500 resamples=10" in page
    rows = json.loads((tmp_path / "tokens.json").read_text())["rows"]
    assert {"single", "ensemble", "EnD", "EnD²", "Proxy", PUBLISHED} <= set(rows)
    assert rows["Proxy"]["OOD French knowledge"] is not None


@pytest.mark.data
@needs_data
def test_places_in_captions_are_told_from_the_tokens_before_them():
    lines = read_lines(DATA / "translation" / "multi30k.val.en.gz")[:50]
    tokenizer = train_bpe(lines, 300, lowercase=True)
    before, after = next_token.places(lines, tokenizer, 10**6, seed=0)
    sentences = [[tokenizer.start] * next_token.BEFORE + tokens for tokens in tokenizer.targets(lines)]
    assert len(after) == sum(len(tokens) for tokens in tokenizer.targets(lines))
    windows = {tuple(s[i : i + next_token.BEFORE + 1]) for s in sentences for i in range(len(s) - next_token.BEFORE)}
    assert {(*b, a) for b, a in zip(before.tolist(), after.tolist(), strict=True)} == windows
    assert not torch.equal(next_token.places(lines, tokenizer, 10**6, seed=1)[0], before)


@pytest.mark.data
@needs_data
@pytest.mark.usefixtures("_few_captions")
def test_shuffled_captions_have_the_same_tokens_in_another_order():
    found = next_token.load(str(DATA), 300, 500, seed=0)
    assert len(found.train[0]) == 500
    assert len(found.test[0]) == len(found.held[0]) == len(found.unfamiliar["French"]) == 100
    start = found.train[0].flatten().mode().values  # of all tokens it comes most often
    inside = found.test[0][(found.test[0] != start).all(-1)]
    assert 0 < len(inside) < 100
    torch.testing.assert_close(found.unfamiliar["shuffled"].sort(-1).values, inside.sort(-1).values)
    assert not torch.equal(found.unfamiliar["shuffled"], inside)


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/images/omniglot_28x28.npz: pass .* --data"):
        ManyClasses(data="nowhere").run(Workspace(tmp_path, {}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 0}, "members must be positive"),
        ({"classes": (1,)}, "classes must be numbers of at least 2"),
        ({"judged_on": "train"}, "judged_on must be 'test' or 'validation'"),
        ({"tokens": 5}, r"tokens must be 0 \(none\) or at least 300, got 5: 4000, say"),
    ],
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        ManyClasses(**settings)


def test_the_command_line_finds_it():
    assert find("many-classes") is ManyClasses
    assert "many-classes" in names()
    assert "many-classes-page" not in names()
