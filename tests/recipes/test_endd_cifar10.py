"""The EnD² study on CIFAR-10: its metrics against referees, and all of it on stand-in files, stopped half-way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import solera.recipes.endd_cifar10 as module
from solera.data.batch import UNLABELLED
from solera.distributions import Categorical, Mixture
from solera.evaluation import evaluate
from solera.evaluation.intervals import interval_of_inflated
from solera.recipes import find, names
from solera.recipes.base import Workspace, settings_of
from solera.recipes.endd_cifar10 import LAPTOP, SCALES, STUDENTS, EnddCifar10
from solera.recipes.endd_page import BINS, OTHERS, PAPER, facts, gap, of_kind, orderings, together, values
from solera.teachers import Labels
from solera.training import Student

TINY = replace(
    SCALES["laptop"],
    images=24,
    held=8,
    auxiliary=20,
    members=3,
    epochs=1,
    student_epochs=1,
    degrees=15.0,
    fewer=(2,),
    batch_size=32,
)


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


@pytest.fixture
def files(tmp_path):
    """Noise in the form of the data sets."""
    draw = np.random.default_rng(0)
    sizes = {"cifar10_train20k": 64, "cifar10_test": 50, "cifar100_train20k": 64, "cifar100_test5k": 50}
    sizes |= {"gtsrb_test2k_32x32": 45, "mnist_m_test2k": 45}
    (tmp_path / "data" / "images").mkdir(parents=True)
    for name, size in sizes.items():
        planes = draw.integers(0, 256, (3, size, 32, 32), dtype=np.uint8)
        np.savez(tmp_path / "data" / "images" / f"{name}.npz", planes=planes, y=draw.integers(0, 10, size))
    return str(tmp_path / "data")


def mixture(examples, members=3):
    return Mixture(Categorical(3 * torch.randn(examples, members, 10)))


def test_the_columns_of_the_three_tables():
    torch.manual_seed(0)
    said = {"test": mixture(60), **{name: mixture(40) for name in OTHERS}}
    labels = said["test"].mean.argmax(-1)
    labels[::3] = (labels[::3] + 1) % 10  # a third of the predictions are wrong
    single = {name: Categorical(p.members.logits[:, 0]) for name, p in said.items()}
    sets = {name: torch.zeros(40, 1) for name in OTHERS}
    models = {"ENSM": said, "IND #0": single, "EnD²": said}
    found = facts(evaluate(models, torch.zeros(60, 1), labels, unfamiliar=sets, reference="ENSM", resamples=5))
    row, wrong = found["rows"]["ENSM"], (torch.arange(60) % 3 == 0).numpy()
    doubt = -said["test"].mean.max(-1).values.numpy()
    assert row["AUPR confidence"] == pytest.approx(average_precision_score(wrong, doubt))
    assert row["AUPR knowledge"] == pytest.approx(average_precision_score(wrong, said["test"].knowledge.numpy()))
    for key in ("total", "knowledge"):
        scores = [torch.cat([getattr(said["test"], key), getattr(said[name], key)]) for name in ("GTSRB", "MNIST-M")]
        aurocs = [roc_auc_score(np.repeat([0, 1], [60, 40]), score.numpy()) for score in scores]
        assert row[f"unseen {key}"] == pytest.approx(np.mean(aurocs))
        draws = found["draws"]["ENSM"]
        pair = [draws[f"OOD {name} {key}"] for name in ("GTSRB", "MNIST-M")]
        assert draws[f"unseen {key}"] == pytest.approx(np.mean(pair, 0))
    assert found["rows"]["EnD²"]["ρ knowledge"] == pytest.approx(1)
    assert not [key for key in found["rows"]["IND #0"] if "knowledge" in key]
    assert np.sum(found["histograms"]["ENSM"]["total in"]) * np.diff(BINS)[0] == pytest.approx(1)


def test_models_of_a_kind_are_those_of_all_studies():
    one = {
        "rows": {"IND #0": {"NLL": 1}, "IND #1": {"NLL": 2}, "EnD²": {"NLL": 3, "ρ": 0.5}, "EnD²+AUX": {"NLL": 4}},
        "draws": {"EnD²": {"NLL": [3, 3]}},
        "histograms": {"EnD²": {"total in": [1]}},
        "images": {"test": 50},
    }
    other = {kind: {name: of for name, of in one[kind].items() if name != "EnD²+AUX"} for kind in one}
    found = together([one, other | {"rows": other["rows"] | {"EnD²": {"NLL": 5}}}])
    assert of_kind(found, "EnD²") == ["EnD² #0", "EnD² #1"] == list(found["draws"]) == list(found["histograms"])
    assert of_kind(found, "IND") == ["IND #0 #0", "IND #1 #0", "IND #0 #1", "IND #1 #1"]
    assert of_kind(found, "EnD") == []
    assert values(found, "EnD²", "NLL") == [3, 5]
    assert values(found, "EnD²", "ρ") == [0.5]
    assert values(found, "EnD²+AUX", "NLL") == [4]
    assert found["images"] == {"test": 50}


def test_a_gap_is_of_means_over_studies_and_knows_which_way_is_better():
    rows = {"A #0": 0.10, "A #1": 0.12, "B #0": 0.20}
    draws = {"A #0": [0.1, 0.2], "A #1": [0.1, 0.2], "B #0": [0.3, 0.6]}
    found = {
        "rows": {name: {"NLL": value, "PRR": value} for name, value in rows.items()},
        "draws": {name: {"NLL": drawn, "PRR": drawn} for name, drawn in draws.items()},
    }
    low, middle, high = gap(found, "A", "B", "NLL")
    assert middle == pytest.approx(0.09)
    assert (low, high) == pytest.approx((0.2 + 0.025 * 0.2, 0.4 - 0.025 * 0.2))
    assert gap(found, "A", "B", "PRR") == pytest.approx((-high, -middle, -low))


def test_the_gap_of_an_ece_is_corrected_for_what_chance_adds():
    draws = {"A": np.array([0.05, 0.07, 0.06]), "B": np.array([0.02, 0.04, 0.03])}
    rows = {"A": 0.04, "B": 0.01}
    found = {kind: {name: {"ECE": each[name]} for name in each} for kind, each in (("rows", rows), ("draws", draws))}
    wanted = interval_of_inflated(rows["B"], draws["B"], rows["A"], draws["A"])
    assert gap(found, "B", "A", "ECE") == pytest.approx((-wanted.high, -wanted.value, -wanted.low))
    assert wanted.high > np.percentile(draws["B"] - draws["A"], 97.5)


def test_every_claim_is_judged():
    names = [f"{name} #{number}" for name in ("ENSM", "IND", *STUDENTS) for number in (0, 1)]
    keys = ("accuracy", "PRR", "ECE", "NLL", "unseen total", "unseen knowledge")
    found = {
        "rows": {n: dict.fromkeys(keys, 0.5) for n in names},
        "draws": {n: {key: [0.5] for key in keys} for n in names},
    }
    found["rows"]["EnD #0"]["NLL"], found["draws"]["EnD #0"]["NLL"] = 0.3, [0.3]
    lines = orderings(found).splitlines()
    assert [line for line in lines if "**Held**" in line] == [
        "| EnD has a lower NLL than EnD² | NLL: EnD, EnD² | **Held** +0.100 (+0.100 to +0.100) |"
    ]
    assert len([line for line in lines if "**Not held**" in line]) == len(lines) - 3


def test_the_papers_scale_is_its_appendix():
    paper = SCALES["paper"]
    assert (paper.network, paper.members, paper.batch_size, paper.lr) == ("VGG-16", 100, 128, 1e-3)
    assert (paper.epochs, paper.student_epochs, paper.dropout, paper.degrees) == (45, 90, (0.5, 0.3), 15)
    assert (paper.temperature, paper.prior_norm) == (10, False)
    recipe = EnddCifar10(scale="paper")
    assert recipe.training(90, 1e-3, 0).rate()(1 / 3) == pytest.approx(1)
    norms = [
        sum("BatchNorm" in type(m).__name__ for m in recipe.network(0.1, norm).modules()) for norm in (True, False)
    ]
    assert norms == [13, 0]


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/\S+: pass the folder .* --data"):
        run(tmp_path, EnddCifar10(data="nowhere"))


@pytest.mark.long
def test_end_to_end_stopped_and_gone_on_with(tmp_path, files, monkeypatch):
    monkeypatch.setitem(SCALES, "laptop", TINY)
    recipe, calls, real = EnddCifar10(data=files, studies=2, resamples=4), [], module.distill

    def stops_at_the_fourth(*args, **kwargs):
        calls.append(args)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "distill", stops_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", recipe)
    page = run(tmp_path / "run", recipe)
    students = 2 * len(STUDENTS) + len(TINY.fewer) + len(TINY.temperatures)
    assert len(calls) == students + 4  # all of them again: the finished ones are read, not trained
    assert run(tmp_path / "run", recipe) == page
    assert len(calls) == students + 4  # finished studies are not asked for again
    assert (tmp_path / "run" / "endd-cifar10.png").read_bytes().startswith(b"\x89PNG")
    for name in PAPER:
        rows = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert len(rows) == 4 + (name in ("EnD²+AUX", "ENSM"))
        assert "±" in rows[0]
    sizes = [args[2].batches.examples for args in calls[4:]]
    each = [56] * 2 + [76] * 3 + [44]  # the prior network: 24 with labels, 20 auxiliary ones
    assert sizes == [*each, 76, 76, *each]


def test_the_teacher_speaks_of_plain_images_and_the_student_sees_others(files, monkeypatch):
    monkeypatch.setitem(SCALES, "laptop", TINY)
    recipe = EnddCifar10(data=files)
    images = recipe.images()
    labelled, plain, held = (b.all for b in (images.labelled, images.seen, images.held))
    assert torch.equal(plain.inputs[:24], labelled.inputs)
    assert (plain.target[24:] == UNLABELLED).all()
    assert (labelled.target >= 0).all()
    assert not set(held.index.tolist()) & set(plain.index.tolist())
    assert (len(labelled), len(held), len(plain)) == (24, 8, 56)
    assert plain.inputs.min() >= -1
    assert plain.inputs.max() <= 1
    seen = next(module.Augmented(images.seen, recipe.augment).shuffled(3))
    assert not torch.equal(seen.inputs, seen.plain)


@pytest.mark.parametrize(
    ("name", "rate", "epochs"),
    [("EnD", 0.1, 30), ("EnD²+AUX", 0.02, 30), ("T₀ = 1", 0.02, 30), ("Proxy+AUX", 0.1, 30), ("PN", 0.05, 20)],
)
def test_each_student_has_its_rate_its_length_and_the_precision(name, rate, epochs, files, tmp_path, monkeypatch):
    asked = []

    def noted(teacher, network, batches, method, training, **_):
        asked.append(training)
        return Student(network, method)

    monkeypatch.setattr(module, "distill", noted)
    monkeypatch.setitem(SCALES, "laptop", replace(LAPTOP, images=24, held=8, auxiliary=20))
    recipe = EnddCifar10(data=files)
    images = recipe.images()
    recipe._student(Labels(classes=10), name, images, images.seen, 0, tmp_path)
    (training,) = asked
    assert (training.lr, training.epochs, training.precision) == (rate, epochs, LAPTOP.precision)


def test_members_see_augmented_images_and_remembered_targets_are_those_of_plain_ones(files, tmp_path, monkeypatch):
    monkeypatch.setitem(SCALES, "laptop", replace(TINY, members=2))
    monkeypatch.setattr(module, "pyplot", lambda: None)  # a slow import, for pictures that are not drawn here
    recipe, seen, asked, real = EnddCifar10(data=files), [], [], module.augmented
    monkeypatch.setattr(
        module, "augmented", lambda images, *rest, **more: seen.append(1) or real(images, *rest, **more)
    )

    def stop(teacher, network, data, *rest, **more):
        asked.append((teacher, data))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "distill", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", recipe)
    assert len(seen) == 2  # members, each for one epoch of one batch
    ((teacher, data),) = asked
    batch = next(data.shuffled(0, 0))
    assert not torch.equal(batch.inputs, batch.plain)
    teacher.check(replace(batch, inputs=batch.plain))  # what it was asked about, by the fingerprints it keeps
    with pytest.raises(ValueError, match="was captured on other inputs"):
        teacher.check(replace(batch, plain=None))


def test_the_command_line_finds_it():
    assert find("endd-cifar10") is EnddCifar10
    assert "endd-cifar10" in names()
    assert "endd-page" not in names()
