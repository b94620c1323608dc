"""Measures of whole sequences against 60-digit arithmetic, brute force over all sequences, and the traps of METHODS."""

import itertools
import math

import hypothesis.extra.numpy as arrays
import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.distributions import (
    Categorical,
    Dirichlet,
    Gaussian,
    Mixture,
    SequencePrediction,
    aggregate,
    summarize,
    summarize_top,
)
from solera.distributions.scores import dirichlet_score_rmi, prefix_weights
from tests import referee
from tests.distributions.inputs import FLOATS, LEVELS, quick

MEASURES = ["total", "data", "knowledge", "epkl", "rmi"]
SCORES = ["score_total", "score_data", "score_rmi", "log_prob"]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}

some_logits = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(2, 5)),  # T M K
    elements=st.one_of(st.sampled_from(LEVELS), st.floats(-40, 40, width=32)),
)


def predicted(logits, tokens, mask=None, combine="product", weights=None) -> SequencePrediction:
    return SequencePrediction(Mixture(Categorical(logits), weights), torch.as_tensor(tokens), mask, combine)


def ensemble(logits, tokens, combine, prior=None):
    """Every measure of one sequence, logits [T, M, K], as METHODS writes it, in 60 digits."""
    members = len(logits[0])
    prior = [mp.mpf(1) / members] * members if prior is None else [mp.mpf(float(w)) for w in prior]
    joint, per_token, scores, each = [mp.mpf(1)] * members, [], [], [mp.mpf(0)] * members
    for rows, y in zip(logits, tokens, strict=True):
        rows = [referee.numbers(row) for row in rows]
        probs = [referee.softmax(row) for row in rows]
        weights = prior
        if combine == "expectation":
            size = mp.fsum(w * p for w, p in zip(prior, joint, strict=True))
            weights = [w * p / size for w, p in zip(prior, joint, strict=True)]
        per_token.append(referee.mixture(rows, weights))
        scores.append(mp.log(mp.fsum(w * p[y] for w, p in zip(weights, probs, strict=True))))
        joint = [p * q[y] for p, q in zip(joint, probs, strict=True)]
        each = [s + mp.log(q[y]) for s, q in zip(each, probs, strict=True)]
    length = len(tokens)
    result = {name: mp.fsum(token[name] for token in per_token) / length for name in MEASURES}
    data = -mp.fsum(w * s for w, s in zip(prior, each, strict=True)) / length
    total = -mp.fsum(scores) / length
    result |= {"score_total": total, "score_data": data, "score_rmi": data - total, "log_prob": mp.fsum(scores)}
    result["joint"] = mp.log(mp.fsum(w * p for w, p in zip(prior, joint, strict=True)))
    return result, per_token


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("combine", ["product", "expectation"])
@pytest.mark.parametrize("kind", ["ordinary", "cruel", "identical", "one member", "weighted"])
def test_every_measure_of_an_ensemble(kind, combine, dtype):
    generator = np.random.default_rng(0)
    levels = LEVELS if kind == "cruel" else (-3.0, -1.0, 0.0, 0.5, 2.0)
    logits = generator.choice(levels, (7, 1 if kind == "one member" else 3, 5))
    if kind == "identical":
        logits[:] = logits[:, :1]
    prior = np.array([0.5, 0.5, 0.0]) if kind == "weighted" else None
    tokens = generator.integers(0, 5, 7)
    true, per_token = ensemble(logits, tokens, combine, prior)
    z = torch.tensor(logits, dtype=dtype)
    weights = None if prior is None else torch.tensor(prior, dtype=dtype).expand(7, 3)
    if prior is not None:
        z[:, 2] = math.nan  # a member that must not speak is not read
    ours = predicted(z, tokens, combine=combine, weights=weights)
    for name in [*MEASURES, *SCORES]:
        value = getattr(ours, name)
        assert value.dtype == dtype
        exact = true[name]
        assert abs(mp.mpf(value.item()) - exact) <= TOLERANCE[dtype] * (abs(exact) + 0.01), (name, value, exact)
    for name in MEASURES:
        exact = [float(token[name]) for token in per_token]
        torch.testing.assert_close(
            getattr(ours, f"token_{name}").double(), torch.tensor(exact).double(), rtol=1e-5, atol=1e-6
        )
    if combine == "expectation":
        assert abs(true["joint"] - mp.mpf(ours.log_prob.item())) <= TOLERANCE[dtype] * abs(true["joint"])


@pytest.mark.parametrize("combine", ["product", "expectation"])
def test_the_probabilities_of_all_sequences_sum_to_one(combine):
    """Members are given as functions of the prefix; Σ_y P(y) = 1, and expectation of products is the mean of P_m(y)."""
    torch.manual_seed(0)
    members, classes, length = 3, 3, 4
    table = {
        prefix: 2 * torch.randn(members, classes, dtype=torch.double)
        for n in range(length)
        for prefix in itertools.product(range(classes), repeat=n)
    }
    sequences = list(itertools.product(range(classes), repeat=length))
    logits = torch.stack([torch.stack([table[y[:t]] for t in range(length)]) for y in sequences])
    y = torch.tensor(sequences)
    ours = predicted(logits, y, combine=combine)
    torch.testing.assert_close(ours.log_prob.exp().sum(), torch.tensor(1.0).double())
    own = logits.log_softmax(-1).gather(-1, y[..., None, None].expand(-1, -1, members, 1)).squeeze(-1).sum(1)
    if combine == "expectation":
        torch.testing.assert_close(ours.log_prob, own.exp().mean(-1).log())
        # the chain rule: the entropy of whole sequences is the expected sum of the steps' entropies
        p = ours.log_prob.exp()
        torch.testing.assert_close((p * ours.total * length).sum(), -(p * p.log()).sum())
        knowledge = -(p * p.log()).sum() + (own.exp() * own).sum(0).mean()
        torch.testing.assert_close((p * ours.knowledge * length).sum(), knowledge)
    else:
        assert not torch.allclose(ours.log_prob, own.exp().mean(-1).log())


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_long_sequence_whose_likelihood_underflows(dtype):
    """e^{−5000} and less: the better member takes all, and the sum of scores is the mean of the likelihoods."""
    torch.manual_seed(0)
    logits, tokens = 6 * torch.randn(1000, 2, 8, dtype=torch.double), torch.randint(8, (1000,))
    logits = logits.to(dtype)
    own = logits.double().log_softmax(-1).gather(-1, tokens[:, None, None].expand(-1, 2, 1)).squeeze(-1).sum(0)
    assert own.max() < -5000
    ours = predicted(logits, tokens, combine="expectation")
    torch.testing.assert_close(ours.log_prob.double(), own.logsumexp(0) - math.log(2), rtol=1e-6, atol=0)
    assert all(getattr(ours, name).isfinite().all() for name in [*MEASURES, *SCORES])
    assert ours._weights is not None
    assert ours._weights[-1].max() == 1
    assert (ours._weights[0] == 0.5).all()


@quick
@given(some_logits, st.sampled_from(["product", "expectation"]), st.integers(0, 100))
def test_identities_and_signs(logits, combine, seed):
    """EPKL = MI + RMI at token and sequence level; MI is never negative, as it is in released code."""
    tokens = np.random.default_rng(seed).integers(0, logits.shape[-1], len(logits))
    ours = predicted(torch.tensor(logits), tokens, combine=combine)
    for of in ("token_", ""):
        value = {name: getattr(ours, of + name) for name in MEASURES}
        torch.testing.assert_close(value["epkl"], value["knowledge"] + value["rmi"], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(value["total"], value["data"] + value["knowledge"], rtol=1e-4, atol=2e-5)
        assert all((v >= 0).all() for v in value.values())
    torch.testing.assert_close(ours.score_data, ours.score_total + ours.score_rmi, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.log_prob, -ours.score_total * len(tokens), rtol=1e-5, atol=1e-6)
    assert ours.score_rmi >= 0
    if logits.shape[1] == 1:
        assert ours.knowledge == ours.rmi == ours.score_rmi == 0


@quick
@given(some_logits, st.integers(0, 100))
def test_epkl_is_a_mean_over_all_ordered_pairs(logits, seed):
    """Released code sums over the pairs; with members weighted by the prefix, pairs are weighted by both."""
    tokens = np.random.default_rng(seed).integers(0, logits.shape[-1], len(logits))
    log_p = torch.tensor(logits).double().log_softmax(-1)
    for combine in ("product", "expectation"):
        ours = predicted(torch.tensor(logits).double(), tokens, combine=combine)
        w = torch.full(logits.shape[:2], 1 / logits.shape[1]).double() if ours._weights is None else ours._weights
        kl = (log_p.exp().unsqueeze(2) * (log_p.unsqueeze(2) - log_p.unsqueeze(1))).sum(-1)
        pairs = (w.unsqueeze(2) * w.unsqueeze(1) * kl).sum((1, 2))
        torch.testing.assert_close(ours.token_epkl, pairs, rtol=1e-7, atol=1e-9)


def test_weighting_p_bar_alone_would_make_knowledge_negative():
    """The trap in released code: H[Σ_m w_m(t) p_m] less the unweighted mean of H[p_m]."""
    sure, unsure = [9.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    logits = torch.tensor([[sure, unsure]] * 4)
    ours = predicted(logits, [0, 0, 0, 0], combine="expectation")
    weights = ours._weights
    assert weights is not None
    mean = (weights.unsqueeze(-1) * logits.softmax(-1)).sum(-2)
    trap = Categorical(mean.log()).total - Categorical(logits).total.mean(-1)
    assert trap[-1] < -0.4
    assert (ours.token_knowledge >= 0).all()
    assert ours.token_knowledge[-1] < ours.token_knowledge[0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["ordinary", "sure", "surer", "surest", "flat", "tiny", "large"])
def test_every_measure_of_a_dirichlet(kind, dtype):
    generator = np.random.default_rng(0)
    concentration = {
        "ordinary": generator.choice([0.3, 0.7, 1.0, 2.5, 8.0], (5, 6)),
        "sure": np.tile([1e5, 1, 1, 1, 1, 1], (5, 1)),
        "surer": np.tile([1e8, 1, 2, 1, 1, 0.5], (5, 1)),
        "surest": np.tile([1e17, 1, 1, 3, 1, 1], (5, 1)),
        "flat": np.ones((5, 6)),
        "tiny": generator.choice([1e-17, 1e-8, 1e-3], (5, 6)),
        "large": generator.choice([1e5, 3e6], (5, 6)),
    }[kind]
    alpha = torch.tensor(concentration, dtype=dtype)
    tokens = [0, 0, 0, 0, 0] if "sure" in kind else [0, 5, 2, 3, 1]
    ours = SequencePrediction(Dirichlet(alpha), torch.tensor(tokens))
    rows = [referee.numbers(row) for row in alpha]
    total = mp.fsum(mp.log(mp.fsum(row)) - mp.log(row[y]) for row, y in zip(rows, tokens, strict=True)) / 5
    data = mp.fsum(mp.digamma(mp.fsum(row)) - mp.digamma(row[y]) for row, y in zip(rows, tokens, strict=True)) / 5
    true = {"score_total": total, "score_data": data, "score_rmi": data - total, "log_prob": -5 * total}
    tolerance = {torch.float32: 2e-7, torch.float64: 1e-9}[dtype]
    for name, exact in true.items():
        value = getattr(ours, name)
        assert value.dtype == dtype
        assert abs(mp.mpf(value.item()) - exact) <= tolerance * abs(exact), (name, value.item(), exact)
    for name in MEASURES:
        exact = float(mp.fsum(referee.dirichlet(row)[name] for row in rows) / 5)
        assert getattr(ours, name).item() == pytest.approx(exact, rel=1e-4, abs=1e-6), name


@quick
@given(st.floats(-15, 17), st.floats(-15, 17))
def test_the_score_of_a_dirichlet_is_exact_at_every_size(a, r):
    chosen, rest = torch.tensor([10.0**a, 10.0**r], dtype=torch.double)
    ours = dirichlet_score_rmi(chosen, rest).item()
    x, y = referee.numbers([chosen, rest])
    exact = mp.digamma(x + y) - mp.digamma(x) + mp.log(x / (x + y))
    assert abs(ours - exact) <= 1e-8 * abs(exact)


def test_a_dirichlet_score_is_what_samples_show():
    alpha = np.array([2.0, 5.0, 0.7])
    samples = np.log(np.random.default_rng(0).dirichlet(alpha, 200_000)[:, 2])
    ours = SequencePrediction(Dirichlet(torch.tensor(alpha[None])), torch.tensor([2]))
    doubt = samples.std() / math.sqrt(len(samples))
    assert abs(ours.score_data.item() + samples.mean()) < 5 * doubt
    assert abs(ours.score_total.item() + math.log(0.7 / 7.7)) < 1e-12


def test_a_concentration_that_underflowed_is_no_nan():
    ours = SequencePrediction(Dirichlet(torch.tensor([[0.0, 3.0], [1.0, 3.0]])), torch.tensor([0, 1]))
    assert not any(getattr(ours, name).isnan().any() for name in [*MEASURES, *SCORES])


@pytest.mark.parametrize("combine", ["product", "expectation"])
@pytest.mark.parametrize("kind", ["mixture", "weighted", "dirichlet", "mean", "top", "single"])
def test_padding_is_not_read(kind, combine):
    if combine == "expectation" and kind in ("dirichlet", "mean", "top"):
        pytest.skip("no members to weigh")
    torch.manual_seed(0)
    logits, tokens = torch.randn(2, 6, 3, 4), torch.randint(4, (2, 6))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0]])  # a prompt, a hole and padding
    weights = torch.tensor([0.2, 0.8, 0.0]).expand(2, 6, 3)

    def sequence(z, y, m, w):
        if kind == "mixture":
            steps = Mixture(Categorical(z))
        elif kind == "weighted":
            steps = Mixture(Categorical(z), w)
        elif kind == "dirichlet":
            steps = Dirichlet(z[..., 0, :].exp())
        elif kind == "single":
            steps = Categorical(z[..., 0, :])
        else:
            full = Mixture(Categorical(z.nan_to_num()))
            steps = summarize(full) if kind == "mean" else summarize_top(full, 2)
        return SequencePrediction(steps, y, m, combine)

    spoilt = logits.masked_fill((mask == 0)[..., None, None], math.nan)
    ours = sequence(
        spoilt, tokens.masked_fill(mask == 0, -100), mask, weights.masked_fill((mask == 0)[..., None], math.nan)
    )
    kept = [1, 2, 4]
    short = sequence(logits[1:, kept], tokens[1:, kept], None, weights[1:, kept])
    assert ours.length.tolist() == [6, 3]
    scores = ["score_total", "log_prob"] if kind in ("mean", "top") else SCORES
    for name in [*MEASURES, *scores]:
        torch.testing.assert_close(getattr(ours, name)[1:], getattr(short, name), msg=name)
    for name in MEASURES:
        assert (getattr(ours, f"token_{name}")[mask == 0] == 0).all()
        torch.testing.assert_close(getattr(ours, f"token_{name}")[1:, kept], getattr(short, f"token_{name}"))


def test_gradients_do_not_come_from_padding():
    logits = (
        torch.randn(4, 2, 3).masked_fill(torch.tensor([0, 0, 0, 1]).bool()[:, None, None], math.nan).requires_grad_()
    )
    ours = predicted(logits, [0, 1, 2, 0], torch.tensor([1, 1, 1, 0]), "expectation")
    for name in [*MEASURES, *SCORES]:
        (slope,) = torch.autograd.grad(getattr(ours, name), logits, retain_graph=True)
        assert slope.isfinite().all(), name
        assert (slope[3] == 0).all()


def test_a_sequence_without_tokens_is_harmless():
    logits = torch.full((2, 3, 2, 4), math.nan)
    logits[1] = 0.0
    ours = predicted(logits, torch.zeros(2, 3, dtype=torch.long), torch.tensor([[0, 0, 0], [1, 1, 1]]), "expectation")
    for name in [*MEASURES, *SCORES]:
        assert getattr(ours, name)[0] == 0
        assert getattr(ours, name)[1].isfinite()


def test_a_member_that_rules_the_token_out():
    z = torch.tensor([[[0.0, 0.0], [0.0, -math.inf]]] * 3)
    for combine in ("product", "expectation"):
        ours = predicted(z, [1, 1, 1], combine=combine)
        expected = 3 * math.log(0.25) if combine == "product" else math.log(0.125 / 2)
        assert ours.log_prob.item() == pytest.approx(expected)
        assert ours.score_data == ours.score_rmi == math.inf
        assert not ours.token_knowledge.isnan().any()
    nobody = predicted(torch.tensor([[[0.0, -math.inf]] * 2] * 2), [1, 0], combine="expectation")
    assert nobody.log_prob == -math.inf
    assert not any(getattr(nobody, name).isnan() for name in [*MEASURES, *SCORES])


@pytest.mark.parametrize("keep", [None, 3])
def test_from_the_store(keep):
    """What a transfer set kept gives every measure; what it did not keep is refused with the remedy."""
    torch.manual_seed(0)
    mixture, tokens = Mixture(Categorical(3 * torch.randn(2, 5, 4, 7))), torch.randint(7, (2, 5))
    steps = summarize(mixture) if keep is None else summarize_top(mixture, keep)
    ours, live = SequencePrediction(steps, tokens), SequencePrediction(mixture, tokens)
    for name in MEASURES:
        torch.testing.assert_close(getattr(ours, name), getattr(live, name), rtol=1e-4, atol=1e-5)
    if keep is None:
        torch.testing.assert_close(ours.log_prob, live.log_prob)
    for name in ("score_data", "score_rmi"):
        with pytest.raises(ValueError, match="codec='dense'"):
            getattr(ours, name)
    with pytest.raises(ValueError, match="have no members: capture with codec='dense'"):
        SequencePrediction(steps, tokens, combine="expectation")


def test_one_model_alone_has_no_knowledge():
    logits, tokens = torch.randn(3, 5, 4), torch.randint(4, (3, 5))
    ours = SequencePrediction(Categorical(logits), tokens)
    torch.testing.assert_close(ours.data, ours.total)
    assert (ours.knowledge == 0).all()
    torch.testing.assert_close(ours.log_prob, Categorical(logits).log_prob(tokens).sum(-1))


@quick
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(1, 5)), elements=st.floats(-5, 5)),
    st.floats(0.1, 10),
    st.one_of(st.none(), st.integers(1, 6)),
)
def test_aggregate_by_hand(values, temperature, best):
    log_probs = np.random.default_rng(values.size).uniform(-900, -800, values.shape)
    ours = aggregate(torch.tensor(values), torch.tensor(log_probs), temperature, best)
    for row, value in enumerate(ours.tolist()):
        v, w = values[row, :best], [mp.exp(mp.mpf(x) / mp.mpf(temperature)) for x in log_probs[row, :best]]
        exact = mp.fsum(a * b for a, b in zip(v, w, strict=True)) / mp.fsum(w)
        assert abs(value - exact) <= 1e-9 * (1 + abs(exact))


def test_aggregate_at_the_edges():
    values = torch.tensor([1.0, 3.0, math.inf])
    assert aggregate(values, torch.tensor([-1e5, -1e5, -math.inf])) == 2.0
    assert aggregate(values, torch.tensor([-5.0, -5000.0, 0.0]), best=1) == 1.0
    assert aggregate(values[:2], torch.tensor([-5.0, -5000.0]), temperature=math.inf) == 2.0  # samples: Monte Carlo
    assert aggregate(values[:2], torch.full((2,), -math.inf)) == 2.0
    assert aggregate(values[:2].double(), torch.zeros(2)).dtype == torch.double
    for run, message in (
        (lambda: aggregate(values[:0], values[:0]), "with one hypothesis at least"),
        (lambda: aggregate(values, values, best=0), "best must be at least 1"),
        (lambda: aggregate(values, values, temperature=0.0), "temperature must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            run()


def test_weighting_an_n_best_list_gives_the_expectation_over_all_sequences():
    """With every sequence in the list the sum is exact, Σ_y P(y)·value(y); equal weights for samples come close."""
    torch.manual_seed(0)
    sequences = torch.tensor(list(itertools.product(range(3), repeat=3)))
    logits = torch.randn(3, 2, 3, dtype=torch.double).expand(27, 3, 2, 3)
    ours = predicted(logits, sequences)
    p = ours.log_prob.exp()
    entropy = -(p * p.log()).sum() / 3
    torch.testing.assert_close(aggregate(ours.score_total, ours.log_prob), entropy)
    drawn = torch.multinomial(p, 20_000, replacement=True)
    mean = aggregate(ours.score_total[drawn], ours.log_prob[drawn], temperature=math.inf)
    assert abs(mean - entropy) < 5 * ours.score_total[drawn].std() / math.sqrt(20_000)


def test_prefix_weights_look_only_backwards():
    torch.manual_seed(0)
    log_probs = torch.randn(2, 6, 3).double()
    changed = log_probs.clone()
    changed[:, 3:] += torch.randn(3)
    ours, theirs = prefix_weights(log_probs), prefix_weights(changed)
    torch.testing.assert_close(ours[:, :4], theirs[:, :4])
    assert not torch.allclose(ours[:, 4], theirs[:, 4])


def test_bad_input_is_named():
    mixture, tokens = Mixture(Categorical(torch.randn(2, 5, 3, 4))), torch.randint(4, (2, 5))
    gaussian = Mixture(Gaussian(torch.randn(2, 5, 3, 1), torch.randn(2, 5, 3, 1)))
    for run, message in (
        (lambda: SequencePrediction(gaussian, tokens), "needs categorical predictions, got Mixture"),
        (lambda: SequencePrediction(mixture, tokens[:, :4]), "do not fit steps of shape"),
        (lambda: SequencePrediction(mixture, tokens + 4), "tokens must lie between 0 and 3"),
        (lambda: SequencePrediction(Dirichlet(torch.ones(2, 5, 4)), tokens, None, "expectation"), "have no members"),
    ):
        with pytest.raises(ValueError, match=message):
            run()


def test_what_stands_in_the_padding_of_a_student_is_not_read():
    """Of one held as a mean and a precision, as students answer: NaN in either of them, forwards and backwards."""
    draw = torch.Generator().manual_seed(0)
    logits, log_precision = torch.randn(2, 4, 6, generator=draw), torch.rand(2, 4, generator=draw).double()
    tokens, mask = torch.randint(6, (2, 4), generator=draw), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]])
    whole = SequencePrediction(Dirichlet.from_mean(logits[:, :3], log_precision[:, :3]), tokens[:, :3])
    logits[:, 3], log_precision[:, 3] = torch.nan, torch.nan
    logits.requires_grad_()
    log_precision.requires_grad_()
    padded = SequencePrediction(Dirichlet.from_mean(logits, log_precision), tokens, mask)
    (padded.knowledge + padded.score_rmi).sum().backward()
    for read in (logits.grad, log_precision.grad):
        assert (read[:, 3] == 0).all()
        assert read[:, :3].isfinite().all()
    for name in ("total", "data", "knowledge", "epkl", "rmi", "score_total", "score_data", "score_rmi"):
        torch.testing.assert_close(getattr(padded, name), getattr(whole, name))
