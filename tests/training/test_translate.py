"""Translating with ensembles, students and models of others; from there to a student that knows what it cannot do."""

import json
from functools import partial
from importlib import import_module

import pytest
import torch

from solera import EnD, Ensemble, Hydra, Pairs, ProxyDirichlet, Student, Training, capture, distill, fit, translate
from solera.core.errors import MismatchError
from solera.data import CausalPairs, train_bpe
from solera.decoding import together
from solera.distributions import Categorical, SequencePrediction
from solera.ensembles import DropoutEnsemble, train_averaged, train_snapshots
from solera.nn import Translator
from solera.nn.call import call
from solera.nn.stepwise import stepwise
from solera.tasks import Seq2Seq
from solera.teachers import OneByOne, TopKCodec
from tests.nn.test_transformer import huggingface

WORDS = {"ein": "a", "zwei": "two", "Hund": "dog", "Mann": "man", "rot": "red", "und": "and", "läuft": "runs"}


def sentences(count, seed=0):
    draw = torch.Generator().manual_seed(seed)
    words = list(WORDS)
    chosen = [
        torch.randint(len(words), (int(torch.randint(2, 6, (1,), generator=draw)),), generator=draw)
        for _ in range(count)
    ]
    german = [" ".join(words[int(i)] for i in row) for row in chosen]
    return german, [" ".join(WORDS[word] for word in line.split()) for line in german]


@pytest.fixture(scope="session")
def tokenizer():
    return train_bpe([line for side in sentences(60) for line in side], 270)


@pytest.fixture(scope="session")
def pairs(tokenizer):
    return Pairs(*sentences(60), tokenizer, tokens=96)


@pytest.fixture(scope="session")
def members(pairs):
    """Two small translators that have learned the word-by-word translation, more or less."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        network = Translator(len(pairs.tokenizer), width=24, encoder=1, decoder=1, heads=2, dropout=0.1)
        found.append(fit(network, pairs, Training(epochs=6, lr=6e-3, seed=seed, clip=1.0), task=Seq2Seq()))
    return found


@pytest.fixture(scope="session")
def ensemble(members):
    return Ensemble(members)


@pytest.fixture(scope="session")
def own(ensemble, pairs):
    return translate(ensemble, pairs, 2, longest=12)


def walked(asked, source, start, end, longest):
    """Greedy decoding in so many words: the whole prefix at every step."""
    tokens = []
    while len(tokens) < longest and (not tokens or tokens[-1] != end):
        prefix = torch.tensor([[start, *tokens]])
        tokens.append(int(asked({**source, "decoder_input_ids": prefix})[0, -1].argmax()))
    return tokens


@torch.no_grad()
def test_an_ensemble_is_decoded_by_its_mean(ensemble, pairs):
    said = translate(ensemble, pairs.of(torch.arange(4)), 1, longest=12)
    for row in range(4):
        source = {k: v for k, v in pairs.take([row]).inputs.items() if k != "decoder_input_ids"}
        mean = lambda inputs: ensemble.predict(inputs).mean  # noqa: E731
        assert said.written[row] == walked(mean, source, pairs.tokenizer.start, pairs.tokenizer.end, 12)


@torch.no_grad()
def test_the_measures_are_those_of_the_forced_hypothesis(ensemble, pairs, own):
    batch = own.take(range(8))
    forced = SequencePrediction(ensemble.predict(batch.inputs), batch.target, batch.weight)
    for name in ("total", "data", "knowledge", "rmi", "epkl", "score_total", "score_data", "score_rmi"):
        torch.testing.assert_close(own.measures[name][:8].float(), getattr(forced, name), rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(own.log_probs[:8].float(), forced.log_prob, rtol=1e-4, atol=1e-4)
    whole = own[0]
    assert whole.text == own.target_text[0] == pairs.tokenizer.decode(own.written[0])
    assert whole.total == pytest.approx(float(forced.total[0]), rel=1e-4)
    assert [token.knowledge for token in whole.tokens] == pytest.approx(
        forced.token_knowledge[0][: len(own.written[0])].tolist(), abs=2e-6
    )
    assert " ".join(word.text for word in whole.words) == whole.text


def test_over_beams_weighs_the_list_by_its_probabilities(ensemble, pairs):
    some = pairs.of(torch.arange(4))
    one, many = (translate(ensemble, some, 3, over=over, longest=8) for over in ("best", "beams"))
    assert one.target_text == many.target_text
    assert not torch.allclose(one.total, many.total)
    single = translate(ensemble, some, 1, over="beams", longest=8)
    torch.testing.assert_close(single.total, translate(ensemble, some, 1, longest=8).total)


def test_over_samples_is_an_expectation_under_the_models_own_distribution(members, pairs, tmp_path):
    """Of one token, E[−ln p(y)] = H[p]: a mean weighted again by p would be lower."""
    some = pairs.of(torch.arange(3))
    drawn = translate(members[0], some, 1, over="samples", samples=400, longest=1)
    torch.testing.assert_close(drawn.score_total, drawn.total, rtol=0.15, atol=0.02)
    again = translate(members[0], some, 1, over="samples", samples=400, longest=1, folder=tmp_path)
    other = translate(members[0], some, 1, over="samples", samples=400, longest=1, seed=1)
    assert torch.equal(drawn.score_total, again.score_total)
    assert not torch.equal(drawn.score_total, other.score_total)
    assert drawn.target_text == translate(members[0], some, 1, longest=1).target_text


def test_logarithms_can_be_averaged_instead(ensemble, pairs):
    some = pairs.of(torch.arange(4))
    asked = [stepwise(member) for member in ensemble.models]
    inputs = some.without_targets().take(range(4)).inputs
    start = torch.full((4,), pairs.tokenizer.start)
    steps = [lambda s, t, a=a: (lambda o: (Categorical(o[0]), o[1]))(a.step(s, t)) for a in asked]
    with torch.no_grad():
        state = tuple(a.begin(inputs) for a in asked)
        said, _ = together(steps, "log_probs")(state, start)
        first = said.log_probs.argmax(-1).tolist()
    assert [row[0] for row in translate(ensemble, some, 1, average="log_probs").written] == first


def test_a_killed_translation_goes_on_and_ends_in_the_same_bits(members, pairs, tmp_path, monkeypatch):
    whole = translate(members[0], pairs, 2, longest=8, folder=tmp_path / "whole")
    module = import_module("solera.training.translate")
    monkeypatch.setattr(module, "PART", 2)
    decode, asked = module._written, []

    def dies(*arguments):
        asked.append(1)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return decode(*arguments)

    monkeypatch.setattr(module, "_written", dies)
    with pytest.raises(KeyboardInterrupt):
        translate(members[0], pairs, 2, longest=8, folder=tmp_path / "killed")
    asked[:] = [1] * 4
    again = translate(members[0], pairs, 2, longest=8, folder=tmp_path / "killed")
    assert len(asked) == 4 + len(pairs) - 2  # a part of two batches was kept
    assert again.written == whole.written
    assert torch.equal(again.log_probs, whole.log_probs)
    assert all(torch.equal(again.measures[name], whole.measures[name]) for name in whole.measures)
    with pytest.raises(MismatchError, match="another translation"):
        translate(members[1], pairs, 2, longest=8, folder=tmp_path / "killed")


def test_from_an_ensemble_to_a_student_that_translates(ensemble, pairs, own, tokenizer, tmp_path):
    kept = capture(ensemble, own, tmp_path / "memory", TopKCodec(keep=16))
    size = sum(file.stat().st_size for file in (tmp_path / "memory").glob("*.safetensors"))
    tokens = sum(len(row) for row in own.written)
    assert size <= tokens * (4 * 16 + 12) + own.examples * 24 + 4000  # and the header of a shard
    torch.manual_seed(5)
    network = Translator(len(tokenizer), width=24, encoder=1, decoder=1, heads=2, dropout=0.0)
    student = distill(kept, network, own, ProxyDirichlet(), Training(epochs=2, lr=6e-3, clip=1.0), task=Seq2Seq())
    said = student.translate(["ein Hund läuft", "", "😀"], beams=2)
    assert [one.source for one in said] == ["ein Hund läuft", "", "😀"]
    assert said[1].text == ""
    assert said[1].total == 0.0
    assert said[0].knowledge > 0
    assert said[0].rmi > 0
    assert said[0].tokens[0].total > 0
    student.save(tmp_path / "student")
    assert Student.load(tmp_path / "student").translate(["ein Hund läuft", "", "😀"], beams=2) == said
    other = Pairs(own.source, own.target_text, train_bpe(own.source, 265))
    with pytest.raises(MismatchError, match="tokenizer"):
        distill(kept, network, other, ProxyDirichlet())
    with pytest.raises(MismatchError, match="tokenizer"):
        capture(ensemble, other, tmp_path / "memory", TopKCodec(keep=16))


def test_members_one_by_one_are_remembered_as_all_together(members, ensemble, own, tmp_path):
    loaded = []

    def loader(number):
        return lambda: loaded.append(number) or members[number]

    few = own.of(torch.arange(12))
    together_ = capture(ensemble, few, tmp_path / "live", TopKCodec(keep=8))
    apart = capture(OneByOne([loader(0), loader(1)]), few, tmp_path / "apart", TopKCodec(keep=8))
    assert loaded == [0, 1] * (1 + len(few))  # once for their names, and once a batch
    assert apart.fingerprints == together_.fingerprints
    for batch in few:
        a, b, counts = apart(batch), together_(batch), batch.weight > 0
        for name in ("tail", "rmi", "total"):
            torch.testing.assert_close(getattr(a, name)[counts], getattr(b, name)[counts], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(a.probs[counts], b.probs[counts], rtol=2e-3, atol=1e-5)
        torch.testing.assert_close(a.knowledge[counts], b.knowledge[counts], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("method", [EnD(tail="dropped"), EnD(tail="event"), Hydra()], ids=["dropped", "event", "hydra"])
def test_other_methods_learn_from_the_same(method, ensemble, own, tokenizer, tmp_path):
    few = own.of(torch.arange(12))
    teacher = ensemble if isinstance(method, Hydra) else capture(ensemble, few, tmp_path / "kept", TopKCodec(keep=8))
    network = Translator(len(tokenizer), width=8, encoder=1, decoder=1, heads=2)
    student = distill(
        teacher, network, few, method, Training(epochs=1, label_weight=0.5, label_smoothing=0.1), task=Seq2Seq()
    )
    (said,) = student.translate(["ein Hund"], beams=2)
    assert (said.knowledge is not None) == isinstance(method, Hydra)


def test_dropout_is_a_teacher_that_translates(members, pairs):
    teacher = DropoutEnsemble(members[0], members=2)
    said = translate(teacher, pairs.of(torch.arange(3)), 1)
    assert (said.knowledge > 0).all()
    assert said.written == translate(teacher, pairs.of(torch.arange(3)), 1).written


@pytest.mark.parametrize("kind", ["marian", "t5", "llama"])
def test_models_of_hugging_face_teach_and_learn_as_they_are(kind):
    class Letters:
        """Tokens are single letters: enough for a model of 24 classes."""

        eos_token_id, pad_token_id = 2, 0

        def __call__(self, lines=None, text_target=None, add_special_tokens=True):
            rows = [[3 + (ord(c) - 97) % 21 for c in line] for line in (lines or text_target)]
            return {"input_ids": [[*row, 2] if add_special_tokens else row for row in rows]}

        def __len__(self):
            return 24

        def decode(self, tokens, skip_special_tokens):
            return "".join(chr(97 + t - 3) for t in tokens if t > 2)

        def get_vocab(self):
            return {}

    layout = CausalPairs if kind == "llama" else Pairs
    pairs = layout(["abc", "bca", "cabab"], ["xyz", "yx", "zzyx"], Letters())
    first, second = huggingface(kind), huggingface(kind)
    second.get_output_embeddings().weight.data += 0.05 * torch.randn(24, 16, generator=torch.Generator().manual_seed(1))
    ensemble = Ensemble([first, second])
    said = translate(ensemble, pairs, 3, longest=6)
    assert said.measures["knowledge"].min() > 0
    alone = translate(first, pairs, 3, longest=6)
    source = pairs.without_targets().take(range(3))
    for row in range(3):
        mask = source.inputs["attention_mask"][row].bool()
        ids = source.inputs["input_ids"][row : row + 1, mask]
        begin = torch.cat([ids, torch.zeros(1, 1, dtype=torch.long)], 1) if kind == "llama" else ids
        found = first.generate(
            begin, attention_mask=torch.ones_like(begin), num_beams=3, max_new_tokens=6, do_sample=False
        )
        found = found[0, begin.shape[1] if kind == "llama" else 1 :].tolist()
        end = found.index(2) + 1 if 2 in found else len(found)
        assert alone.written[row] == found[:end], (kind, row)
    student = distill(ensemble, huggingface(kind), said, ProxyDirichlet(), Training(epochs=1), task=Seq2Seq())
    (one,) = translate(student, layout(["ab"], None, Letters()), 2, longest=4).target_text
    assert isinstance(one, str)


def test_what_cannot_translate_says_so(pairs, members):
    with pytest.raises(TypeError, match="cannot translate"):
        translate(object(), pairs)
    with pytest.raises(ValueError, match="need a tokenizer"):
        translate(members[0], ["ein Hund"])
    with pytest.raises(ValueError, match="a batch holds 1536"):
        translate(members[0], ["wort " * 10_000], tokenizer=pairs.tokenizer)
    with pytest.raises(ValueError, match="beams must be at least 1"):
        translate(members[0], pairs, 0)
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        translate(members[0], pairs, over="samples", samples=0)
    with pytest.raises(ValueError, match="decode in float32, not with precision='bf16-mixed'"):
        translate(Ensemble(members, precision="bf16-mixed"), pairs)


def test_what_was_written_is_read_by_others(members, pairs, tmp_path):
    translate(members[0], pairs.of(torch.arange(3)), 1, folder=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["kind"] == "translation"
    (tmp_path / manifest["files"][0]["file"]).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        translate(members[0], pairs.of(torch.arange(3)), 1, folder=tmp_path)


def test_snapshots_and_averaged_checkpoints_of_one_training_translate(pairs, tmp_path):
    """SGDR snapshots as members, and the average of the last epochs' weights (SWA), on tied embeddings."""
    torch.manual_seed(0)
    make = partial(Translator, len(pairs.tokenizer), width=24, encoder=1, decoder=1, heads=2)
    training = Training(epochs=6, lr=6e-3, clip=1.0)
    snapshots = train_snapshots(make, pairs, 2, training, task=Seq2Seq(), folder=tmp_path / "snapshots")
    one = train_averaged(make, pairs, 2, training, task=Seq2Seq(), folder=tmp_path / "averaged")
    assert one.output.weight is one.embedding.weight

    def nll(model):
        with torch.no_grad():
            said = [-Categorical(call(model, b.inputs)).log_prob(b.target.clamp(min=0)) * b.weight for b in pairs]
        return float(sum(loss.sum() for loss in said) / sum(batch.weight.sum() for batch in pairs))

    untrained = nll(make())
    assert all(nll(model) < untrained - 0.5 for model in (one, *snapshots.models))
    said = translate(snapshots, pairs, 2, longest=12)
    assert (said.knowledge > 0).any()
