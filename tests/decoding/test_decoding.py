"""Decoders against brute force over all sequences, and against transformers on models built from a config."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.decoding import beam, ctc, greedy, log_probs_of, reorder, sample, together
from solera.decoding.base import top_log_probs
from solera.distributions import Categorical, Dirichlet, Mixture, SequencePrediction

END = 0


def recurrent(seed: int, classes: int = 4, width: int = 5, scale: float = 3.0):
    """A random recurrent model whose answer depends on the whole prefix; its state is a tensor of rows."""
    generator = torch.Generator().manual_seed(seed)
    turn, read = (torch.randn(n, width, generator=generator).double() for n in (width, classes))
    say = scale * torch.randn(width, classes, generator=generator).double()

    def step(state, tokens):
        state = torch.tanh(state @ turn + read[tokens])
        return Categorical(state @ say), state

    return step


def states(rows: int, width: int = 5, seed: int = 0):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).double()


def all_sequences(classes: int, longest: int):
    """Every sequence that ends with END, or is cut off at the longest."""
    for length in range(1, longest + 1):
        for head in itertools.product(range(1, classes), repeat=length - 1):
            yield (*head, END)
    yield from itertools.product(range(1, classes), repeat=longest)


def log_prob_of(step, state, start, sequence):
    total, last = 0.0, start
    for token in sequence:
        prediction, state = step(state, torch.tensor([last]))
        total, last = total + log_probs_of(prediction)[0, token].item(), token
    return total


def ranked(step, state, start, classes, longest, penalty):
    scored = [(log_prob_of(step, state, start, y) / len(y) ** penalty, y) for y in all_sequences(classes, longest)]
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0, -1.0])
@pytest.mark.parametrize(("classes", "longest"), [(3, 1), (2, 5), (4, 4)])
def test_a_wide_beam_finds_what_brute_force_finds(classes, longest, penalty):
    step, start = recurrent(1, classes), torch.tensor([1, 0, 1])
    found = beam(step, states(3), start, END, longest, beams=classes**longest, length_penalty=penalty)
    for row in range(3):
        true = ranked(step, states(3)[row : row + 1], int(start[row]), classes, longest, penalty)
        exists = found.log_probs[row].isfinite()
        assert int(exists.sum()) == len(true)
        for n, (score, sequence) in enumerate(true):
            assert found.scores[row, n].item() == pytest.approx(score, abs=1e-10)
            assert tuple(found.tokens[row, n][found.mask[row, n]].tolist()) == sequence
    total = found.log_probs.exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(3).double())  # all sequences there are


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([0.0, 1.0, 1.5]), st.booleans())
def test_a_narrow_beam_says_what_its_hypotheses_are_worth(seed, beams, penalty, early):
    step = recurrent(seed)
    found = beam(step, states(2, seed=seed), torch.tensor([1, 2]), END, 5, beams, penalty, early)
    assert (found.scores.diff(dim=-1) <= 0).all()
    for row, n in itertools.product(range(2), range(beams)):
        y = found.tokens[row, n][found.mask[row, n]].tolist()
        if not y:
            assert found.log_probs[row, n] == -math.inf
            continue
        assert END not in y[:-1]
        assert y[-1] == END or len(y) == 5
        true = log_prob_of(step, states(2, seed=seed)[row : row + 1], row + 1, y)
        assert found.log_probs[row, n].item() == pytest.approx(true, abs=1e-10)
        assert found.scores[row, n].item() == pytest.approx(true / len(y) ** penalty, abs=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_rows_do_not_disturb_each_other(seed, early):
    step, state = recurrent(seed), states(4, seed=seed)
    start = torch.tensor([1, 2, 3, 1])
    together_, alone = (
        [beam(step, s, t, END, 6, 3, 1.0, early) for s, t in pairs]
        for pairs in ([(state, start)], [(state[n : n + 1], start[n : n + 1]) for n in range(4)])
    )
    for row, single in enumerate(alone):
        torch.testing.assert_close(together_[0].scores[row : row + 1], single.scores)
        assert together_[0].lists(END)[row] == single.lists(END)[0]


def test_greedy_takes_the_likeliest_and_rows_that_ended_rest():
    step, state, start = recurrent(3), states(6), torch.tensor([1, 2, 3, 1, 2, 3])
    asked = []

    def counted(state, tokens):
        asked.append(len(tokens))
        return step(state, tokens)

    found = greedy(counted, state, start, END, 20)
    for row in range(6):
        y, one, last = found.tokens[row, 0][found.mask[row, 0]].tolist(), state[row : row + 1], int(start[row])
        total = 0.0
        for token in y:
            prediction, one = step(one, torch.tensor([last]))
            assert token == prediction.logits.argmax()
            total, last = total + prediction.log_probs[0, token].item(), token
        assert found.log_probs[row, 0].item() == pytest.approx(total)
        assert y[-1] == END or len(y) == 20
    lengths = found.mask.sum((1, 2))
    assert asked == [int((lengths > t).sum()) for t in range(int(lengths.max()))]


def test_samples_come_as_often_as_they_are_likely():
    step, state, start = recurrent(5, classes=3, scale=1.0), states(1), torch.tensor([1])
    generator = torch.Generator().manual_seed(0)
    found = sample(step, state, start, END, 3, samples=20_000, generator=generator)
    drawn = [tuple(y[m].tolist()) for y, m in zip(found.tokens[0], found.mask[0], strict=True)]
    for y in all_sequences(3, 3):
        p = math.exp(log_prob_of(step, state, 1, y))
        assert abs(drawn.count(y) / 20_000 - p) < 5 * math.sqrt(p / 20_000)
    for n in range(5):
        assert found.log_probs[0, n].item() == pytest.approx(log_prob_of(step, state, 1, drawn[n]))
    flat = sample(step, state, start, END, 1, samples=20_000, temperature=3.0, generator=generator)
    often = flat.tokens.flatten().bincount(minlength=3) / 20_000
    log_probs = log_probs_of(step(state, start)[0])
    torch.testing.assert_close(often.double(), (log_probs[0] / 3).softmax(-1), rtol=0, atol=0.02)
    assert (often - log_probs[0].exp()).abs().max() > 0.05  # the temperature was felt
    torch.testing.assert_close(flat.log_probs, log_probs.gather(-1, flat.tokens[..., 0]))  # and these are at T = 1


def test_an_ensemble_averages_probabilities_or_their_logarithms():
    members, start = [recurrent(seed) for seed in (1, 2, 3)], torch.tensor([1, 2])
    each = [member(states(2), start)[0].log_probs for member in members]
    prediction, after = together(members)((states(2),) * 3, start)
    assert isinstance(prediction, Mixture)
    torch.testing.assert_close(prediction.mean, torch.stack(each).exp().mean(0))
    assert len(after) == 3
    geometric, _ = together(members, "log_probs")((states(2),) * 3, start)
    product = torch.stack(each).mean(0).exp()
    torch.testing.assert_close(geometric.mean, product / product.sum(-1, keepdim=True))
    for average in ("probs", "log_probs"):
        step = together(members, average)
        found = beam(step, (states(1),) * 3, torch.tensor([1]), END, 3, beams=64)
        score, sequence = ranked(step, (states(1),) * 3, 1, 4, 3, 1.0)[0]
        assert found.scores[0, 0].item() == pytest.approx(score)
        assert tuple(found.tokens[0, 0][found.mask[0, 0]].tolist()) == sequence


def test_a_student_decodes_by_its_mean():
    step = recurrent(2)

    def student(state, tokens):
        prediction, state = step(state, tokens)
        return Dirichlet(7 * prediction.logits.exp()), state

    ours, theirs = (beam(s, states(2), torch.tensor([1, 2]), END, 5) for s in (student, step))
    torch.testing.assert_close(ours.scores, theirs.scores)
    assert ours.lists(END) == theirs.lists(END)


def test_the_log_prob_of_a_hypothesis_is_that_of_its_teacher_forced_steps():
    members, start = [recurrent(seed) for seed in (1, 2)], torch.tensor([1, 2])
    step, first = together(members), (states(2),) * 2
    found = greedy(step, first, start, END, 6)
    tokens, mask, said, state, last = found.tokens[:, 0], found.mask[:, 0], [], first, start
    for t in range(tokens.shape[1]):
        prediction, state = step(state, last)
        said.append(prediction.members.logits)
        last = tokens[:, t]
    forced = SequencePrediction(Mixture(Categorical(torch.stack(said, 1))), tokens, mask)
    torch.testing.assert_close(forced.log_prob, found.log_probs[:, 0])


@pytest.mark.parametrize("frames", [1, 2, 4])
def test_ctc_by_hand(frames):
    def collapsed(path):
        return [token for token, _ in itertools.groupby(path) if token != 0]

    paths = list(itertools.product(range(3), repeat=frames))
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor(paths), 3)
    found = ctc(Categorical(logits))
    assert [row[0] for row in found.lists(0)] == [collapsed(path) for path in paths]
    mask = torch.ones(len(paths), frames)
    mask[:, -1] = 0
    short = ctc(Categorical(logits.masked_fill(mask[..., None] == 0, math.nan)), mask)
    assert [row[0] for row in short.lists(0)] == [collapsed(path[:-1]) for path in paths]
    torch.testing.assert_close(
        found.log_probs, torch.full((len(paths), 1), frames * logits[0, 0].log_softmax(0).max().item()).double()
    )


def test_states_are_nests_of_rows():
    rows, x = torch.tensor([1, 1, 0]), torch.arange(4).view(2, 2)

    @dataclass
    class Cache:
        x: torch.Tensor

        def reorder(self, rows):
            return Cache(self.x[rows])

    nested = reorder({"a": (x, [x, None]), "b": Cache(x), "c": 3}, rows)
    for part in (nested["a"][0], nested["a"][1][0], nested["b"].x):
        assert torch.equal(part, x[rows])
    assert nested["c"] == 3
    with pytest.raises(ValueError, match="a state of type object"):
        reorder(object(), rows)


def test_bad_settings_are_named():
    step, state, start = recurrent(0), states(1), torch.tensor([1])
    for run, message in (
        (lambda: beam(step, state, start, END, 0), "longest must be at least 1"),
        (lambda: greedy(step, state, start, END, 0), "longest must be at least 1"),
        (lambda: beam(step, state, start, END, 3, beams=0), "beams must be at least 1"),
        (lambda: sample(step, state, start, END, 3, temperature=0.0), "temperature must be positive"),
        (lambda: sample(step, state, start, END, 3, samples=0), "samples must be positive"),
        (lambda: together([]), "at least one step"),
    ):
        with pytest.raises(ValueError, match=message):
            run()


@dataclass
class Decoding:
    """A transformers model's state: what the encoder said, and a key–value cache."""

    encoded: Any
    attention: torch.Tensor
    cache: Any

    def reorder(self, rows):
        self.cache.reorder_cache(rows)
        return Decoding(self.encoded[rows], self.attention[rows], self.cache)


def step_of(model):
    from transformers.modeling_outputs import BaseModelOutput

    def step(state, tokens):
        out = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=state.encoded),
            attention_mask=state.attention,
            decoder_input_ids=tokens.unsqueeze(-1),
            past_key_values=state.cache,
            use_cache=True,
        )
        return Categorical(out.logits[:, -1]), Decoding(state.encoded, state.attention, out.past_key_values)

    return step


def seq2seq(kind, seed=0):
    import transformers

    torch.manual_seed(seed)
    shape = {
        "vocab_size": 23, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
        "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 3, "decoder_start_token_id": 1, "init_std": 0.6,
        "forced_eos_token_id": None,
    }  # fmt: skip
    marian, bart = transformers.MarianMTModel, transformers.BartForConditionalGeneration
    if kind == "marian":
        model = marian(transformers.MarianConfig(**shape)).eval()
    else:
        model = bart(transformers.BartConfig(**shape)).eval()
    model.final_logits_bias[0, 2] = 6.0  # hypotheses of many lengths
    return model


def started(model, source, attention):
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    encoded = model.get_encoder()(input_ids=source, attention_mask=attention).last_hidden_state
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    return Decoding(encoded, attention, cache), torch.full((len(source),), 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["marian", "bart"])
def test_the_same_hypotheses_as_transformers(kind):
    pytest.importorskip("transformers")
    with torch.no_grad():
        model = seq2seq(kind)
        source = torch.randint(4, 23, (5, 7))
        attention = (torch.arange(7) < torch.tensor([7, 5, 7, 3, 6])[:, None]).long()
        usual = {"attention_mask": attention, "max_new_tokens": 12, "do_sample": False}
        theirs = model.generate(source, num_beams=1, **usual)
        ours = greedy(step_of(model), *started(model, source, attention), 2, 12)
        for row in range(5):
            length = int(ours.mask[row].sum())
            assert ours.tokens[row, 0, :length].tolist() == theirs[row, 1 : length + 1].tolist()
        ended = 0
        for beams, penalty, early in (
            (4, 1.0, False),
            (4, 1.0, True),
            (3, 0.0, False),
            (5, 2.0, True),
            (2, -0.5, False),
        ):
            theirs = model.generate(
                source, num_beams=beams, length_penalty=penalty, early_stopping=False if early else "never",
                num_return_sequences=beams, return_dict_in_generate=True, output_scores=True, **usual,
            )  # fmt: skip
            ours = beam(step_of(model), *started(model, source, attention), 2, 12, beams, penalty, early)
            torch.testing.assert_close(
                ours.scores.flatten(), theirs.sequences_scores, rtol=1e-5, atol=1e-5, check_dtype=False
            )
            for mine, mask, other in zip(
                ours.tokens.flatten(0, 1), ours.mask.flatten(0, 1), theirs.sequences, strict=True
            ):
                length = int(mask.sum())
                assert mine[:length].tolist() == other[1 : length + 1].tolist()
                ended += length < 12
        assert ended > 20  # hypotheses of many lengths were compared


def test_a_student_is_decoded_by_its_mean():
    said = Dirichlet.from_mean(torch.randn(5, 7, generator=torch.Generator().manual_seed(0)), torch.zeros(5))
    torch.testing.assert_close(log_probs_of(said).exp(), said.mean)
    best, which = top_log_probs(said, 3)
    torch.testing.assert_close(best.exp().float(), said.mean.gather(-1, which))
