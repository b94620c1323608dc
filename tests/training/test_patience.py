"""Training that goes on while it helps: the rule, the budget, the share of labels, resuming, an earlier student."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from solera import Batches, EnD, EnD2, Ensemble, Hydra, ProxyDirichlet, Student, Training, distill, fit
from solera.core.progress import quiet
from solera.data import UNLABELLED
from solera.nn import MLP
from solera.tasks import Classification, Regression
from solera.training.lesson import Lesson, shortcoming
from solera.training.patience import LABEL_WEIGHTS, clearly_less, patiently, rounds

QUICK = Training(epochs="patient", most_rounds=2, lr=2e-2)


def teacher(members=3):
    torch.manual_seed(1)
    return Ensemble([MLP(2, 3, (8,)) for _ in range(members)])


def inputs(rows=120):
    return torch.randn(rows, 2, generator=torch.Generator().manual_seed(2))


class Rounds(Lesson):
    """A lesson whose rounds end in these losses; the network's weight is the number of the round."""

    def __init__(self, losses):
        known = {"losses": losses, "trained": [], "student": nn.Linear(1, 1), "batches": [None] * 100, "held": []}
        for name, value in {**known, "method": EnD()}.items():
            object.__setattr__(self, name, value)

    def train(self, training, folder):
        nn.init.constant_(self.student.weight, len(self.trained))
        self.trained.append((training.epochs, training.seed))

    def divergence(self, training):
        return torch.tensor(self.losses[int(self.student.weight.item())], dtype=torch.float64)

    def seconds_a_step(self, training):
        return 0.1


@pytest.mark.parametrize(
    ("losses", "epochs", "kept"),
    [
        ([[1.0, 1.1, 0.9], [0.5, 0.6, 0.4], [0.2, 0.3, 0.1]], 210, 2),  # better every time: the whole budget
        ([[1.0, 1.1, 0.9], [1.5, 1.6, 1.4], [0.2, 0.3, 0.1]], 90, 0),  # worse: the earlier weights
        ([[1.0, 1.0, 1.0], [0.2, 1.5, 1.2], [0.2, 0.3, 0.1]], 90, 1),  # lower by less than its standard error: the end
        ([[-3.0, -2.0, -4.0], [-3.5, -2.5, -4.4], [-3.0, -2.0, -4.0]], 210, 1),  # losses may be negative
    ],
)
def test_rounds_go_on_while_the_held_out_loss_surely_falls(losses, epochs, kept):
    lesson = Rounds(losses)
    assert patiently(lesson, Training(epochs="patient"), None)["epochs"] == epochs
    assert lesson.student.weight.item() == kept
    assert [length for length, _ in lesson.trained] == [30, 60, 120][: len(lesson.trained)]
    assert len({seed for _, seed in lesson.trained}) == len(lesson.trained)  # another order, other views


def test_the_rule_and_the_budget():
    assert rounds(Training(epochs="patient"), steps=100) == [30, 60, 120]
    assert rounds(Training(epochs="patient", most_rounds=1), steps=10) == [60]
    old = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert clearly_less(old - 0.1, old)
    assert not clearly_less(old + 0.1, old)
    assert not clearly_less(old - torch.tensor([1.0, -0.9, 1.0, -0.9]), old)
    gain = torch.tensor([1.0, -0.5]).repeat(50)  # 0.25 on average, deviation 0.75: many examples make it sure
    assert clearly_less(-gain, torch.zeros(100))
    assert not clearly_less(-gain[:6], torch.zeros(6))
    assert clearly_less(old - 2e-4, old)
    assert not clearly_less(old - 5e-5, old)  # clearly, and not worth a round


def test_the_budget_is_said_before_the_work_and_likeness_after_it(capsys, short_rounds):
    with quiet(False):
        student = distill(teacher(), MLP(2, 3), Batches(inputs(), batch_size=12), ProxyDirichlet(), QUICK)
    said = capsys.readouterr().err
    assert "rounds of 12, 24 epochs, until one helps no more; about " in said
    assert "agreement, transfer" in said
    assert "KL from the ensemble, held out" in said
    fit = student.notes.fit
    assert fit["epochs"] == 36
    assert fit["agreement, transfer"] > 0.9
    assert abs(fit["knowledge kept, held-out"] - 1) <= abs(fit["knowledge kept, held-out, before the fit"] - 1)
    assert {"total kept, held-out", "data kept, held-out", "data kept, held-out, before the fit"} <= fit.keys()


def test_a_student_that_falls_short_says_why_and_what_to_try(capsys):
    ensemble, fixed = teacher(), Training(epochs=1, lr=1e-6)
    with quiet(False):
        distill(ensemble, MLP(2, 3), Batches(inputs()), EnD(), fixed)
    said = capsys.readouterr().err
    assert "does not follow its ensemble closely on the inputs it learned from (agreement 0." in said
    assert "try a larger network, more epochs" in said
    good, bad = {"agreement": 0.96}, {"agreement": 0.94}
    task = Classification()
    assert shortcoming(task, good, good) is None
    assert shortcoming(task, good, None) is None
    assert "on held-out inputs (agreement 0.94): show it more inputs" in shortcoming(task, good, bad)
    assert "inputs (unlabelled=, views='auto'); try a larger network" in shortcoming(task, bad, bad)
    assert "more inputs" not in shortcoming(task, bad, good)
    task, good, bad = Regression(), {"mean's distance, in σ": 0.29}, {"mean's distance, in σ": 0.31}
    assert shortcoming(task, good, good) is None
    assert "on the inputs it learned from (mean's distance, in σ 0.31)" in shortcoming(task, bad, good)


@pytest.mark.parametrize(("last", "helped"), [([0.2, 0.3, 0.1], True), ([0.6, 0.5, 0.4], False)])
def test_a_budget_that_ends_too_early_is_said(capsys, last, helped):
    with quiet(False):
        patiently(Rounds([[1.0, 1.1, 0.9], [0.5, 0.6, 0.4], last]), Training(epochs="patient"), None)
    assert ("with most_rounds=4 goes on for another" in capsys.readouterr().err) == helped


def test_a_loader_that_cannot_be_split_is_gone_through_thirty_times():
    x = inputs(40)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size=20)
    assert distill(teacher(), MLP(2, 3), loader, EnD()).notes.fit["epochs"] == 30


@pytest.mark.parametrize("labels_help", [True, False])
def test_validation_chooses_the_share_of_labels(labels_help, short_rounds):
    x = inputs(300)
    ensemble = teacher()
    likely = ensemble.predict(x).mean
    y = likely.argmin(-1) if labels_help else torch.multinomial(likely, 1, generator=torch.Generator().manual_seed(0))
    settings = Training(epochs="patient", label_weight="auto", most_rounds=1, lr=2e-2)
    student = distill(ensemble, MLP(2, 3), Batches(x, y.reshape(-1), batch_size=27), EnD(), settings)
    fit = student.notes.fit
    assert fit["label weight"] == (max(LABEL_WEIGHTS) if labels_help else 0)
    nll = [fit[f"held-out NLL at label weight {weight:g}"] for weight in LABEL_WEIGHTS]
    assert (nll[2] < nll[1] < nll[0]) == labels_help


class StoppedError(Exception):
    pass


def test_a_patient_run_goes_on_where_it_was_stopped_or_where_its_rounds_ended(tmp_path, short_rounds):
    y = (inputs()[:, 0] > 0).long()

    def run(folder, stop=None, most_rounds=2):
        count = 0

        def watch(epoch, network):
            nonlocal count
            count += 1
            if count == stop:
                raise StoppedError

        torch.manual_seed(3)
        settings = Training(epochs="patient", label_weight="auto", most_rounds=most_rounds, lr=1e-2)
        settings = replace(settings, checkpoint_seconds=0)
        batches = Batches(inputs(), y, batch_size=27)
        return distill(teacher(), MLP(2, 3, (8,)), batches, EnD(), settings, watch=watch, folder=folder)

    whole = run(tmp_path / "whole")
    for stop in (15, 30):
        with pytest.raises(StoppedError):
            run(tmp_path / "stopped", stop)
    again = run(tmp_path / "stopped")
    assert again.fingerprint == whole.fingerprint
    assert again.notes.fit == whole.notes.fit
    assert run(tmp_path / "longer", most_rounds=1).fingerprint != whole.fingerprint
    with pytest.raises(StoppedError):
        run(tmp_path / "longer", stop=1)  # it is not finished
    assert run(tmp_path / "longer").fingerprint == whole.fingerprint


def test_a_student_starts_from_another_or_grows_from_another_method(tmp_path):
    x, few = inputs(), Training(epochs=1, lr=1e-9)
    first = distill(teacher(), MLP(2, 3), x, EnD(), Training(epochs=3, lr=1e-2))
    again = distill(teacher(), MLP(2, 3), x, EnD2(), few, start=first)
    torch.testing.assert_close(again.model(x), first.model(x), atol=1e-5, rtol=0)
    again = distill(teacher(), MLP(2, 3), x, EnD2(), few, start=first.save(tmp_path / "first"))
    torch.testing.assert_close(again.model(x), first.model(x), atol=1e-5, rtol=0)
    grown = distill(teacher(), MLP(2, 3), x, Hydra(), few, start=first)
    torch.testing.assert_close(grown.model(x), first.model(x).unsqueeze(1).expand(-1, 3, -1), atol=1e-5, rtol=0)
    onward = distill(teacher(), MLP(2, 3), x, Hydra(), few, start=grown)
    torch.testing.assert_close(onward.model(x), grown.model(x), atol=1e-5, rtol=0)
    training, ensemble = Training(epochs=3, lr=1e-2), teacher()
    torch.manual_seed(5)
    by_name = distill(ensemble, MLP(2, 3), x, Hydra(), training, start=EnD())
    torch.manual_seed(5)
    by_hand = distill(ensemble, distill(ensemble, MLP(2, 3), x, EnD(), training).model, x, Hydra(), training)
    assert by_name.fingerprint == by_hand.fingerprint
    with pytest.raises(ValueError, match="start is a MLP with other weights than this MLP, with or without the head"):
        distill(teacher(), MLP(2, 3, (5,)), x, EnD(), few, start=first)


def test_unlabelled_inputs_are_learned_from():
    x, more = inputs(20), 5 + inputs(40)
    batches = Batches(x, (x[:, 0] > 0).long(), batch_size=8).with_unlabelled(more)
    assert batches.examples == 60
    assert batches.all.target[20:].tolist() == [UNLABELLED] * 40
    assert batches.all.index.tolist() == list(range(60))
    training, ensemble = Training(epochs=60, lr=1e-2, label_weight=0.1), teacher()
    there = ensemble.predict(more).mean
    far = []
    for unlabelled in (more, None):
        torch.manual_seed(0)
        data = Batches(x, (x[:, 0] > 0).long())
        student = distill(ensemble, MLP(2, 3), data, EnD(), training, unlabelled=unlabelled)
        far.append(float((student.predict(more).mean - there).abs().mean()))
    assert far[0] < 0.5 * far[1]
    with pytest.raises(ValueError, match="unlabelled inputs are put beside arrays or Batches"):
        distill(ensemble, MLP(2, 3), list(data), EnD(), training, unlabelled=more)


def test_what_cannot_be_patient_says_so():
    with pytest.raises(ValueError, match="epochs='patient' is for distillation"):
        fit(MLP(2, 3), Batches(inputs(), torch.zeros(120).long()), Training(epochs="patient"))
    with pytest.raises(ValueError, match="label_weight='auto' is chosen between rounds"):
        Training(label_weight="auto")


def test_the_card_says_how_the_student_follows_the_ensemble(tmp_path, short_rounds):
    student = distill(teacher(), MLP(2, 3), Batches(inputs(), batch_size=12), ProxyDirichlet(), QUICK)
    student.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "## How it follows the ensemble" in card
    assert f"| knowledge kept, held-out | {student.notes.fit['knowledge kept, held-out']:.6g} |" in card
    assert Student.load(tmp_path).notes.fit == student.notes.fit
