"""The rules of the verdict, each through `evaluate`, on models made so that one thing is known about them.

A made-up model is right where it is told to be and as sure as it is told to be. Every rule has a test that fails if it
is dropped, if the bad end of an interval is replaced by its value, or if a margin is ten times as wide.
"""

import json
import time

import numpy as np
import pytest
import torch

from solera import Student, report
from solera.distributions import Categorical, Dirichlet, Gaussian, Mixture
from solera.evaluation import Evaluation, evaluate, verdict
from solera.evaluation.margins import LEAST_EXAMPLES
from solera.evaluation.report import card_numbers
from solera.evaluation.report_data import content, verdicts
from solera.methods import EnD
from solera.metrics import rank_correlation
from solera.nn import MLP
from solera.training.card import record

K = 4
OTHERS = 400


def generator(seed=0):
    return np.random.default_rng(seed)


def labels_of(size):
    return torch.from_numpy(generator(1).integers(0, K, size))


def means(labels, right, confidence):
    """Probabilities: the right class, or the next one, is believed with this confidence."""
    confidence = np.broadcast_to(confidence, len(labels))
    predicted = torch.where(torch.from_numpy(np.asarray(right)), labels, (labels + 1) % K)
    found = torch.from_numpy((1 - confidence) / (K - 1)).unsqueeze(1).repeat(1, K)
    return found.scatter(1, predicted.unsqueeze(1), torch.from_numpy(np.array(confidence)).unsqueeze(1))


def plain(labels, right, confidence):
    """A model that has no knowledge uncertainty."""
    return Categorical(means(labels, right, confidence).log())


def second(labels, right, confidence, precision):
    """A model with knowledge: the less precise, the more of it."""
    return Dirichlet(means(labels, right, confidence) * torch.from_numpy(np.asarray(precision)).unsqueeze(1))


class World:
    """Labels, an ensemble of known accuracy that is calibrated, and what it says of an unfamiliar set."""

    def __init__(self, size=2000, accuracy=0.9, unfamiliar=7.0):
        random = generator()
        self.size, self.labels = size, labels_of(size)
        self.other = labels_of(OTHERS)
        # accuracy is the mean confidence, between 2·accuracy − 1 and 1
        self.confidence = random.uniform(2 * accuracy - 1, 1, size) if accuracy < 1 else np.full(size, 0.999)
        self.right = random.random(size) < self.confidence
        self.precision = np.exp(random.normal(3, 0.5, size))
        self.far = unfamiliar * np.exp(random.normal(0, 0.5, OTHERS))

    def said(self, right=None, confidence=None, precision=None, far=None):
        """An answer about both sets: the ensemble's, but for what is given."""
        given = (right, self.right), (confidence, self.confidence), (precision, self.precision), (far, self.far)
        right, confidence, precision, far = (default if one is None else one for one, default in given)
        test = second(self.labels, right, confidence, precision)
        return {"test": test, "far": second(self.other, np.ones(OTHERS, bool), 0.6, far)}

    def without_knowledge(self, right=None, confidence=None):
        right, confidence = (
            default if one is None else one for one, default in ((right, self.right), (confidence, self.confidence))
        )
        test = plain(self.labels, right, confidence)
        return {"test": test, "far": plain(self.other, np.ones(OTHERS, bool), 0.6)}

    def evaluated(self, student, far=True, resamples=40, **others):
        models = {"ensemble": self.said(), "student": student, **others}
        unfamiliar = {"far": torch.zeros(OTHERS, 1)} if far else {}
        return evaluate(models, torch.zeros(self.size, 1), self.labels, unfamiliar=unfamiliar, resamples=resamples)

    def judged(self, student, **others):
        result = self.evaluated(student, **others)
        return verdicts(result)[0]


def changed(right, better, worse, seed=0):
    """The same answers, but for so many that are right now and so many that are wrong now."""
    random, found = generator(seed), right.copy()
    found[random.choice(np.flatnonzero(~right), better, replace=False)] = True
    found[random.choice(np.flatnonzero(right), worse, replace=False)] = False
    return found


def told(found):
    return "\n".join(found.sentences)


# what was fooled once


def test_three_examples_are_no_evidence():
    world = World(3, accuracy=1.0)
    world.right[:] = True
    result = world.evaluated(world.said(), single=world.without_knowledge())
    found = verdict(result, "student", single="single")
    assert not found.deploy_student
    assert found.deploy == "ensemble"
    assert found.undecided
    assert set(found.states.values()) == {"unclear"}
    assert "3 test examples do not show that it kept accuracy and calibration (381 are the fewest" in found.sentences[0]
    assert "accuracy +0.00 (−56.15 to +56.15) points" in told(found)
    own = result.interval("student", "accuracy")
    assert (own.low, own.high) == (pytest.approx(0.2924, abs=1e-3), 1)  # Clopper and Pearson's of 3 in 3


def test_twenty_examples_that_got_worse_are_not_deployed():
    world = World(20)
    world.right = np.arange(20) < 18
    student = world.said(right=np.arange(20) < 14)
    found = world.judged(student, single=world.without_knowledge(right=np.arange(20) < 18))
    assert not found.deploy_student
    assert found.states["accuracy"] == "unclear"
    assert found.worse == {"single": (), "single, calibrated": ()}  # 4 discordant pairs prove nothing: p = 1/8
    assert "20 test examples do not show" in found.sentences[0]


def test_a_less_accurate_student_is_not_deployed_because_a_single_member_is_over_confident():
    world = World(4000, accuracy=0.9)
    right = changed(world.right, 88, 20)  # the single member's: 1.7 points better than the ensemble's
    single = world.without_knowledge(right=right, confidence=np.where(world.confidence < 0.9, 0.99, 0.9999))
    result = world.evaluated(world.said(), single=single)
    found = verdict(result, "student", single="single")
    gap = result.difference("student", "single", "accuracy")
    assert gap.value == pytest.approx(-0.017)
    assert gap.low < -0.02 < gap.high < -0.01
    assert not found.deploy_student
    assert found.worse["single"] == ("accuracy",)
    assert found.better["single"] == ("NLL",)
    assert found.deploy == "single, calibrated"
    assert "single, calibrated alone is better in accuracy" in found.sentences[0]
    assert "calibration alone would give single" in found.sentences[0]
    rows = result.rows
    assert rows["single, calibrated"]["accuracy"] == rows["single"]["accuracy"]
    assert rows["single, calibrated"]["NLL"] < rows["single"]["NLL"] - 0.1
    assert rows["single, calibrated"]["ECE"] < 0.04 < rows["single"]["ECE"]
    assert any("accuracy −1.70 (−2.2" in s and "surely worse; NLL" in s for s in found.sentences)


def test_worse_in_one_thing_and_better_in_another_keeps_the_ensemble():
    """A baseline that is more accurate, and so over-confident that its NLL is worse: neither is to be deployed."""
    world = World()
    sure = world.without_knowledge(right=changed(world.right, 60, 10), confidence=0.9999)
    found = world.judged(world.said(), baseline=sure)
    assert found.deploy == "ensemble"
    assert "surely worse than baseline in accuracy, though better in NLL" in found.sentences[0]


@pytest.fixture(scope="module")
def impossible():
    """A student that once gave the truth a probability of 0, and is as good as its ensemble everywhere else."""
    world = World()
    probabilities = means(world.labels, world.right, world.confidence)
    wrong = int(np.flatnonzero(~world.right)[0])
    probabilities[wrong] = torch.tensor([0.0, 0, 0, 0]).scatter(0, (world.labels[wrong] + 1) % K, 1.0).double()
    student = {**world.without_knowledge(), "test": Categorical(probabilities.log())}
    return world.evaluated(student, single=world.without_knowledge())


def test_an_infinite_nll_is_never_deployed(impossible):
    assert impossible.rows["student"]["NLL"] == np.inf
    found = verdict(impossible, "student", single="single")
    assert found.states["accuracy"] == "kept"
    assert found.deploy == "ensemble"
    assert "its NLL is ∞" in found.sentences[0]
    assert found.worse["single"] == ("NLL",)
    assert "NLL ∞, there 0." in told(found)


def test_an_infinite_nll_is_written_as_what_it_is(impossible, tmp_path):
    folder = impossible.save(tmp_path / "evaluation")

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    kept = json.loads((folder / "metrics.json").read_text(), parse_constant=refuse)
    student = next(model for model in kept["models"] if model["name"] == "student")
    assert student["metrics"]["NLL"] == {"value": "inf", "low": None, "high": None}
    assert student["difference"]["NLL"]["value"] == "inf"
    assert student["fidelity"]["KL from the ensemble"]["value"] == "inf"
    again = Evaluation.load(folder)
    assert again.rows["student"]["NLL"] == np.inf
    assert again.numbers("student") == impossible.numbers("student")
    assert "| ∞ |" in again.markdown()
    page = report(again, tmp_path / "report.html").read_text()
    assert ">∞" in page
    assert ">+∞" in page
    json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)

    Student(MLP(2, K, (4,)), EnD()).save(tmp_path / "student")
    record(tmp_path / "student", *card_numbers(again, "student"))
    assert "| NLL | inf |" in (tmp_path / "student" / "README.md").read_text()
    json.loads((tmp_path / "student" / "config.json").read_text(), parse_constant=refuse)
    loaded = Student.load(tmp_path / "student")
    assert loaded.notes.metrics["NLL"] == np.inf
    loaded.save(tmp_path / "again")
    json.loads((tmp_path / "again" / "config.json").read_text(), parse_constant=refuse)


def test_knowledge_the_wrong_way_round_is_lost_however_well_it_tells_the_sets_apart():
    world = World(400, unfamiliar=1.0)
    world.confidence[:] = 0.9
    result = world.evaluated(world.said(precision=400 / world.precision))
    pooled = [np.concatenate([result.columns[name][part]["knowledge"] for part in ("test", "far")])
              for name in ("student", "ensemble")]  # fmt: skip
    assert rank_correlation(*pooled) > 0.5
    assert result.rows["student"]["ρ knowledge"] < -0.9
    assert result.rows["student"]["ρ knowledge on far"] == pytest.approx(1)
    found = verdict(result, "student")
    assert found.states["knowledge"] == "lost"
    assert not found.use_knowledge
    assert "it ranks the test inputs as the ensemble's does to ρ = −1.00" in told(found)


def test_knowledge_that_ranks_an_unfamiliar_set_the_wrong_way_round_is_lost():
    world = World()
    found = world.judged(world.said(far=50 / world.far))
    assert found.states["knowledge"] == "lost"
    assert "“far” as the ensemble's does to ρ = −1.00" in told(found)


class Slow:
    """What a model said, at the cost of so many seconds a time."""

    def __init__(self, said, seconds):
        self.said, self.seconds = said, seconds

    def predict(self, inputs):
        time.sleep(self.seconds)
        rows = inputs[:, 0].long()
        return type(self.said)(*(tensor[rows] for tensor in vars(self.said).values()))


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.03, "as long"), (0.001, "at about the same cost"), (0.0001, "of the time")]
)
def test_a_better_single_member_has_its_measured_cost_beside_it(seconds, words):
    world = World(1000)
    said = world.without_knowledge(right=changed(world.right, 90, 0))["test"]
    models = {
        "ensemble": {"test": world.said()["test"]},
        "single": Slow(said, seconds),
        "student": Slow(world.without_knowledge()["test"], 0.001),
    }
    result = evaluate(models, torch.arange(world.size).unsqueeze(1).float(), world.labels, resamples=20)
    (found,) = verdicts(result)
    assert found.deploy.startswith("single")
    assert words in found.sentences[0]
    assert ("at about the same cost" in found.sentences[0]) == (words == "at about the same cost")
    assert result.costs["single, calibrated"] == result.costs["single"]


def test_no_cost_is_claimed_that_nobody_measured():
    world = World(1000)
    found = world.judged(world.said(), single=world.without_knowledge(right=changed(world.right, 90, 0)))
    assert found.deploy.startswith("single")
    assert "cost" not in found.sentences[0]
    assert "as long" not in found.sentences[0]


@pytest.mark.parametrize("knowledge", [True, False])
def test_a_better_baseline_changes_the_headline(knowledge):
    world = World()
    student = world.said() if knowledge else world.without_knowledge()
    found = world.judged(student, baseline=world.without_knowledge(right=changed(world.right, 100, 0)))
    assert found.deploy == "baseline"
    assert not found.deploy_student
    assert "baseline alone is better in accuracy and NLL" in found.sentences[0]
    assert not found.sentences[0].startswith("Deploy")
    assert found.use_knowledge == knowledge
    assert ("knowledge was kept: ask it beside" in found.sentences[0]) == knowledge


def test_knowledge_is_not_claimed_without_unfamiliar_inputs():
    world = World()
    found = world.judged(world.said(), far=False)
    assert found.states["knowledge"] == "unclear"
    assert found.deploy_student
    assert not found.use_knowledge
    assert "before it was tested on unfamiliar inputs" in found.sentences[0]
    assert "not tested on unfamiliar inputs" in told(found)


def test_a_student_without_knowledge_is_told_so():
    world = World()
    found = world.judged(world.without_knowledge())
    assert found.states["knowledge"] == "lost"
    assert found.deploy_student
    assert not found.use_knowledge
    assert "it has no knowledge uncertainty, do not use it to tell unfamiliar inputs" in found.sentences[0]
    assert any(s.startswith("The student has no knowledge uncertainty") for s in found.sentences)


# what is right stays right


def test_a_student_that_kept_everything_is_deployed():
    world = World()
    single = world.without_knowledge(right=changed(world.right, 0, 100))
    found = world.judged(world.said(), single=single)
    assert found.states == {"accuracy": "kept", "calibration": "kept", "rejection": "kept", "knowledge": "kept"}
    assert found.deploy_student
    assert found.use_knowledge
    assert found.use_rejection
    assert found.sentences[0] == "Deploy the student."
    assert found.better == {"single": ("accuracy", "NLL"), "single, calibrated": ("accuracy", "NLL")}
    assert any("The student beside single, calibrated (fitted on one half" in s for s in found.sentences)


def test_an_ensemble_without_knowledge_has_none_to_keep():
    world = World()
    models = {"ensemble": world.without_knowledge(), "student": world.without_knowledge()}
    (found,) = verdicts(evaluate(models, torch.zeros(world.size, 1), world.labels, resamples=20))
    assert found.states["knowledge"] == "none"
    assert found.deploy_student
    assert not found.use_knowledge
    assert found.sentences[0] == "Deploy the student."


@pytest.mark.parametrize("mistakes", [0, 2])
def test_nothing_is_gained_over_an_equal_single_member_without_knowledge(mistakes):
    """Two mistakes less are better, but not surely."""
    world = World()
    same = world.without_knowledge(right=changed(world.right, 0, mistakes))
    found = world.judged(world.without_knowledge(), single=same)
    assert found.better == {"single": (), "single, calibrated": ()}
    assert found.deploy.startswith("single")
    assert "nothing shows that it is better" in found.sentences[0]
    assert world.judged(world.said(), single=same).deploy_student  # its knowledge is what is gained


def test_a_much_faster_student_is_a_gain():
    world = World(2000)
    said = world.without_knowledge()["test"]
    models = {"ensemble": {"test": world.said()["test"]}, "single": Slow(said, 0.01), "student": Slow(said, 0.001)}
    inputs = torch.arange(world.size).unsqueeze(1).float()
    (found,) = verdicts(evaluate(models, inputs, world.labels, resamples=20))
    assert found.deploy_student


def test_a_verdict_needs_intervals_and_known_models():
    world = World(200)
    with pytest.raises(ValueError, match="resamples=200"):
        verdict(world.evaluated(world.said(), resamples=0), "student")
    with pytest.raises(ValueError, match="there is no model 'other'"):
        verdict(world.evaluated(world.said(), resamples=3), "other")


# margins: beyond one of them something is lost, across it unclear; ten times as wide a margin would call both kept


CLASSES = {
    # 3 points of accuracy lost, at the ensemble's calibration
    "accuracy": lambda w: w.said(right=changed(w.right, 10, 70), confidence=w.confidence - 0.03),
    # 4 points too modest in every answer
    "calibration": lambda w: w.said(confidence=np.maximum(w.confidence - 0.07, 0.3)),
    # the total uncertainty no longer ranks the errors: the confidences of a third are shuffled
    "rejection": lambda w: w.said(confidence=shuffled(w.confidence, 0.3)),
    # the unfamiliar set is told apart worse, in the same order
    "knowledge": lambda w: w.said(far=w.far * 2),
}
ACROSS = {
    "accuracy": lambda w: w.said(right=changed(w.right, 40, 50)),
    "calibration": lambda w: w.said(confidence=np.maximum(w.confidence - 0.017, 0.3)),
    "rejection": lambda w: w.said(confidence=shuffled(w.confidence, 0.08)),
    "knowledge": lambda w: w.said(far=w.far * 1.41),
}


def shuffled(values, share):
    random, found = generator(4), values.copy()
    some = np.flatnonzero(random.random(len(values)) < share)
    found[some] = found[random.permutation(some)]
    return found


@pytest.mark.parametrize("what", CLASSES)
def test_beyond_the_margin_it_is_lost(what):
    world = World()
    found = world.judged(CLASSES[what](world))
    assert found.states[what] == "lost", told(found)
    if what in ("accuracy", "calibration"):
        assert found.deploy == "ensemble"
        assert f"{what} was lost" in found.sentences[0] or "over-confident" in found.sentences[0]
    elif what == "rejection":
        assert not found.use_rejection
        assert "Do not reject by its total uncertainty: that was lost" in found.sentences[0] or not found.deploy_student
    else:
        assert not found.use_knowledge


@pytest.mark.parametrize("what", ACROSS)
def test_across_the_margin_it_is_unclear_and_not_used(what):
    """The value is within the margin, the bad end of its interval is not."""
    world = World()
    result = world.evaluated(ACROSS[what](world))
    found = verdict(result, "student")
    assert found.states[what] == "unclear", told(found)
    score, margin = {"accuracy": ("accuracy", 0.01), "calibration": ("ECE", 0.02), "rejection": ("PRR", 0.05),
                     "knowledge": ("OOD far knowledge", 0.05)}[what]  # fmt: skip
    gap = result.difference("student", "ensemble", score)
    worse = gap.value if score == "ECE" else -gap.value
    assert 0 < worse < margin
    if what in ("accuracy", "calibration"):
        assert not found.deploy_student
        assert found.undecided
        assert f"do not show that it kept {what}" in found.sentences[0]
    assert not (found.use_knowledge if what == "knowledge" else found.use_rejection if what == "rejection" else False)


@pytest.mark.parametrize(
    ("where", "noise", "state"),
    [("test", 0.3, "kept"), ("test", 1.05, "unclear"), ("test", 3.0, "lost"),
     ("far", 0.3, "kept"), ("far", 0.8, "unclear"), ("far", 3.0, "lost")],
)  # fmt: skip
def test_ranks_are_judged_by_the_bad_end_of_their_interval(where, noise, state):
    world = World(500, unfamiliar=2.5)
    random = generator(5)
    given = world.precision if where == "test" else world.far
    noisy = np.exp(np.log(given) + noise * random.normal(size=len(given)))
    result = world.evaluated(world.said(**{"precision" if where == "test" else "far": noisy}), resamples=200)
    metric = "ρ knowledge" if where == "test" else "ρ knowledge on far"
    found = result.interval("student", metric)
    assert {"kept": found.low >= 0.5, "unclear": found.low < 0.5 < found.value, "lost": found.high < 0.5}[state]
    assert verdict(result, "student").states["knowledge"] == state


def test_over_confidence_is_a_fault_from_five_points_on():
    world = World()
    found = world.judged(world.said(confidence=np.minimum(world.confidence + 0.12, 0.9999)))
    assert any("The student is over-confident; the ensemble is not." in s for s in found.sentences)
    assert found.deploy == "ensemble"
    assert "over-confident" not in told(
        world.judged(world.said(confidence=np.minimum(world.confidence + 0.02, 0.9999)))
    )


def test_bootstrap_intervals_of_few_examples_are_not_believed():
    world = World(LEAST_EXAMPLES - 1)
    right = changed(world.right, 0, 60)
    result = world.evaluated(world.said(right=right))
    found = verdict(result, "student")
    assert result.difference("student", "ensemble", "ECE").low > 0.02
    assert found.states["calibration"] == "unclear"
    assert found.states["accuracy"] == "lost"  # exact, at any size
    more = World(LEAST_EXAMPLES)
    assert more.judged(more.said(right=changed(more.right, 0, 60))).states["calibration"] == "lost"


def test_a_small_unfamiliar_set_does_not_prove_knowledge():
    world = World()
    some = {name: {**said, "far": Dirichlet(said["far"].concentration[: LEAST_EXAMPLES - 1])} for name, said in
            {"ensemble": world.said(), "student": world.said()}.items()}  # fmt: skip
    far = {"far": torch.zeros(LEAST_EXAMPLES - 1, 1)}
    (found,) = verdicts(evaluate(some, torch.zeros(world.size, 1), world.labels, unfamiliar=far, resamples=20))
    assert found.states["knowledge"] == "unclear"
    assert f"“far” has {LEAST_EXAMPLES - 1} examples, at least {LEAST_EXAMPLES} are needed" in told(found)


# continuous targets


def forecasts(size=1500, members=5, seed=0):
    random = torch.Generator().manual_seed(seed)
    scale = torch.rand(size, 1, 1, generator=random) + 0.2
    centre = 3 * torch.randn(size, 1, 1, generator=random)
    each = centre + scale * torch.randn(size, members, 1, generator=random)
    return Mixture(Gaussian(each, (0.5 * scale).log().mul(2).expand_as(each).clone())), random


def forecast_verdict(student, single=None, size=1500):
    said, random = forecasts(size)
    other = Mixture(Gaussian(said.members.mean[:OTHERS] * 4, said.members.log_variance[:OTHERS]))
    y = said.mean.squeeze(1) + said.total.sqrt() * torch.randn(size, generator=random)
    models = {"ensemble": {"test": said, "far": other}, "student": {"test": student(said), "far": student(other)}}
    models |= {} if single is None else {"single": {"test": single(said)}}
    result = evaluate(models, torch.zeros(size, 1), y, unfamiliar={"far": torch.zeros(OTHERS, 1)}, resamples=40)
    return result, verdicts(result)[0]


def shifted(said, by):
    """Off by a share of the standard deviation, now up, now down."""
    sign = torch.ones(len(said.mean), 1, 1)
    sign[::2] = -1
    mean = said.members.mean + by * sign * said.total.sqrt().reshape(-1, 1, 1)
    return Mixture(Gaussian(mean, said.members.log_variance))


def test_continuous_targets_have_their_own_rules():
    _, found = forecast_verdict(lambda said: said)
    assert found.states == {"accuracy": "kept", "calibration": "kept", "rejection": "kept", "knowledge": "kept"}
    assert found.deploy_student
    assert found.use_knowledge


@pytest.mark.parametrize(
    ("what", "student"),
    [
        ("accuracy", lambda said: shifted(said, 0.7)),  # RMSE some 22 % larger
        ("calibration", lambda said: Gaussian(said.mean, said.averaged.log_variance + 2.0)),  # far too wide
        ("rejection", lambda said: Gaussian(said.mean, torch.zeros_like(said.mean) + torch.rand(said.mean.shape))),
    ],
)
def test_continuous_targets_beyond_the_margin(what, student):
    torch.manual_seed(0)
    _, found = forecast_verdict(student)
    assert found.states[what] == "lost", told(found)
    assert not found.deploy_student


def test_an_rmse_across_the_margin_is_unclear():
    result, found = forecast_verdict(lambda said: shifted(said, 0.29), size=1000)
    gap, theirs = result.difference("student", "ensemble", "RMSE"), result.rows["ensemble"]["RMSE"]
    assert 0 < gap.value < 0.05 * theirs < gap.high
    assert found.states["accuracy"] == "unclear"
    assert "per cent of the ensemble's" in told(found)
    assert not found.deploy_student


def test_over_confident_forecasts_are_not_deployed():
    _, found = forecast_verdict(lambda said: Gaussian(said.mean, said.averaged.log_variance - 2.0))
    assert found.deploy == "ensemble"
    assert any("over-confident" in s for s in found.sentences)
    assert found.states["calibration"] == "lost"


def test_a_single_forecast_is_calibrated_too():
    result, found = forecast_verdict(
        lambda said: Gaussian(said.mean, said.averaged.log_variance),
        single=lambda said: Gaussian(said.mean, said.averaged.log_variance - 3.0),
    )
    assert result.rows["single, calibrated"]["NLL"] == pytest.approx(result.rows["student"]["NLL"], abs=0.02)
    assert result.rows["single"]["NLL"] > result.rows["student"]["NLL"] + 1
    assert found.better["single"] == ("NLL",)
    assert found.better["single, calibrated"] == ()


# in the report, and saved


def test_the_report_shows_what_the_rules_say(tmp_path):
    world = World(300)
    result = world.evaluated(world.said(), single=world.without_knowledge())
    (entry,) = content(result)["verdicts"]
    assert entry["undecided"]
    assert not entry["deploy"]
    page = report(result, tmp_path / "report.html").read_text()
    assert "Do not deploy yet" in page
    assert "single, calibrated" in page
    again = Evaluation.load(result.save(tmp_path / "evaluation"))
    assert verdict(again, "student", single="single") == verdict(result, "student", single="single")
    assert again.role("single, calibrated") == "other"
    assert again.students == ("student",)
