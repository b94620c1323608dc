"""The EnD² study on CIFAR-10: its metrics against referees, and all of it on stand-in files, stopped half-way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import solera.recipes.endd_cifar10 as module
from solera.distributions import Categorical, Mixture
from solera.recipes import find, names
from solera.recipes.base import Workspace, settings_of
from solera.recipes.endd_cifar10 import SCALES, STUDENTS, EnddCifar10, first, member
from solera.recipes.endd_page import BINS, OTHERS, PAPER, measure, ordering

TINY = replace(
    SCALES["quick"], channels=2, images=48, auxiliary=32, tests=40, members=3, epochs=1, student_epochs=1, degrees=15.0
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
    said = {"CIFAR-10": mixture(60), **{name: mixture(40) for name in OTHERS}}
    labels = said["CIFAR-10"].mean.argmax(-1)
    labels[::3] = (labels[::3] + 1) % 10  # a third of the predictions are wrong
    found = measure(said, {name: torch.zeros(len(p.mean), 1) for name, p in said.items()}, labels, said)
    mean, wrong = said["CIFAR-10"].mean, (torch.arange(60) % 3 == 0).numpy()
    doubt = -mean.max(-1).values.numpy()
    assert found["error"] == pytest.approx(1 / 3)
    assert found["NLL"] == pytest.approx(-mean.gather(1, labels[:, None]).log().mean().item(), rel=1e-5)
    assert found["PRR"] == pytest.approx(2 * roc_auc_score(wrong, doubt) - 1)
    assert found["AUPR confidence"] == pytest.approx(average_precision_score(wrong, doubt))
    assert found["AUPR knowledge"] == pytest.approx(average_precision_score(wrong, said["CIFAR-10"].knowledge.numpy()))
    for key in ("total", "knowledge"):
        aurocs = []
        for name in ("GTSRB", "MNIST-M"):
            scores = torch.cat([getattr(said["CIFAR-10"], key), getattr(said[name], key)]).numpy()
            aurocs.append(roc_auc_score(np.repeat([0, 1], [60, 40]), scores))
            assert found[f"{name} {key}"] == pytest.approx(aurocs[-1])
        assert found[f"unseen {key}"] == pytest.approx(np.mean(aurocs))
    assert found["ρ"] == pytest.approx(1)
    assert np.sum(found["histogram total in"]) * np.diff(BINS)[0] == pytest.approx(1)


def test_one_member_has_no_knowledge_and_a_few_are_an_ensemble_of_their_own():
    torch.manual_seed(0)
    whole = mixture(20, 4)
    said = {name: member(whole, 1) for name in ("CIFAR-10", *OTHERS)}
    images = {name: torch.zeros(20, 1) for name in said}
    found = measure(said, images, member(whole, 0).mean.argmax(-1), dict.fromkeys(said, whole))
    assert not [key for key in found if "knowledge" in key or key == "ρ"]
    assert torch.equal(member(whole, 1).mean, whole.members.mean[:, 1])
    assert torch.allclose(first(whole, 2).mean, whole.members.mean[:, :2].mean(1))


def test_an_ordering_knows_which_way_is_better_and_how_sure_it_is():
    found = {"A": [{"error": 0.10, "PRR": 0.5}, {"error": 0.12, "PRR": 0.7}], "B": [{"error": 0.20, "PRR": 0.61}]}
    assert ordering(found, "A errs less", "error", "A", "B") == ("- **Held**: A errs less; error: A 11.0 ± 1.4, B 20.0")
    assert ordering(found, "A rejects better", "PRR", "A", "B") == (
        "- **Not held**: A rejects better; PRR: A 60.0 ± 14.1, B 61.0 (less than the spread between runs)"
    )


def test_the_papers_scale_is_its_appendix():
    paper = SCALES["paper"]
    assert (paper.depth, paper.channels, paper.members, paper.batch_sizes, paper.lr) == (16, 64, 100, (128, 128), 1e-3)
    assert (paper.epochs, paper.student_epochs, paper.dropout, paper.degrees) == (45, 90, (0.5, 0.3), 15)
    assert (paper.temperature, paper.prior_norm) == (10, False)
    recipe = EnddCifar10(scale="paper")
    assert recipe.training(90, 1e-3, 0).rate()(1 / 3) == pytest.approx(1)
    small = EnddCifar10(scale="quick")
    norms = [sum("BatchNorm" in type(m).__name__ for m in small.network(0.1, norm).modules()) for norm in (True, False)]
    assert norms == [8, 0]


def test_missing_data_is_named_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no nowhere/\S+: pass the folder .* --data"):
        run(tmp_path, EnddCifar10(data="nowhere"))


@pytest.mark.long
def test_end_to_end_stopped_and_gone_on_with(tmp_path, files, monkeypatch):
    monkeypatch.setitem(SCALES, "quick", TINY)
    recipe, calls, real = EnddCifar10(data=files, scale="quick"), [], module.distill

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
    assert len(calls) == students + 1  # the one that was stopped, and no other, again
    assert run(tmp_path / "run", recipe) == page
    assert len(calls) == students + 1
    assert (tmp_path / "run" / "endd-cifar10.png").read_bytes().startswith(b"\x89PNG")
    for name in PAPER:
        rows = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert len(rows) == 3
        assert ("±" in rows[0]) == (name != "ENSM")
    sizes = [args[2].batches.examples for args in calls[4:]]  # the fourth again is the second EnD² student
    assert sizes == [48] + [80] * (students - 4)  # plain images, then with auxiliary ones


def test_the_teacher_speaks_of_plain_images_and_the_student_sees_others(files, monkeypatch):
    monkeypatch.setitem(SCALES, "quick", TINY)
    recipe = EnddCifar10(data=files, scale="quick")
    plain, whole = recipe._batches()
    assert torch.equal(whole.all.inputs[:48], plain.all.inputs)
    assert whole.all.target is not None
    assert (whole.all.target[48:] == -100).all()
    assert plain.all.inputs.min() >= -1
    assert plain.all.inputs.max() <= 1
    (seen,) = [b for b in module.Augmented(plain, recipe.augment).shuffled(3) if len(b) == 32]
    assert not torch.equal(seen.inputs, plain.all.inputs[seen.index])


def test_members_see_augmented_images_and_remembered_targets_are_those_of_plain_ones(files, tmp_path, monkeypatch):
    monkeypatch.setitem(SCALES, "quick", replace(TINY, members=2))
    monkeypatch.setattr(module, "pyplot", lambda: None)  # a slow import, for pictures that are not drawn here
    recipe, seen, asked, real = EnddCifar10(data=files, scale="quick"), [], [], module.augmented
    monkeypatch.setattr(
        module, "augmented", lambda images, *rest, **more: seen.append(1) or real(images, *rest, **more)
    )

    def stop(teacher, network, data, *rest, **more):
        asked.append((teacher, data))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "distill", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", recipe)
    members, images, at = 2, 48, recipe.at
    assert len(seen) == members * at.epochs * -(-images // at.batch_sizes[0])
    ((teacher, data),) = asked
    batch = next(data.shuffled(0, 0))
    plain = data.batches.take(batch.index)
    assert not torch.equal(batch.inputs, plain.inputs)
    assert torch.equal(teacher(batch).mean, teacher(plain).mean)


def test_the_command_line_finds_it():
    assert find("endd-cifar10") is EnddCifar10
    assert "endd-cifar10" in names()
    assert "endd-page" not in names()
