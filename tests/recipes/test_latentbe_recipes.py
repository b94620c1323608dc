"""The LatentBE studies: their numbers against referees, and all of them on stand-in files, stopped and gone on with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy
from scipy.stats import t as scipy_t
from sklearn.metrics import log_loss, roc_auc_score

from solera.data.batch import UNLABELLED
from solera.distributions import Categorical
from solera.methods import BatchEnsemble, LatentBE
from solera.nn import WideResNet, branch
from solera.recipes import (
    find,
    latentbe,
    latentbe_cifar10,
    latentbe_cifar100,
    latentbe_compare,
    latentbe_page,
    subspace,
)
from solera.recipes.base import Workspace, settings_of
from solera.recipes.data import load_cifar, require_cifar
from solera.recipes.latentbe import MEMBERS, Scale, Study
from solera.recipes.latentbe_cifar100 import CIFAR100, LatentbeCifar100
from solera.recipes.latentbe_compare import WAYS
from solera.recipes.latentbe_page import SCORES, answer, apart, claims, entropy, lower, measure, page
from solera.recipes.subspace import PLACES, along, barrier
from solera.teachers import Ensemble
from solera.training import Student

TINY = Scale(10, 1, 14, 12, 1, 1, 10, 0.1, 0.3, 1, 2, stride=4)
SETTINGS = [(latentbe_cifar10, "CIFAR10"), (latentbe_cifar100, "CIFAR100"), (subspace, "SUBSPACE")]


def run(folder, recipe):
    return recipe.run(Workspace(folder, settings_of(recipe)))


@pytest.fixture
def files(tmp_path):
    """Noise in the form of the data sets."""
    draw = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for name, classes in {"cifar10_train20k": 10, "cifar10_test": 10, "cifar100_train20k": 100, "cifar100_test5k": 100,
                          "gtsrb_test2k_32x32": 43}.items():  # fmt: skip
        planes = draw.integers(0, 256, (3, 36, 32, 32), dtype=np.uint8)
        np.savez(tmp_path / "images" / f"{name}.npz", planes=planes, y=draw.integers(0, classes, 36))
    return str(tmp_path)


@pytest.fixture
def small(monkeypatch):
    """A study of two students, with fewer corruptions."""
    for module, name in SETTINGS:
        monkeypatch.setattr(module, name, replace(getattr(module, name), scales={"laptop": TINY}))
    monkeypatch.setattr(latentbe_compare, "CORRUPTIONS", latentbe_compare.CORRUPTIONS[:2])


class Said:
    """Answers of a table, whatever the inputs."""

    def __init__(self, logits):
        self.logits = logits

    def predict(self, inputs):
        return Categorical(self.logits[: len(inputs)])


def test_the_columns_of_the_tables():
    logits, y = 2 * torch.randn(60, 5), torch.randint(5, (60,))
    x = torch.zeros(60, 1)
    sets = {
        "validation": (x, y),
        "test": (x, y),
        "fog 1": (x[:30], y[:30]),
        "fog 2": (x[:20], y[:20]),
        "far": (x, None),
    }
    found = measure(Said(logits), sets)
    probs = logits.softmax(-1).double().numpy()
    assert found["ACC"] == pytest.approx(100 * (probs.argmax(1) == y.numpy()).mean())
    assert found["NLL"] == pytest.approx(log_loss(y, probs, labels=range(5)), rel=1e-5)
    temperatures = np.geomspace(0.2, 50, 4000)
    best = min(log_loss(y, (logits / t).softmax(-1).double().numpy(), labels=range(5)) for t in temperatures[::40])
    assert found["cNLL"] <= best + 1e-6 < found["NLL"]
    spoilt = [100 * (probs[:n].argmax(1) == y[:n].numpy()).mean() for n in (30, 20)]
    assert found["corrupted"]["ACC"] == pytest.approx(np.mean(spoilt))
    assert sum(found["histogram"]["test"]) == pytest.approx(1)
    assert found["AUROC"] == {"far": pytest.approx(roc_auc_score(np.repeat([0, 1], 60), np.tile(entropy(probs), 2)))}


def test_entropy_with_a_zero():
    probs = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(entropy(probs), scipy_entropy(probs, axis=1), atol=1e-15)


def test_models_are_compared_within_a_study():
    found = {"LatentBE": [{"NLL": 1.0, "cNLL": 1.0}, {"NLL": 3.0, "cNLL": 1.0}, {"NLL": 2.0, "cNLL": 1.0}]}
    found["KD"] = [{"NLL": 1.5, "cNLL": 0.9}, {"NLL": 3.4, "cNLL": 0.9}, {"NLL": 2.6, "cNLL": 0.9}]
    assert lower(found, "LatentBE", "KD", "NLL") == pytest.approx([0.5, 0.4, 0.6])
    reach = scipy_t.ppf(0.975, 2) * 0.1 / 3**0.5
    lines = claims(found).splitlines()[2:]
    ends = f"(+{0.5 - reach:.4f} to +{0.5 + reach:.4f})"
    assert lines[0] == f"| LatentBE's NLL is lower than KD's | **Held** +0.5000 {ends} |"
    assert "**Not held** -0.1000" in lines[1]
    assert len(lines) == 2, "claims about students that were left out are left out"


def test_the_subnetworks_nll_of_each():
    student = branch(WideResNet(10, 1, (3, 8, 8), 4), MEMBERS, "normal").eval()
    x, y = torch.rand(30, 3, 8, 8), torch.randint(4, (30,))
    with torch.no_grad():
        each = [torch.nn.functional.cross_entropy(student(x)[:, m], y).item() for m in range(MEMBERS)]
    found = apart(Student(student, BatchEnsemble()), x, y)
    assert found == {"NLL of each": pytest.approx(np.mean(each), rel=1e-5)}
    assert lower({"a": [{"NLL": 1.0}], "b": [found]}, "a", "b", "NLL of each") == [pytest.approx(np.mean(each) - 1)]


def test_the_line_between_two_subnetworks_has_them_at_its_ends():
    torch.manual_seed(1)
    student = branch(WideResNet(10, 1, (3, 8, 8), 4), 2, "normal").eval()
    x, y = torch.rand(40, 3, 8, 8), torch.randint(4, (40,))
    line = along(student, x, y, x, y)
    with torch.no_grad():
        each = -student(x).log_softmax(-1).gather(-1, y.view(-1, 1, 1).expand(-1, 2, 1)).mean((0, 2))
        middle = -LatentBE().finalize(student).eval()(x).log_softmax(-1).gather(-1, y[:, None]).mean()
    ends = [line["NLL"][PLACES.index(place)] for place in (0.0, 1.0)]
    assert ends == pytest.approx(each.tolist(), rel=1e-4)
    assert line["NLL"][PLACES.index(0.5)] == pytest.approx(middle.item(), rel=1e-4)
    assert barrier(line, "NLL") == pytest.approx(middle.item() - each.mean().item(), abs=1e-4)
    assert line["training error"] == line["test error"]


def test_the_full_set_is_read_where_it_is_there(tmp_path, files):
    assert len(load_cifar(files, 100, "train")[0]) == 36
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    pixels = np.arange(3 * 3 * 1024, dtype=np.uint32).astype(np.uint8).reshape(3, 3, 32, 32)
    rows = np.concatenate([np.array([[7, 1], [8, 2], [9, 99]], np.uint8), pixels.reshape(3, -1)], 1)
    for part in ("train", "test"):
        rows.tofile(folder / f"{part}.bin")
    images, labels = load_cifar(files, 100, "train")
    assert labels.tolist() == [1, 2, 99]
    np.testing.assert_array_equal(images, np.moveaxis(pixels, 1, -1))
    require_cifar(str(tmp_path), 100)
    with pytest.raises(FileNotFoundError, match=r"cifar10_train20k.npz: pass the folder .* --data"):
        require_cifar(str(folder), 10)


def test_members_and_students_train_as_in_the_appendix():
    """Appendix B.2: SGD with weight decay of 5·10⁻⁴; the laptop's scale differs in size, not in kind."""
    for module, name in SETTINGS:
        setting = getattr(module, name)
        for at in setting.scales.values():
            training = Study("", setting.classes, at, 0).training(at.epochs, 7)
            assert (training.optimizer, training.weight_decay, training.seed) == ("sgd", 5e-4, 7)
            assert training.rate()(training.warm_up) == pytest.approx(1)


def test_members_and_students_see_augmented_images_and_a_live_teacher(tmp_path, files, monkeypatch):
    study, seen, real = Study(files, 10, TINY, 0), [], latentbe.augmented
    counted = lambda images, *rest, **more: seen.append(1) or real(images, *rest, **more)  # noqa: E731
    monkeypatch.setattr(latentbe, "augmented", counted)
    work = Workspace(tmp_path / "run", {})
    parts = study.parts()
    ensemble = study.ensemble(2, parts.labelled, 0, work)
    assert len(seen) == 2 * TINY.epochs * len(parts.labelled)
    study.student(ensemble, parts.seen, "KD", WAYS["KD"], 0, work)
    assert len(seen) == 2 * TINY.epochs * len(parts.labelled) + TINY.student_epochs * len(parts.seen)


@pytest.mark.parametrize(("precision", "answers"), [("auto", "32-true"), ("bf16-mixed", "bf16-mixed")])
def test_members_answer_students_in_the_precision_of_the_study(precision, answers, tmp_path, files, monkeypatch):
    study, asked = Study(files, 10, replace(TINY, precision=precision), 0), []

    def noted(teacher, network, batches, method, training, **_):
        asked.append((teacher.precision, training.precision))
        return Student(network, method)

    monkeypatch.setattr(latentbe, "distill", noted)
    ensemble = Ensemble([study.network(), study.network()])
    study.student(ensemble, study.parts().seen, "KD", WAYS["KD"], 0, Workspace(tmp_path / "run", {}))
    assert asked == [(answers, precision)]


def test_students_see_more_images_than_have_labels(files):
    parts = Study(files, 10, TINY, 0).parts()
    labelled, seen, (images, labels) = parts.labelled.all, parts.seen.all, parts.held
    assert (len(labelled), len(seen), len(images), len(labels)) == (14, 24, 12, 12)
    assert torch.equal(seen.inputs[:14], labelled.inputs)
    assert (labelled.target >= 0).all()
    assert (seen.target[14:] == UNLABELLED).all()
    same = Study(files, 10, replace(TINY, unlabelled=False), 0).parts()
    assert same.seen is same.labelled


@pytest.mark.usefixtures("small")
def test_a_study_from_end_to_end_stopped_and_gone_on_with(tmp_path, files, monkeypatch):
    monkeypatch.setattr(latentbe_compare, "WAYS", {k: WAYS[k] for k in ("KD", "Proxy-EnD²", "LatentBE")})
    monkeypatch.setattr(latentbe_page, "claims", lambda found: "")
    monkeypatch.setattr(latentbe_compare, "draw", lambda *_: None)
    recipe = find("latentbe-cifar10")(data=files)
    whole = run(tmp_path / "whole", recipe)
    asked = 0

    def stop(*arguments, **options):
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt
        return distill(*arguments, **options)

    distill = latentbe.distill
    monkeypatch.setattr(latentbe, "distill", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", recipe)
    again = run(tmp_path / "stopped", recipe)

    def scores(page):
        return [line.split("paper")[0] for line in page.split("## Run time")[0].splitlines() if line.startswith("| ")]

    assert scores(again) == scores(whole)
    assert "| LatentBE, subnetworks |" in whole


@pytest.mark.usefixtures("small")
def test_the_line_from_end_to_end(tmp_path, files):
    page = run(tmp_path / "line", find("subspace")(data=files))
    assert len([line for line in page.splitlines() if "eld** " in line or "surely** " in line]) == 6
    assert (tmp_path / "line" / "subspace.png").stat().st_size > 10_000


def test_the_claims_about_the_line_follow_their_signs():
    def runs(middle, diversity, teachers, students):
        line = {"NLL": [1.0] * len(PLACES)}
        line["NLL"][PLACES.index(0.5)] = middle
        return [
            {"line": line, "epochs": [{"diversity, test": diversity, "teachers": teachers, "students": students}]}
        ] * 3

    found = {
        "BE": runs(1.5, 0.1, 0.0, 0.0),
        "LatentBE": runs(0.9, 0.1, 0.0, 0.0),
        "LatentBE + ConfODS": runs(0.9, 0.1, 0.0, -0.01),
        "LatentBE + TDiv−SDiv": runs(0.9, 0.2, 0.3, -0.02),
    }
    gaps = ["+0.5000", "+0.1000", "+0.1000", "+0.3000", "+0.0200", "+0.0100"]
    for line, gap in zip(subspace.claims(found).splitlines()[2:], gaps, strict=True):
        assert f"**Held** {gap} (" in line
    worse = found | {"LatentBE": runs(1.2, 0.3, 0.0, 0.0), "LatentBE + ConfODS": runs(0.9, 0.1, 0.0, 0.05)}
    worse["LatentBE + TDiv−SDiv"] = runs(0.9, 0.2, -0.3, 0.02)
    words = [line.split("**")[1] for line in subspace.claims(worse).splitlines()[2:]]
    assert words == ["Held", *["Not held"] * 5]
    told = subspace.answer(found)
    assert "+0.500 ± 0.000 for subnetworks that begin far apart (BatchEnsemble, BE) (surely a barrier), -0.100" in told
    assert "(LatentBE) (surely none)" in told
    found["LatentBE + TDiv−SDiv"] = [runs(middle, 0.0, 0.0, 0.0)[0] for middle in (0.9, 1.0, 1.2)]
    assert subspace.answer(found).endswith("teachers disagree (TDiv−SDiv) (not sure).")
    assert "+0.033 ± 0.153 for the same" in subspace.answer(found)


def test_the_answer_is_what_one_network_keeps_of_the_gain():
    scores = {"one member": (1.1, 1.3), "DE-4": (1.0, 1.0), "KD": (1.1, 1.2), "LatentBE": (1.2, 1.3)}
    found = {name: [{"ACC": 60.0, "NLL": nll} for nll in each] for name, each in scores.items()}
    text = answer(found)
    assert "One network is right on 60.0 ± 0.0 % of the test images (NLL 1.200 ± 0.141), four together on " in text
    assert text.endswith(
        "keeps, by the mean, 25 % if it learns their mean (KD), 0 % if it is merged from four subnetworks (LatentBE)."
    )
    found["DE-4"] = found["one member"]
    assert answer(found).endswith(": there is no gain in NLL to keep.")


def test_all_claims_and_pictures_of_the_large_study(tmp_path):
    names = ["one member", "DE-4", *WAYS, *(f"{n}, subnetworks" for n in WAYS if n.startswith("Latent"))]
    draw = np.random.default_rng(0)

    def numbers():
        scores = {key: float(draw.random()) for key in (*SCORES, "NLL of each")}
        histogram = {name: [1 / 30] * 30 for name in ("test", "CIFAR-10", "GTSRB")}
        rest = {"AUROC": {"CIFAR-10": 0.7, "GTSRB": 0.9}, "histogram": histogram, "training": 1.0, "ms/image": 0.1}
        return {**scores, "corrupted": scores, **rest}

    found = {name: [numbers(), numbers()] for name in names}
    recipe, work = LatentbeCifar100(scale="paper"), Workspace(tmp_path, {})
    text = page(recipe, CIFAR100, CIFAR100.scales["paper"], found, [45_000, 45_000], work)
    assert "Table 3" in text
    assert "WRN-28-4" in text
    assert "learn 45,000 labelled images for 200 epochs" in text
    assert sum(line.startswith("| TDiv−SDiv lowers") for line in text.splitlines()) == 3
    kd = next(line for line in text.splitlines() if line.startswith("| KD |"))
    assert kd.endswith(f"| {CIFAR100.paper['KD']} | {CIFAR100.paper_tiny['KD']} |")
    latentbe_page.draw(CIFAR100, found, work)
    assert (tmp_path / "latentbe-cifar100.png").stat().st_size > 10_000
