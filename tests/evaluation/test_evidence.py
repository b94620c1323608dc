"""Intervals hold the truth as often as they say, and do not collapse where nothing was seen."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from solera import metrics
from solera.distributions import Categorical
from solera.evaluation import evaluate, verdict
from solera.evaluation.intervals import interval, interval_of_inflated
from solera.evaluation.shares import Z, beta_cdf, exact, least_examples, least_width, paired


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0.5, 5000), st.floats(0.5, 5000))
def test_the_beta_distribution_is_scipys(x, a, b):
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-10)


@pytest.mark.parametrize(("count", "size"), [(0, 3), (3, 3), (1, 10), (17, 40), (990, 1000), (400_000, 1_000_000)])
def test_the_interval_of_a_share_is_scipys_exact_one(count, size):
    found = stats.binomtest(count, size).proportion_ci(0.95, "exact")
    assert exact(count, size) == pytest.approx((found.low, found.high), abs=1e-9)


def score_by_brute_force(difference, better, worse, size):
    """Tango's statistic with its nuisance parameter from maximising the likelihood, not from his formula."""
    least = max(0.0, -difference)

    def loss(q):  # q = P(only the second is right), so P(only the first) = q + difference
        cells = (better, q + difference), (worse, q), (size - better - worse, 1 - 2 * q - difference)
        return -sum(count * np.log(max(p, 1e-300)) for count, p in cells if count)

    q = optimize.minimize_scalar(
        loss, bounds=(least, (1 - difference) / 2), method="bounded", options={"xatol": 1e-12}
    ).x
    return (better - worse - size * difference) / np.sqrt(size * (2 * q + difference - difference**2))


@pytest.mark.parametrize(("better", "worse", "size"), [(12, 30, 200), (40, 45, 500), (20, 4, 60)])
def test_paired_ends_solve_the_score_equation(better, worse, size):
    """With discordant pairs enough that the exact test does not widen them."""
    low, high = paired(better, worse, size)
    tango = [
        optimize.brentq(lambda d, z=z: score_by_brute_force(d, better, worse, size) - z, -0.9, 0.9) for z in (Z, -Z)
    ]
    ends = [(2 * p - 1) * (better + worse) / size for p in stats.binomtest(better, better + worse).proportion_ci(0.95)]
    assert low == pytest.approx(min(tango[0], ends[0]), abs=1e-6)
    assert high == pytest.approx(max(tango[1], ends[1]), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2000))
def test_a_paired_interval_is_never_surer_than_mcnemars_exact_test(better, worse, alike):
    size = better + worse + alike + 1
    low, high = paired(better, worse, size)
    value = (better - worse) / size
    assert low < value < high
    sure = better + worse > 0 and stats.binomtest(better, better + worse).pvalue < 0.05
    assert sure or low <= 0 <= high
    assert paired(worse, better, size) == pytest.approx((-high, -low), abs=1e-9)


def test_examples_that_all_agree_prove_as_much_as_there_are_of_them():
    assert paired(0, 0, 3)[1] == pytest.approx(least_width(3)) == pytest.approx(0.5615, abs=1e-3)
    assert least_examples(0.01) == 381
    assert paired(0, 0, 381)[1] <= 0.01 < paired(0, 0, 380)[1]


@pytest.mark.parametrize(("size", "apart"), [(60, 0.02), (60, 0.2), (400, 0.05), (400, 0.3)])
def test_paired_intervals_hold_the_truth(size, apart):
    """Over many samples: the true difference, here +2 % of what is apart, lies inside 95 times in 100 or more."""
    random, held = np.random.default_rng(0), 0
    chances = [0.6 * apart, 0.4 * apart, 1 - apart]
    for _ in range(400):
        better, worse, _ = random.multinomial(size, chances).tolist()
        low, high = paired(better, worse, size)
        held += low <= 0.2 * apart <= high
    assert held >= 374  # 95 % of 400 less one and a half standard errors


# calibration error


def resampled(confidences, right, count, random):
    found = np.empty((count, len(confidences)))
    for number in range(count):
        rows = random.integers(0, len(right), len(right))
        found[number] = [metrics.confidence_ece(c[rows], right[rows]) for c in confidences]
    return found


@pytest.mark.parametrize("over", [0.0, 0.02, 0.1])
def test_intervals_of_the_ece_are_corrected_for_its_bias(over):
    """A model that is surer than it should be by `over`, beside a calibrated one: own interval and difference."""
    random = np.random.default_rng(0)
    many = 0.3 + 0.6 * random.random(1_000_000)
    truth = np.abs(np.histogram(many + over, np.arange(16) / 15, weights=np.full(len(many), over))[0]).sum() / len(many)
    own = gaps = above = naive = 0
    for _ in range(60):
        calm = 0.3 + 0.6 * random.random(600)
        right = random.random(600) < calm
        drawn = resampled((calm + over, calm), right, 60, random)
        values = [metrics.confidence_ece(c, right) for c in (calm + over, calm)]
        found = interval_of_inflated(values[0], drawn[:, 0])
        own += max(found.low, 0) <= truth <= found.high
        above += not found.low <= found.value <= found.high
        naive += interval(values[0], drawn[:, 0]).low > truth
        gap = interval_of_inflated(values[0], drawn[:, 0], values[1], drawn[:, 1])
        gaps += gap.low <= truth <= gap.high
    assert above == 0
    assert own >= 48  # 80 %, where the plain bootstrap holds none if the model is calibrated
    assert gaps >= 48
    if over < 0.1:
        assert naive >= 50


# through `evaluate`


def judged_tokens(right, theirs, length):
    """Sequences of `length` tokens of two classes, all as sure as 0.9."""

    def said(correct):
        probabilities = torch.where(
            torch.from_numpy(correct).unsqueeze(-1), torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9])
        )
        return {"test": Categorical(probabilities.log())}

    labels = torch.zeros(len(right), length, dtype=torch.long)
    return evaluate(
        {"ensemble": said(theirs), "student": said(right)}, torch.zeros(len(right), length), labels, resamples=80
    )


def test_tokens_of_one_sentence_are_not_independent():
    """A sentence is right or wrong as a whole: the interval is that of 300 sentences, not that of 3,000 tokens."""
    random = np.random.default_rng(0)
    right, theirs = (np.repeat(random.random((300, 1)) < 0.8, 10, 1) for _ in range(2))
    result = judged_tokens(right, theirs, 10)
    found = result.difference("student", "ensemble", "accuracy")
    sentences = paired(int((right & ~theirs)[:, 0].sum()), int((theirs & ~right)[:, 0].sum()), 300)
    assert found.high - found.low == pytest.approx(sentences[1] - sentences[0], rel=0.25)
    own = result.interval("student", "accuracy")
    low, high = exact(int(right[:, 0].sum()), 300)
    assert own.high - own.low == pytest.approx(high - low, rel=0.25)


def test_tokens_that_are_all_right_do_not_collapse():
    right = np.ones((200, 10), bool)
    result = judged_tokens(right, right, 10)
    found = result.difference("student", "ensemble", "accuracy")
    assert found.high == -found.low == pytest.approx(least_width(200))
    own = result.interval("student", "accuracy")
    assert (own.low, own.high) == (pytest.approx(1 - least_width(200)), 1)
    assert verdict(result, "student").states["accuracy"] == "unclear"


def test_weighted_examples_are_resampled():
    """Exact counts say nothing about weights."""
    from solera.data import Batches

    random = np.random.default_rng(0)
    right = random.random(400) < 0.8
    weight = torch.from_numpy(np.where(right, 1.0, 5.0))
    said = {
        "test": Categorical(
            torch.where(torch.from_numpy(right).unsqueeze(1), torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9])).log()
        )
    }
    batches = Batches(torch.zeros(400, 1), torch.zeros(400, dtype=torch.long), weight=weight)
    result = evaluate({"ensemble": said, "student": said}, batches, resamples=80)
    found = result.interval("student", "accuracy")
    assert found.value == pytest.approx(np.average(right, weights=weight.numpy()))
    assert found.low < found.value < found.high
    assert found.value < exact(int(right.sum()), 400)[0]


def test_differences_are_paired():
    random = np.random.default_rng(0)
    said = {"test": Categorical(torch.from_numpy(random.normal(size=(500, 3))))}
    result = evaluate(
        {"ensemble": said, "student": said}, torch.zeros(500, 1), torch.zeros(500, dtype=torch.long), resamples=20
    )
    gap, own = result.difference("student", "ensemble", "NLL"), result.interval("student", "NLL")
    assert gap.low == gap.high == 0
    assert own.low < own.value < own.high
