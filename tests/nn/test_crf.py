"""The linear chain against brute force over all sequences, pytorch-crf, its own identities and cruel scores."""

import itertools
import math

import hypothesis.extra.numpy as arrays
import numpy as np
import onnxruntime
import pytest
import torch
import torchcrf
from hypothesis import given, settings
from hypothesis import strategies as st

import solera.nn.chain
from solera.data.tag_scheme import exact_span, forbidden_tags
from solera.nn import CRF, Span

quick = settings(max_examples=40, deadline=None)
INFINITE = -math.inf
BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]


def crf_with(transitions, start=None, end=None, names=None, dtype=torch.double) -> CRF:
    crf = CRF(len(transitions), ends=start is not None, names=names).to(dtype)
    with torch.no_grad():
        crf.transitions.copy_(torch.as_tensor(transitions))
        if crf.start is not None and crf.end is not None:
            crf.start.copy_(torch.as_tensor(start))
            crf.end.copy_(torch.as_tensor(end))
    return crf


def random_crf(tags, generator, scale=1.0, ends=False, dtype=torch.double) -> CRF:
    draw = [
        scale * torch.randn(*shape, generator=generator, dtype=torch.double)
        for shape in ((tags, tags), (tags,), (tags,))
    ]
    return crf_with(draw[0], *(draw[1:] if ends else (None, None)), dtype=dtype)


def brute(crf, emissions):
    """Every sequence [N, T] of one row's tags, and its score, in float64."""
    tokens, tags = emissions.shape
    sequences = torch.tensor(list(itertools.product(range(tags), repeat=tokens)))
    scores = emissions.double()[torch.arange(tokens), sequences].sum(-1)
    scores = scores + crf.transitions.double()[sequences[:, :-1], sequences[:, 1:]].sum(-1)
    if crf.start is not None:
        scores = scores + crf.start.double()[sequences[:, 0]] + crf.end.double()[sequences[:, -1]]
    if crf.forbidden_start is not None:
        wrong = crf.forbidden_start[sequences[:, 0]] | crf.forbidden_end[sequences[:, -1]]
        wrong = wrong | crf.forbidden_transitions[sequences[:, :-1], sequences[:, 1:]].any(-1)
        scores = scores.masked_fill(wrong, INFINITE)
    return sequences, scores


def expected(crf, emissions):
    """ln Z, marginals [T, K], entropy and the best score of one row, by summing over all sequences."""
    sequences, scores = brute(crf, emissions)
    log_probs = scores.log_softmax(0)
    probs = log_probs.exp()
    tags = emissions.shape[-1]
    marginals = (torch.nn.functional.one_hot(sequences, tags) * probs[:, None, None]).sum(0)
    entropy = -(probs * log_probs.masked_fill(probs == 0, 0.0)).sum()
    return scores.logsumexp(0), marginals, entropy, scores.max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("tokens", "tags"), [(1, 1), (1, 4), (5, 1), (2, 2), (6, 3), (4, 5)])
def test_everything_by_brute_force(tokens, tags, ends, scale, dtype):
    generator = torch.Generator().manual_seed(tokens * tags)
    crf = random_crf(tags, generator, scale, ends, dtype)
    emissions = (scale * torch.randn(3, tokens, tags, generator=generator, dtype=torch.double)).to(dtype)
    lengths = torch.tensor([tokens, max(1, tokens - 1), max(1, tokens - 3)])
    mask = torch.arange(tokens) < lengths[:, None]
    rtol, atol = (1e-10, 1e-10) if dtype == torch.double else (1e-6, 1e-6)
    decoded = crf.decode(emissions, mask)
    for row, length in enumerate(lengths.tolist()):
        log_partition, marginals, entropy, best = expected(crf, emissions[row, :length])
        sequences, scores = brute(crf, emissions[row, :length])
        close = {"rtol": rtol, "atol": atol, "check_dtype": False}
        torch.testing.assert_close(crf.log_partition(emissions, mask)[row], log_partition, **close)
        torch.testing.assert_close(crf.marginals(emissions, mask)[row, :length], marginals, **close)
        torch.testing.assert_close(crf.log_marginals(emissions, mask)[row, :length].exp(), marginals, **close)
        torch.testing.assert_close(crf.entropy(emissions, mask)[row], entropy, **close)
        tags_of = torch.zeros(3, tokens, dtype=torch.long).masked_fill(~mask, -100)
        for choice in (0, len(sequences) // 2, int(scores.argmax())):
            tags_of[row, :length] = sequences[choice]
            log_prob = crf.log_prob(emissions, tags_of, mask)[row]
            torch.testing.assert_close(log_prob, scores[choice] - log_partition, **close)
        found = (sequences == decoded[row, :length]).all(-1)
        torch.testing.assert_close(scores[found].squeeze(), best, rtol=1e-12, atol=1e-12)
        assert (decoded[row, length:] == 0).all()
    assert crf.log_partition(emissions, mask).dtype == dtype


@pytest.mark.parametrize(("batch", "tokens", "tags"), [(32, 23, 9), (4, 60, 17), (1, 1, 3), (2, 5, 40)])
def test_agrees_with_pytorch_crf(batch, tokens, tags):
    torch.manual_seed(0)
    theirs = torchcrf.CRF(tags, batch_first=True).double()
    ours = crf_with(theirs.transitions.detach(), theirs.start_transitions.detach(), theirs.end_transitions.detach())
    emissions = 3 * torch.randn(batch, tokens, tags, dtype=torch.double, requires_grad=True)
    lengths = torch.randint(1, tokens + 1, (batch,))
    mask = torch.arange(tokens) < lengths[:, None]
    y = torch.randint(tags, (batch, tokens))
    for value, parameters in ((ours.log_prob(emissions, y, mask), ours), (theirs(emissions, y, mask, "none"), theirs)):
        names = (
            ("transitions", "start", "end")
            if parameters is ours
            else ("transitions", "start_transitions", "end_transitions")
        )
        slopes = torch.autograd.grad(
            (value * torch.arange(1, batch + 1)).sum(),
            [emissions, *(getattr(parameters, n) for n in names)],
            materialize_grads=True,  # one token has no transition
        )
        if parameters is ours:
            first = value, *slopes
        else:
            for mine, other in zip(first, (value, *slopes), strict=True):
                torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    for mine, other, length in zip(ours.decode(emissions, mask), theirs.decode(emissions, mask), lengths, strict=True):
        assert mine[:length].tolist() == other


scores = st.one_of(st.sampled_from([-50.0, 0.0, 50.0]), st.floats(-50, 50, width=32))


@st.composite
def chains(draw, elements=scores):
    t, k = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    emissions = draw(arrays.arrays(np.float32, (2, t, k), elements=elements))
    transitions = draw(arrays.arrays(np.float32, (k, k), elements=elements))
    lengths = draw(st.lists(st.integers(0, t), min_size=2, max_size=2))
    mask = torch.arange(t) < torch.tensor(lengths)[:, None]
    return torch.tensor(emissions), torch.tensor(transitions), mask


@quick
@given(chains())
def test_marginals_sum_to_one_and_are_the_slope_of_the_partition(chain):
    emissions, transitions, mask = chain
    crf = crf_with(transitions, dtype=torch.float32)
    emissions.requires_grad_()
    slope, moves = torch.autograd.grad(crf.log_partition(emissions, mask).sum(), [emissions, crf.transitions])
    marginals = crf.marginals(emissions.detach(), mask)
    torch.testing.assert_close(marginals.sum(-1), mask.float())
    torch.testing.assert_close(slope, marginals, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moves.sum(), (mask.sum(-1) - 1).clamp(min=0).sum().float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        crf.log_marginals(emissions, mask).exp() * mask[..., None], marginals, rtol=1e-5, atol=1e-6
    )


@quick
@given(chains())
def test_entropy_and_decode_by_brute_force(chain):
    emissions, transitions, mask = chain
    crf = crf_with(transitions, dtype=torch.float32)
    entropy, decoded = crf.entropy(emissions, mask), crf.decode(emissions, mask)
    for row, length in enumerate(mask.sum(-1).tolist()):
        if not length:
            assert entropy[row] == 0
            continue
        sequences, values = brute(crf, emissions[row, :length])
        _, _, true, best = expected(crf, emissions[row, :length])
        assert abs(entropy[row] - true) <= 1e-5 * true + 1e-9  # brute force itself loses 1 − p
        assert entropy[row] >= 0
        found = (sequences == decoded[row, :length]).all(-1)
        torch.testing.assert_close(values[found].squeeze(), best)  # ties: any of the best


@quick
@given(chains(elements=st.one_of(st.sampled_from([-math.inf, -50.0, 50.0]), st.floats(-50, 50, width=32))))
def test_minus_infinity_is_a_probability_of_zero_and_never_nan(chain):
    emissions, transitions, mask = chain
    crf = crf_with(transitions, dtype=torch.float32)
    emissions.requires_grad_()
    log_partition = crf.log_partition(emissions, mask)
    marginals, entropy = crf.marginals(emissions, mask), crf.entropy(emissions, mask)
    log_marginals = crf.log_marginals(emissions, mask)
    finite = log_marginals.masked_fill(log_marginals == INFINITE, 0.0)
    for value in (log_partition[log_partition.isfinite()], marginals, entropy, finite):
        for slope in torch.autograd.grad(
            value.sum(), [emissions, crf.transitions], retain_graph=True, materialize_grads=True
        ):
            assert slope.isfinite().all()
    for row, length in enumerate(mask.sum(-1).tolist()):
        if not length:
            assert log_partition[row] == 0
            continue
        true, each, uncertain, best = expected(crf, emissions[row, :length].detach())
        torch.testing.assert_close(log_partition[row], true, check_dtype=False)
        if best == INFINITE:
            assert marginals[row].isfinite().all()
            continue
        torch.testing.assert_close(marginals[row, :length], each, check_dtype=False, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(entropy[row], uncertain, check_dtype=False, rtol=1e-5, atol=1e-6)
        sequences, values = brute(crf, emissions[row, :length].detach())
        tags = torch.zeros(2, mask.shape[1], dtype=torch.long)
        for choice in (0, -1):
            tags[row, :length] = sequences[choice]
            true_log_prob = values[choice] - true
            torch.testing.assert_close(crf.log_prob(emissions, tags, mask)[row], true_log_prob, check_dtype=False)


def test_the_scaled_sums_are_given_up_where_they_would_underflow():
    """Two tags that never meet: after 40 tokens of ±50 one is e^{−4000} of the other; then the other is ruled out."""
    crf = crf_with([[0.0, INFINITE], [INFINITE, 0.0]], dtype=torch.float32)
    emissions = torch.tensor([50.0, -50.0]).repeat(1, 41, 1)
    emissions[0, -1] = torch.tensor([INFINITE, 0.0])
    emissions.requires_grad_()
    value = crf.log_partition(emissions)
    torch.testing.assert_close(value, torch.tensor([-2000.0]))
    only = torch.tensor([0.0, 1.0]).expand(1, 41, 2)
    torch.testing.assert_close(torch.autograd.grad(value.sum(), emissions)[0], only)
    torch.testing.assert_close(crf.marginals(emissions), only)
    chain, _ = crf._chain(emissions, None)
    assert not chain._scaled().trusted


@pytest.mark.parametrize("scale", [1.0, 20.0, 50.0])
def test_both_ways_to_sum_agree(scale, monkeypatch):
    torch.manual_seed(0)
    crf = random_crf(9, torch.Generator().manual_seed(1), scale, ends=True)
    emissions = (scale * torch.randn(8, 37, 9, dtype=torch.double)).clamp(-50, 50).requires_grad_()
    mask = torch.arange(37) < torch.randint(0, 38, (8, 1))
    results = []
    for limit in (solera.nn.chain.TRUSTED, math.inf):
        monkeypatch.setattr(solera.nn.chain, "TRUSTED", limit)
        chain, _ = crf._chain(emissions, mask)
        assert chain._scaled().trusted == (limit < math.inf and scale < 50)
        value = crf.log_partition(emissions, mask)
        parameters = [emissions, crf.transitions, crf.start, crf.end]
        results.append((value, *torch.autograd.grad((value * torch.arange(8)).sum(), parameters)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_float32_is_as_good_as_its_inputs_over_a_long_text():
    """Plain float32 sums of ±50 over 2,000 tokens are off by 1e-2; a likelihood is their difference."""
    torch.manual_seed(0)
    emissions, transitions = 50 * torch.randn(1, 2000, 5), 50 * torch.randn(5, 5)
    single, double = crf_with(transitions, dtype=torch.float32), crf_with(transitions)
    tags = double.decode(emissions)
    tags[0, 1000] = (tags[0, 1000] + 1) % 5
    true = double.log_prob(emissions.double(), tags)
    torch.testing.assert_close(single.log_prob(emissions, tags).double(), true, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        single.marginals(emissions).double(), double.marginals(emissions.double()), rtol=1e-6, atol=1e-37
    )


def test_gradients_by_finite_differences():
    torch.manual_seed(0)
    crf = random_crf(3, torch.Generator().manual_seed(0), ends=True)
    emissions = torch.randn(3, 4, 3, dtype=torch.double, requires_grad=True)
    mask, tags = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]]), torch.randint(3, (3, 4))

    def everything(e, transitions, start, end):
        ours = torch.func.functional_call
        changed = {"transitions": transitions, "start": start, "end": end}

        class Everything(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.crf = crf

            def forward(self, e):
                c = self.crf
                return c.log_partition(e, mask), c.marginals(e, mask), c.entropy(e, mask), c.log_prob(e, tags, mask)

        return ours(Everything(), {f"crf.{name}": value for name, value in changed.items()}, (e,))

    inputs = (emissions, *(p.detach().clone().requires_grad_() for p in (crf.transitions, crf.start, crf.end)))
    assert torch.autograd.gradcheck(everything, inputs)


def test_a_mask_with_holes_is_as_if_those_tokens_were_not_there():
    torch.manual_seed(0)
    crf = random_crf(4, torch.Generator().manual_seed(0), ends=True)
    emissions = torch.randn(2, 6, 4, dtype=torch.double)
    mask = torch.tensor([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 0, 0]])
    emissions[mask == 0] = math.nan
    tags = torch.randint(4, (2, 6)).masked_fill(mask == 0, -100)
    kept = [1, 3, 4]
    short = emissions[:1, kept]
    torch.testing.assert_close(crf.log_partition(emissions, mask)[:1], crf.log_partition(short))
    torch.testing.assert_close(crf.entropy(emissions, mask)[:1], crf.entropy(short))
    torch.testing.assert_close(crf.marginals(emissions, mask)[:1, kept], crf.marginals(short))
    torch.testing.assert_close(crf.log_marginals(emissions, mask)[:1, kept], crf.log_marginals(short))
    torch.testing.assert_close(crf.log_prob(emissions, tags, mask)[:1], crf.log_prob(short, tags[:1, kept]))
    assert crf.decode(emissions, mask)[0, kept].tolist() == crf.decode(short)[0].tolist()
    assert (crf.marginals(emissions, mask)[mask == 0] == 0).all()
    torch.testing.assert_close(crf(emissions, mask)[mask == 0].exp(), torch.full((5, 4), 0.25, dtype=torch.double))


def test_a_row_without_tokens_is_harmless():
    crf = random_crf(3, torch.Generator().manual_seed(0), ends=True, dtype=torch.float32)
    emissions = torch.full((2, 4, 3), math.nan)
    emissions[1] = 1.0
    emissions.requires_grad_()
    mask = torch.tensor([[False] * 4, [True] * 4])
    values = (
        crf.log_partition(emissions, mask),
        crf.entropy(emissions, mask),
        crf.log_prob(emissions, torch.zeros(2, 4).long(), mask),
    )
    for value in values:
        assert value[0] == 0
        for slope in torch.autograd.grad(value.sum(), [emissions, crf.transitions, crf.start], retain_graph=True):
            assert slope.isfinite().all()
        torch.testing.assert_close(value[1:], value[1:].nan_to_num())
    assert (crf.decode(emissions, mask)[0] == 0).all()
    assert (crf.marginals(emissions, mask)[0] == 0).all()


def test_half_precision_answers_in_float32():
    emissions = torch.randn(2, 3, 4)
    for dtype in (torch.float16, torch.bfloat16):
        half = emissions.to(dtype)
        assert CRF(4).log_partition(half).dtype == torch.float32
        torch.testing.assert_close(
            CRF(4).marginals(half), half.float().softmax(-1)
        )  # zero transitions: independent tags


def test_names_forbid():
    for names in (BIO, BIOES, ["O", "B-PER", "I-PER", "L-PER", "U-PER"]):
        closes = names is not BIO
        forbidden = forbidden_tags(names)
        parts = [(name[0].replace("L", "E").replace("U", "S"), name[2:]) for name in names]
        for i, (first, kind) in enumerate(parts):
            for j, (second, other) in enumerate(parts):
                goes_on = first in "BI" and second in "IE" and kind == other
                fresh = second in "OBS" and (not closes or first in "OES")
                assert forbidden.transitions[i, j] == (not (goes_on or fresh)), (names[i], names[j])
        assert forbidden.start.tolist() == [part[0] in "IE" for part in parts]
        assert forbidden.end.tolist() == [closes and part[0] in "BI" for part in parts]


@pytest.mark.parametrize("names", [BIO, BIOES])
def test_forbidden_sequences_have_no_probability(names):
    torch.manual_seed(0)
    crf = CRF(5, names=names)
    with torch.no_grad():
        crf.transitions.normal_()
    emissions = 10 * torch.randn(6, 5, 5)
    emissions[..., 2] += 20  # I-PER everywhere, if it were allowed
    emissions.requires_grad_()
    for row in range(6):
        log_partition, marginals, entropy, best = expected(crf, emissions[row].detach())
        torch.testing.assert_close(crf.log_partition(emissions)[row], log_partition, check_dtype=False)
        torch.testing.assert_close(crf.marginals(emissions)[row], marginals, check_dtype=False, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(crf.entropy(emissions)[row], entropy, check_dtype=False, rtol=1e-5, atol=1e-6)
        sequences, scores = brute(crf, emissions[row].detach())
        assert scores[(sequences == crf.decode(emissions)[row]).all(-1)].item() == pytest.approx(best.item())
    wrong = torch.zeros(6, 5, dtype=torch.long)
    wrong[:, 1] = 2
    log_prob = crf.log_prob(emissions, wrong)
    assert (log_prob == INFINITE).all()
    slopes = torch.autograd.grad(crf.log_partition(emissions).sum(), [emissions, crf.transitions])
    assert all(slope.isfinite().all() for slope in slopes)
    assert (slopes[1][crf.forbidden_transitions] == 0).all()


def entities(names, tags):
    """(start, stop, type) of every entity, by reading from left to right."""
    found, opened = [], None
    for t, tag in enumerate([*tags, None]):
        prefix, kind = ("O", "") if tag is None else (names[tag][0], names[tag][2:])
        goes_on = opened is not None and prefix in "IE" and kind == opened[1]
        if opened is not None and not goes_on:
            found.append((opened[0], t, opened[1]))
            opened = None
        if prefix in "BS":
            opened = (t, kind)
    return found


@pytest.mark.parametrize("names", [BIO, BIOES])
@pytest.mark.parametrize("use_mask", [False, True])
def test_the_probability_of_an_exact_span_by_brute_force(names, use_mask):
    torch.manual_seed(0)
    crf = CRF(5, names=names).double()
    with torch.no_grad():
        crf.transitions.normal_()
    emissions = torch.randn(2, 5, 5, dtype=torch.double)
    mask = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]) if use_mask else None
    kinds = sorted({name[2:] for name in names} - {""})
    spans = [Span(row, a, b, kind) for row in (0, 1) for a in range(5) for b in range(a + 1, 6) for kind in kinds]
    kept = [[0, 2, 3, 4], [0, 1, 2, 3]] if use_mask else [list(range(5))] * 2
    spans = [s for s in spans if s.start in kept[s.row] and s.stop - 1 in kept[s.row]]
    found = crf.span_log_prob(emissions, spans, mask).exp()
    for span, probability in zip(spans, found.tolist(), strict=True):
        places = kept[span.row]
        sequences, scores = brute(crf, emissions[span.row, places])
        wanted = (places.index(span.start), places.index(span.stop - 1) + 1, span.kind)
        holds = torch.tensor([wanted in entities(names, tags) for tags in sequences.tolist()])
        assert probability == pytest.approx(scores.softmax(0)[holds].sum().item(), rel=1e-9, abs=1e-12)
    assert crf.span_log_prob(emissions, []).shape == (0,)


def test_a_span_is_certain_where_all_else_is_forbidden():
    crf = CRF(5, names=BIO)
    emissions = torch.full((1, 3, 5), INFINITE)
    for t, tag in enumerate((1, 2, 0)):
        emissions[0, t, tag] = 50.0
    assert crf.span_log_prob(emissions, [Span(0, 0, 2, "PER"), Span(0, 0, 1, "PER")]).tolist() == [0.0, INFINITE]


def test_bad_input_is_named():
    crf, named = CRF(5), CRF(5, names=BIO)
    emissions = torch.randn(2, 3, 5)
    cases = [
        (lambda: crf.log_partition(torch.randn(2, 3, 4)), "emissions have 4 tags, the CRF has 5"),
        (lambda: crf.log_partition(torch.randn(2, 0, 5)), "at least one token"),
        (lambda: crf.log_prob(emissions, torch.full((2, 3), 5)), "between 0 and 4 for 5 classes, got 5"),
        (lambda: crf.span_log_prob(emissions, [Span(0, 0, 1, "PER")]), "without names"),
        (lambda: named.span_log_prob(emissions, [Span(2, 0, 1, "PER")]), "not in a batch of 2 rows"),
        (lambda: named.span_log_prob(emissions, [Span(0, 2, 4, "PER")]), "no token that counts"),
        (lambda: named.span_log_prob(emissions, [Span(0, 0, 1, "ORG")]), "no tag B-ORG"),
        (lambda: CRF(0), "at least one tag, got 0"),
        (lambda: CRF(4, names=BIO), "for each of 4 tags, got 5"),
        (lambda: forbidden_tags(["O", "PER"]), "'PER' is neither O nor"),
        (lambda: forbidden_tags(["O", "B-X", "B-X"]), "must differ"),
        (lambda: exact_span(BIO, torch.zeros(3, dtype=torch.bool), Span(0, 0, 1, "PER")), "no token that counts"),
    ]
    for run, message in cases:
        with pytest.raises(ValueError, match=message):
            run()


@pytest.mark.parametrize("settings", [{"tags": 5}, {"tags": 5, "ends": True}, {"tags": 5, "names": BIO}])
def test_is_rebuilt_from_its_settings_and_weights(settings):
    crf = CRF(**settings)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    again = CRF(**crf.settings)
    again.load_state_dict(crf.state_dict())
    emissions = torch.randn(2, 6, 5)
    assert torch.equal(again(emissions), crf(emissions))
    assert torch.equal(again.decode(emissions), crf.decode(emissions))


class _Answers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.crf = CRF(5, ends=True, names=BIO)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, emissions, mask):
        return self.crf(emissions, mask), self.crf.log_partition(emissions, mask)  # the marginals, as logarithms


@pytest.mark.filterwarnings("ignore")
def test_an_exported_graph_takes_any_number_of_tokens():
    torch.manual_seed(0)
    network = _Answers().eval()
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    inputs = torch.randn(3, 7, 5), torch.ones(3, 7, dtype=torch.bool)
    program = torch.export.export(network, inputs, dynamic_shapes=(axes, axes))
    graph = torch.onnx.export(program, input_names=["e", "m"], verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for batch, tokens in ((2, 2), (4, 30)):
        emissions = 10 * torch.randn(batch, tokens, 5)
        mask = torch.rand(batch, tokens) < 0.8
        true = [value.detach() for value in network(emissions, mask)]
        answers = [torch.tensor(x) for x in session.run(None, {"e": emissions.numpy(), "m": mask.numpy()})]
        for ours in (list(program.module()(emissions, mask)), answers):
            torch.testing.assert_close(ours, true)


def test_no_sequences_have_nothing():
    crf, emissions = random_crf(3, torch.Generator().manual_seed(0)), torch.zeros(0, 4, 3, dtype=torch.double)
    tags = torch.zeros(0, 4, dtype=torch.long)
    for found in (crf.log_partition(emissions), crf.log_prob(emissions, tags), crf.entropy(emissions)):
        assert found.shape == (0,)
    assert crf.marginals(emissions).shape == emissions.shape
    assert crf.decode(emissions).shape == (0, 4)
