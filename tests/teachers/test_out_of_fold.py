"""Members do not speak about what they were trained on."""

import pytest
import torch
from torch import nn

from solera import Batch, Batches, EnD, EnD2, Ensemble, ProxyDirichlet, Training, capture, distill
from solera.distributions import Categorical, Mixture
from solera.nn import MLP
from solera.teachers.adapters import Predictions
from solera.teachers.base import member_weights, saw_from_folds
from solera.testing import check_teacher
from tests.helpers import small_batches, small_ensemble

EXAMPLES, MEMBERS = 50, 4


def bagged(seed=0, examples=EXAMPLES):
    """A mask as bagging makes it, with somebody left to speak for every example."""
    generator = torch.Generator().manual_seed(seed)
    saw = torch.rand(examples, MEMBERS, generator=generator) < 0.63
    saw[saw.all(1), 0] = False
    return saw


def remembered(saw=None):
    ensemble, batches = small_ensemble(MEMBERS), small_batches()
    return Predictions(ensemble.predict(batches.all.inputs).members.mean, saw=saw)


def live(saw=None):
    return Ensemble(list(small_ensemble(MEMBERS).models), saw=saw)


@pytest.mark.parametrize("teacher", [live, remembered])
def test_the_targets_are_those_of_the_members_that_did_not_see_the_row(teacher):
    saw, batches = bagged(), small_batches()
    masked, everyone = teacher(saw), teacher()
    for batch in batches.shuffled(3):
        check_teacher(masked, batch)
        targets, all_members = masked(batch), everyone(batch).members.logits
        for row, example in enumerate(batch.index.tolist()):
            without = Mixture(Categorical(all_members[row : row + 1, ~saw[example]]))
            for name in ("mean", "total", "data", "knowledge", "rmi", "epkl"):
                torch.testing.assert_close(getattr(targets, name)[row], getattr(without, name)[0], msg=name)


def test_new_inputs_are_new_to_every_member():
    ensemble, batch = live(bagged(examples=30)), small_batches().all
    everyone = live()
    torch.testing.assert_close(ensemble.predict(batch.inputs).mean, everyone.predict(batch.inputs).mean)
    beyond = batch.index >= 30
    torch.testing.assert_close(ensemble(batch).mean[beyond], everyone(batch).mean[beyond])
    assert not torch.allclose(ensemble(batch).mean[~beyond], everyone(batch).mean[~beyond])


class Kept(nn.Module):
    """An ensemble that asks, example by example, only the members that may speak: brute force."""

    live = True

    def __init__(self, saw):
        super().__init__()
        self.ensemble, self.saw, self.members = live(), saw, MEMBERS
        self.fingerprints = self.ensemble.fingerprints

    def check(self, batch):
        pass

    def forward(self, batch):
        """Each row's speakers, repeated until there are lcm(1, 2, 3, 4) of them: no weights, the same mixture."""
        logits = self.ensemble(batch).members.logits
        rows = [one[~self.saw[i]] for one, i in zip(logits, batch.index.tolist(), strict=True)]
        return Mixture(Categorical(torch.stack([row.repeat(12 // len(row), 1) for row in rows])))


@pytest.mark.parametrize("method", [EnD(), EnD(temperature=2.0), EnD2(), ProxyDirichlet()])
def test_students_learn_from_the_members_that_may_speak(method):
    saw, batches, training = bagged(), small_batches(), Training(epochs=3, lr=1e-2)
    students = []
    for teacher in (live(saw), remembered(saw), Kept(saw), live()):
        torch.manual_seed(0)
        student = distill(teacher, MLP(4, 3, (8,)), batches, method, training)
        students.append(student.predict(batches.all.inputs).mean)
    masked, from_array, brute, careless = students
    torch.testing.assert_close(masked, brute, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(from_array, brute, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(masked, careless, rtol=1e-3, atol=1e-3)


def test_a_transfer_set_remembers_who_may_speak(tmp_path):
    ensemble, batches = live(bagged(examples=30)), small_batches()
    kept = capture(ensemble, batches, tmp_path)
    for batch in batches.shuffled(0):
        torch.testing.assert_close(kept(batch).mean, ensemble(batch).mean, rtol=0, atol=2e-3)
        torch.testing.assert_close(kept(batch).knowledge, ensemble(batch).knowledge, rtol=0, atol=2e-3)


def test_every_token_of_a_sequence_has_its_examples_members():
    class Tagger(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        def forward(self, tokens):
            return self.scale * tokens[..., None] * torch.arange(3.0)

    saw = torch.tensor([[True, False], [False, True], [False, False]])
    models = [Tagger(0.1), Tagger(-0.2)]
    tokens = torch.randn(3, 5)
    targets = Ensemble(models, saw=saw)(Batch(tokens, torch.arange(3)))
    assert targets.weights.shape == (3, 5, 2)
    torch.testing.assert_close(targets.mean[0], models[1](tokens[0]).softmax(-1))
    torch.testing.assert_close(targets.mean[1], models[0](tokens[1]).softmax(-1))
    assert targets.knowledge[:2].max() < 1e-6
    assert (targets.knowledge[2] > 1e-4).all()


@pytest.mark.parametrize("teacher", [live, remembered])
def test_an_example_that_everybody_saw_is_named(teacher):
    saw = bagged()
    saw[[17, 31]] = True
    masked, batches = teacher(saw), small_batches()
    with pytest.raises(
        ValueError, match=r"all 4 members were trained on example 17 \(2 examples are like that\).*leave"
    ):
        masked(batches.all)
    with pytest.raises(ValueError, match=r"trained on example (17|31)"):
        distill(masked, MLP(4, 3), batches, EnD(), Training(epochs=1))
    part = batches.all.take(~saw.all(1))
    kept = Batches(part.inputs, part.target, index=part.index)
    distill(masked, MLP(4, 3), kept, EnD(), Training(epochs=1))


@pytest.mark.parametrize("teacher", [live, remembered])
def test_a_mask_that_does_not_fit_is_refused(teacher):
    for wrong in (bagged().T, bagged()[:, :3], bagged()[0]):
        with pytest.raises(ValueError, match=r"saw must have the shape .* one column per member"):
            teacher(wrong)
    with pytest.raises(ValueError, match=r"saw must hold true and false, got torch.int64"):
        teacher(bagged().long())
    assert teacher(bagged().numpy()).members == MEMBERS
    with pytest.raises(ValueError, match=r"shape \(50, 4\).* got \(49, 4\)"):
        remembered(bagged()[1:])


@pytest.mark.parametrize("teacher", [live, remembered])
def test_another_mask_is_another_teacher(teacher):
    saw = bagged()
    other = saw.clone()
    other[5, 2] = ~other[5, 2]
    other[5, 3] = False
    saw[5, 3] = False
    one, two = teacher(saw).fingerprints, teacher(other).fingerprints
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, True, False, True]
    assert one == teacher(saw.clone()).fingerprints
    assert not set(one) & set(teacher().fingerprints)


def test_folds_make_a_mask():
    folds = torch.tensor([0, 2, 1, 1, 0])
    saw = saw_from_folds(folds)
    for example, fold in enumerate(folds.tolist()):
        assert [m for m in range(3) if not saw[example, m]] == [fold]
    assert torch.equal(saw, saw_from_folds(folds.numpy(), 3))
    repeats = torch.cat([saw_from_folds(folds), saw_from_folds(folds.flip(0))], 1)
    weights = member_weights(repeats, torch.tensor([1, 4, 99]))
    assert weights.tolist() == [[0, 0, 0.5, 0, 0.5, 0], [0.5, 0, 0, 0.5, 0, 0], [pytest.approx(1 / 6)] * 6]
    with pytest.raises(ValueError, match="between 0 and 1 for 2 members, example 1 has 2"):
        saw_from_folds(folds, 2)


def test_one_member_per_fold_leaves_no_knowledge():
    folds = torch.arange(EXAMPLES) % MEMBERS
    batch = small_batches().all
    assert live(saw_from_folds(folds))(batch).knowledge.max() < 1e-6
    twice = torch.cat([saw_from_folds(folds)[:, :2], saw_from_folds((folds + 1) % 2, 2)], 1)
    assert (live(twice[:, [0, 1, 2, 3]])(Batch(batch.inputs[:1], batch.index[:1])).weights > 0).sum() == 2
