"""The same view goes to student and teacher; members that are no torch modules are asked once."""

import numpy as np
import pytest
import torch
from torch import nn

from solera import Batches, Distiller, EnD, Ensemble, Labels, Training, capture, distill, train_ensemble
from solera.core.errors import MismatchError
from solera.core.seeds import generator
from solera.data import Views
from solera.data.augment import Blend, Jitter, Plain, Resample
from solera.nn import MLP
from solera.training.views import SEEDED, asked_once, expensive
from tests.helpers import small_batches, small_ensemble

SHORT = Training(epochs=2, lr=1e-3)
ROWS = torch.randn(90, 4, generator=generator(0))


class Watched(nn.Module):
    """Notes what it is shown while it is trained, or always."""

    def __init__(self, network, always):
        super().__init__()
        self.network, self.always, self.shown = network, always, []

    def forward(self, x):
        if self.training or self.always:
            self.shown.append(x.detach().clone())
        return self.network(x)


class Counted:
    """A classifier that counts how often it is asked, and about how many rows."""

    def __init__(self, seed):
        self.weights, self.asked, self.rows = np.random.default_rng(seed).normal(size=(4, 3)), 0, 0
        self.classes_ = np.arange(3)

    def __getstate__(self):
        return {"weights": self.weights}

    def predict_proba(self, x):
        self.asked, self.rows = self.asked + 1, self.rows + len(x)
        scores = np.exp(np.asarray(x) @ self.weights)
        return scores / scores.sum(1, keepdims=True)


@pytest.mark.parametrize(
    "views", ["auto", Resample(ROWS, 0.5), lambda x, draw: x + torch.rand(x.shape, generator=draw)]
)
def test_a_live_teacher_is_asked_about_what_the_student_sees_and_that_is_new_in_every_epoch(views):
    model, member = Watched(MLP(4, 3), always=False), Watched(MLP(4, 3), always=True)
    distill(Ensemble([member]), model, Batches(ROWS, batch_size=30), EnD(), SHORT, views=views)
    asked = torch.cat(member.shown)
    trained = [torch.cat(model.shown[start : start + 3]) for start in (0, 3)]
    assert len(model.shown) == 6
    for seen in trained:
        everything = {tuple(row) for row in asked.tolist()}
        assert all(tuple(row) in everything for row in seen.tolist())
        assert len({tuple(r) for r in seen.tolist()} - {tuple(r) for r in ROWS.tolist()}) > 20
    common = {tuple(r) for r in trained[0].tolist()} & {tuple(r) for r in trained[1].tolist()}
    assert len(common - {tuple(r) for r in ROWS.tolist()}) < 9  # the same augmentation in every epoch: all of them


def test_off_by_one_word():
    model = Watched(MLP(4, 3), always=False)
    distill(small_ensemble(), model, Batches(ROWS, batch_size=30), EnD(), SHORT)
    fitted = Distiller(Watched(MLP(4, 3), always=False), EnD(), SHORT, views=None).fit(small_ensemble(), ROWS)
    for shown in (model.shown, fitted.student_.model.shown):
        assert {tuple(r) for r in torch.cat(shown).tolist()} <= {tuple(r) for r in ROWS.tolist()}


@pytest.mark.parametrize(("views", "times"), [("auto", SEEDED), (None, 1)])
def test_members_that_are_no_torch_modules_are_asked_once_however_long_the_training(views, times):
    counts = []
    for epochs in (1, 6):
        members = [Counted(seed) for seed in range(3)]
        Distiller(MLP(4, 3), EnD(), Training(epochs=epochs), batch_size=16, views=views).fit(members, ROWS.numpy())
        counts.append([(member.asked, member.rows) for member in members])
    assert counts[0] == counts[1]
    looks = 90  # the rows that tell the family and size of the answers
    assert all(asked <= times + 2 and rows == 81 * times + 9 + looks for asked, rows in counts[0])


def test_remembered_answers_are_those_for_the_very_views_and_held_out_examples_are_plain():
    batches, held = Batches(ROWS, torch.arange(90) % 3, batch_size=16).split(0.2, 1)
    teacher = Ensemble([Counted(0), Counted(1)])
    assert expensive(teacher)
    with asked_once(teacher, batches, held, Jitter(ROWS, 0.5), 3, None) as (memory, views, kept):
        folder = memory.path
        for epoch in range(SEEDED):
            for batch in views.shuffled(0, epoch):
                memory.check(batch)
                torch.testing.assert_close(memory(batch).mean, teacher.said(batch.inputs).mean.mean(-2))
                assert not (batch.inputs == ROWS[batch.index // SEEDED]).all(-1).any()
                assert torch.equal(batch.target, batch.index // SEEDED % 3)  # jittered rows keep their label
        for batch in kept:
            memory.check(batch)
            assert torch.equal(batch.inputs, ROWS[batch.index // SEEDED])
            torch.testing.assert_close(memory(batch).mean, teacher.said(batch.inputs).mean.mean(-2))
        with pytest.raises(MismatchError, match="other inputs"):
            memory.check(next(Views(batches, Jitter(ROWS, 0.5), SEEDED, seed=4).shuffled(0)))
        assert folder.exists()
    assert not folder.exists()


def test_a_member_does_not_count_for_views_of_what_it_was_trained_on():
    saw = torch.arange(90)[:, None] % 2 == torch.arange(2)
    teacher = Ensemble([Counted(0), Counted(1)], saw=saw)
    with asked_once(teacher, Batches(ROWS), None, Jitter(ROWS), 0, None) as (memory, views, _):
        for batch in views.shuffled(0):
            alone = teacher.said(batch.inputs).mean[torch.arange(len(batch)), 1 - batch.index // SEEDED % 2]
            torch.testing.assert_close(memory(batch).mean, alone)


def test_torch_members_are_not_captured():
    assert not expensive(small_ensemble())


def test_a_teacher_that_remembers_takes_captured_views_and_no_others(tmp_path):
    said = np.full((90, 2, 3), 1 / 3)
    Distiller(MLP(4, 3), EnD(), SHORT).fit(said, ROWS)  # "auto": nothing can be viewed, nothing is said
    with pytest.raises(ValueError, match=r"know nothing of new views.*capture solera.data.Views"):
        Distiller(MLP(4, 3), EnD(), SHORT, views=Jitter(ROWS)).fit(said, ROWS)
    views = Views(Batches(ROWS, batch_size=16), Jitter(ROWS), 3)
    distill(capture(small_ensemble(), views, tmp_path), MLP(4, 3), views, EnD(), SHORT)
    with pytest.raises(ValueError, match=r"views must be 'auto', None or a function.*got 'all'"):
        Distiller(MLP(4, 3), EnD(), SHORT, views="all").fit(small_ensemble(), ROWS)


def test_other_views_are_another_run(tmp_path):
    batches = small_batches()
    for folder, views, error in ((tmp_path, Plain(), None), (tmp_path, Jitter(ROWS), MismatchError)):
        arguments = (small_ensemble(), MLP(4, 3), batches, EnD(), SHORT)
        if error is None:
            distill(*arguments, views=views, folder=folder)
            continue
        with pytest.raises(error):
            distill(*arguments, views=views, folder=folder)


def test_a_folder_keeps_the_answers_and_the_same_call_asks_nothing_again(tmp_path):
    for expected in (True, False):
        members = [Counted(seed) for seed in range(2)]
        torch.manual_seed(0)
        Distiller(MLP(4, 3), EnD(), SHORT, folder=tmp_path).fit(members, ROWS.numpy())
        assert (members[0].rows > 2 * 81) == expected


def test_auxiliary_inputs_are_asked_about_too():
    members = [Counted(seed) for seed in range(2)]
    more = 5 * torch.randn(20, 4, generator=generator(1))
    student = Distiller(training=SHORT).fit(members, ROWS, torch.arange(90) % 3, auxiliary=more).student_
    assert student.predict(ROWS).mean.shape == (90, 3)


def test_regressors_are_asked_once(tmp_path):
    linear = pytest.importorskip("sklearn.linear_model")
    y = ROWS.numpy() @ np.arange(4) + np.random.default_rng(0).normal(size=90)
    members = [linear.Ridge(a).fit(ROWS.numpy()[::2], y[::2]) for a in (1, 10, 100)]
    student = Distiller(training=SHORT).fit(members, ROWS.numpy()[1::2], y[1::2]).student_
    assert student.predict(ROWS).mean.shape == (90, 1)


def test_labels_alone_speak_for_plain_examples_only():
    model = Watched(MLP(4, 3), always=False)
    batches = Batches(ROWS, torch.arange(90) % 3, batch_size=30)
    distill(Labels(3), model, batches, EnD(), SHORT, views="auto")
    assert {tuple(r) for r in torch.cat(model.shown).tolist()} <= {tuple(r) for r in ROWS.tolist()}


def test_what_is_no_longer_of_its_class_is_taught_by_the_teacher_alone():
    """All labels say class 0, the teacher says class 2: with every feature resampled, no label is heard."""
    teacher = Ensemble([lambda x: torch.tensor([0.0, 0.0, 6.0]).expand(len(x), 3)])
    batches = Batches(ROWS, torch.zeros(90, dtype=torch.long), batch_size=30)
    mixed = Training(epochs=20, lr=1e-2, label_weight=0.9)
    for views, winner in ((Resample(ROWS, 1.0), 2), (Jitter(ROWS, 0.01), 0), (None, 0)):
        student = distill(teacher, MLP(4, 3), batches, EnD(), mixed, views=views)
        assert (student.predict(ROWS).mean.argmax(-1) == winner).float().mean() > 0.9


def test_members_are_not_trained_on_views_without_a_label():
    with pytest.raises(ValueError, match="Blend does not keep an example's class"):
        train_ensemble(lambda: MLP(4, 3), small_batches(), 2, SHORT, augment=Blend(ROWS))
