"""The rules, on made-up models of every kind."""

import numpy as np
import pytest
import torch

from solera.distributions import Categorical, Dirichlet, Gaussian, Mixture
from solera.evaluation import evaluate, verdict

N, K, M = 1500, 4, 6
TEST, OTHER = torch.zeros(N, 1), torch.ones(600, 1)  # which inputs: the made-up models answer by the first number


class Model:
    """Answers one thing on the test inputs and another on unfamiliar ones."""

    def __init__(self, test, other):
        self.answers = {0.0: test, 1.0: other}

    def predict(self, inputs):
        answer = self.answers[float(inputs[0, 0])]
        rows = len(inputs)  # timing asks for fewer
        fields = [t[:rows] for t in vars(answer).values() if isinstance(t, torch.Tensor)]
        if isinstance(answer, Mixture):
            return Mixture(type(answer.members)(*(t[:rows] for t in vars(answer.members).values())))
        return type(answer)(*fields)


def classes(seed=0, sharp=1.0, noise=0.0, spread=0.7, labels=None):
    """An ensemble whose members scatter more on unfamiliar inputs, and labels it is right about."""
    g = torch.Generator().manual_seed(seed)
    centre = 2.0 * torch.randn(N, 1, K, generator=torch.Generator().manual_seed(0))
    own = sharp * (centre + noise * torch.randn(N, 1, K, generator=g))
    size = torch.rand(N, 1, 1, generator=torch.Generator().manual_seed(2)) + 0.2
    test = own + spread * size * torch.randn(N, M, K, generator=g)
    other = 0.5 * torch.randn(600, 1, K, generator=g) + 4 * spread * torch.randn(600, M, K, generator=g)
    return Mixture(Categorical(test)), Mixture(Categorical(other))


ENSEMBLE = classes()
LABELS = torch.multinomial(ENSEMBLE[0].mean, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)


def dirichlet(mixture, scale=1.0):
    """A student that kept everything: the Dirichlet with the mixture's mean and mutual information, nearly."""
    precision = (K - 1) / (2 * mixture.rmi.clamp(min=1e-3))
    return Dirichlet(mixture.mean * scale * precision.unsqueeze(-1) + 1e-3)


def judge(student, single=None, baseline=None):
    models = {"ensemble": Model(*ENSEMBLE), "student": Model(*student)}
    models |= {} if single is None else {"single": Model(*single)}
    models |= {} if baseline is None else {"refit": Model(*baseline)}
    result = evaluate(models, TEST, LABELS, unfamiliar={"other": OTHER}, resamples=60)
    given = {"single": "single" if single else None, "baseline": "refit" if baseline else None}
    return verdict(result, "student", **given)


GOOD = tuple(dirichlet(part) for part in ENSEMBLE)
SINGLE = tuple(Categorical(part.members.logits[:, 0]) for part in ENSEMBLE)


def test_a_student_that_kept_everything_is_deployed():
    found = judge(GOOD, single=SINGLE)
    assert found.states == {"accuracy": "kept", "honesty": "kept", "knowledge": "kept", "rejection": "kept"}
    assert found.deploy_student
    assert found.use_knowledge
    assert found.sentences[0].startswith("Deploy the student.")
    assert any("surely better than single" in s or "about as good as single" in s for s in found.sentences)


def test_a_student_that_ignores_knowledge_is_for_predictions_only():
    random = tuple(
        Dirichlet(
            part.mean * (10 + 1e4 * torch.rand(len(part.mean), 1, generator=torch.Generator().manual_seed(3))) + 1e-3
        )
        for part in ENSEMBLE
    )
    for student in (random, tuple(part.averaged for part in ENSEMBLE)):
        found = judge(student)
        assert found.states["knowledge"] == "lost", found.sentences
        assert found.deploy_student
        assert not found.use_knowledge
        assert "for its predictions only" in found.sentences[0]


def test_an_over_confident_student_is_not_deployed():
    sharp = classes(sharp=3.0, spread=0.7)
    found = judge(tuple(dirichlet(part, 50.0) for part in sharp))
    assert not found.deploy_student
    assert found.deploy == "ensemble"
    assert "Do not deploy this student" in found.sentences[0]
    assert any("over-confident and the ensemble is not" in s for s in found.sentences)


def test_a_student_worse_than_one_member_is_not_deployed():
    poor = classes(seed=5, noise=2.5)
    found = judge(tuple(dirichlet(part) for part in poor), single=SINGLE)
    assert found.states["accuracy"] == "lost"
    assert found.deploy == "single"
    assert "Do not deploy this student: single alone is better" in found.sentences[0]


def test_a_better_baseline_wins_over_a_student_without_knowledge():
    blurred = tuple(Categorical(part.averaged.logits * 0.8) for part in ENSEMBLE)
    best = tuple(part.averaged for part in ENSEMBLE)
    found = judge(blurred, baseline=best)
    assert found.deploy == "refit", found
    assert judge(GOOD, baseline=best).deploy != "refit"


def test_too_little_data_is_unclear_not_kept():
    rows = slice(0, 60)
    short = [Mixture(Categorical(ENSEMBLE[0].members.logits[rows])), ENSEMBLE[1]]
    student = [dirichlet(short[0]), GOOD[1]]
    noisy = Dirichlet(student[0].concentration * (1 + torch.rand(60, K)))
    models = {"ensemble": Model(*short), "student": Model(noisy, GOOD[1])}
    result = evaluate(models, TEST[rows], LABELS[rows], unfamiliar={"other": OTHER}, resamples=60)
    found = verdict(result, "student")
    assert "unclear" in found.states.values()
    assert "More test data" in found.sentences[0] or "more test data" in found.sentences[0]


def test_an_ensemble_without_knowledge_has_none_to_keep():
    same = tuple(Mixture(Categorical(part.averaged.logits.unsqueeze(-2).repeat(1, 2, 1))) for part in ENSEMBLE)
    models = {"ensemble": Model(*same), "student": Model(*(part.averaged for part in ENSEMBLE))}
    result = evaluate(models, TEST, LABELS, unfamiliar={"other": OTHER}, resamples=20)
    found = verdict(result, "student")
    assert found.states["knowledge"] == "none"
    assert found.deploy_student
    assert not found.use_knowledge


def test_regression_has_its_own_rules():
    torch.manual_seed(0)
    mean = torch.randn(N, M, 1) * torch.rand(N, 1, 1) + 3 * torch.randn(N, 1, 1)
    test, other = (
        Mixture(Gaussian(mean, torch.zeros(N, M, 1))),
        Mixture(Gaussian(5 * torch.randn(600, M, 1), torch.zeros(600, M, 1))),
    )
    y = test.mean.squeeze(1) + test.total.sqrt() * torch.randn(N)
    over = tuple(Gaussian(part.mean, part.averaged.log_variance - 3) for part in (test, other))
    models = {"ensemble": Model(test, other), "same": Model(test, other), "over": Model(*over)}
    result = evaluate(models, TEST, y, unfamiliar={"other": OTHER}, resamples=40)
    kept = verdict(result, "same")
    assert kept.deploy == "same"
    assert kept.use_knowledge
    found = verdict(result, "over")
    assert found.deploy == "ensemble"
    assert found.states["honesty"] == "lost"
    assert any("over-confident" in s for s in found.sentences)


def test_a_verdict_needs_intervals_and_known_models():
    models = {"ensemble": Model(*ENSEMBLE), "student": Model(*GOOD)}
    with pytest.raises(ValueError, match="resamples=200"):
        verdict(evaluate(models, TEST, LABELS), "student")
    result = evaluate(models, TEST, LABELS, resamples=3)
    with pytest.raises(ValueError, match="there is no model 'other'"):
        verdict(result, "other")


def test_intervals_hold_what_they_should():
    """Over many samples of examples the interval of the accuracy holds the truth about 95 times in 100."""
    from solera.evaluation.intervals import bootstrap, interval

    generator, held = np.random.default_rng(0), 0
    for seed in range(60):
        right = generator.random(300) < 0.8
        every = {"model": {"test": {"correct": right}}}
        drawn = bootstrap(
            every, lambda e: {"model": {"accuracy": float(e["model"]["test"]["correct"].mean())}}, 200, seed
        )
        found = interval(right.mean(), drawn["model"]["accuracy"])
        held += found.low <= 0.8 <= found.high
    assert 51 <= held <= 60


def test_differences_are_paired():
    models = {"ensemble": Model(*ENSEMBLE), "student": Model(*ENSEMBLE)}
    result = evaluate(models, TEST, LABELS, resamples=20)
    gap, own = result.difference("student", "ensemble", "NLL"), result.interval("student", "NLL")
    assert gap.low == gap.high == 0
    assert own.low < own.value < own.high
