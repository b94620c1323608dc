"""Pairs of texts and their tokenizers."""

import gzip

import pytest
import torch

from solera.data import UNLABELLED, CausalPairs, Pairs, as_tokenizer, train_bpe
from solera.data.tokenizers import load_tokenizer

GERMAN = ["ein Hund läuft im Gras", "zwei Frauen singen", "ein Mann liest ein Buch", "der Hund schläft"] * 3
ENGLISH = ["a dog runs in the grass", "two women sing", "a man reads a book", "the dog sleeps"] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe([*GERMAN, *ENGLISH], 300)


def sentencepiece_model(folder):
    import sentencepiece

    text = folder / "text"
    text.write_text("\n".join([*GERMAN, *ENGLISH]))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "piece"), vocab_size=58, pad_id=3, minloglevel=2
    )
    return folder / "piece.model"


def transformers_tokenizer(tokenizer):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.tokenizer, pad_token="<pad>", eos_token="</s>", bos_token="<s>"
    )


def test_what_is_read_and_what_is_to_be_written(tokenizer):
    pairs = Pairs(GERMAN, ENGLISH, tokenizer, tokens=64)
    batch = pairs.take([0, 1])
    assert set(batch.inputs) == {"input_ids", "attention_mask", "decoder_input_ids"}
    target, counts = batch.target, batch.weight > 0
    assert (target[counts.cumsum(1) == counts.sum(1, keepdim=True)][:1] == tokenizer.end).all()
    assert (batch.inputs["decoder_input_ids"][:, 0] == tokenizer.start).all()
    shifted = batch.inputs["decoder_input_ids"][:, 1:]
    assert torch.equal(shifted[counts[:, 1:]], target[:, :-1][counts[:, 1:]])
    assert (target[~counts] == UNLABELLED).all()
    assert [tokenizer.decode(row[m].tolist()) for row, m in zip(target, counts, strict=True)] == ENGLISH[:2]
    assert sum(len(b) for b in pairs) == len(GERMAN)
    assert all(b.inputs["input_ids"].numel() <= 64 for b in pairs)


def test_files_may_be_packed(tokenizer, tmp_path):
    (tmp_path / "de.gz").write_bytes(gzip.compress("\n".join(GERMAN).encode()))
    (tmp_path / "en").write_text("\n".join(ENGLISH))
    pairs = Pairs(tmp_path / "de.gz", tmp_path / "en", tokenizer)
    assert pairs.fingerprint() == Pairs(GERMAN, ENGLISH, tokenizer).fingerprint()


def test_another_tokenizer_makes_another_fingerprint(tokenizer):
    other = train_bpe([*GERMAN, *ENGLISH], 280)
    assert other.fingerprint != tokenizer.fingerprint
    assert Pairs(GERMAN, ENGLISH, other).fingerprint() != Pairs(GERMAN, ENGLISH, tokenizer).fingerprint()
    assert train_bpe([*GERMAN, *ENGLISH], 300).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("kind", ["own", "sentencepiece", "transformers"])
def test_a_tokenizer_is_saved_and_read_back(kind, tokenizer, tmp_path):
    given = {"own": lambda: tokenizer, "sentencepiece": lambda: sentencepiece_model(tmp_path)}.get(
        kind, lambda: transformers_tokenizer(tokenizer)
    )()
    own = as_tokenizer(given)
    again = load_tokenizer(tmp_path, own.save(tmp_path))
    assert again.fingerprint == own.fingerprint
    assert (again.start, again.end, again.pad, len(again)) == (own.start, own.end, own.pad, len(own))
    (target,) = again.targets(["a dog sleeps"])
    assert target == own.targets(["a dog sleeps"])[0]
    assert target[-1] == own.end
    assert again.decode(target) == "a dog sleeps"
    with pytest.raises(ValueError, match="not the tokenizer that was saved"):
        load_tokenizer(tmp_path, {**own.save(tmp_path), "fingerprint": "other"})


def test_every_character_is_known(tokenizer):
    text = "Łódź 😀 \u4f60\u597d"
    assert tokenizer.decode(tokenizer.targets([text])[0]) == text


def test_words_have_their_tokens(tokenizer):
    ids = tokenizer.targets(["two dogs readily sing"])[0]
    words = tokenizer.words(ids)
    assert [word for word, _ in words] == ["two", "dogs", "readily", "sing"]
    assert [place for _, places in words for place in places] == list(range(len(ids) - 1))


def test_some_of_the_pairs_and_other_targets(tokenizer):
    pairs = Pairs(GERMAN, ENGLISH, tokenizer)
    some = pairs.of(torch.tensor([3, 1]))
    assert some.target_text == [ENGLISH[3], ENGLISH[1]]
    assert some.index.tolist() == [3, 1]
    assert torch.equal(some.take([0]).target, pairs.take([3]).target)
    other = some.with_targets([[5, 6, tokenizer.end], [7, tokenizer.end]])
    assert other.take([1]).target.tolist() == [[7, tokenizer.end]]
    assert other.source == some.source
    assert "decoder_input_ids" not in some.without_targets().take([0]).inputs


def test_a_causal_model_learns_of_targets_alone(tokenizer):
    pairs = CausalPairs(GERMAN, ENGLISH, tokenizer)
    batch, plain = pairs.take([0, 2]), Pairs(GERMAN, ENGLISH, tokenizer).take([0, 2])
    for row in range(2):
        counts = batch.weight[row] > 0
        assert batch.target[row][counts].tolist() == plain.target[row][plain.weight[row] > 0].tolist()
        source = int(plain.inputs["attention_mask"][row].sum())
        assert counts.nonzero()[0] == source
        assert batch.inputs["input_ids"][row, source] == tokenizer.start
    assert pairs.of(torch.tensor([1])).take([0]).target.shape == pairs.take([1]).target.shape


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (["a", ""], ["b", "c"], "source line 1 is empty"),
        (["a", "b"], ["c", " "], "target line 1 is empty"),
        (["a"], ["b", "c"], "1 source lines and 2 target lines"),
        (["wort " * 10_000], ["word"], "a batch holds 1536"),
        ([], None, "no source lines"),
    ],
)
def test_bad_pairs_are_refused(tokenizer, source, target, message):
    with pytest.raises(ValueError, match=message):
        Pairs(source, target, tokenizer)


def test_what_is_no_text_is_refused(tokenizer):
    with pytest.raises(TypeError, match="line 0 is a int"):
        Pairs([3], None, tokenizer)
    with pytest.raises(TypeError, match="no tokenizer"):
        Pairs(GERMAN, ENGLISH, object())
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Pairs("nowhere.txt", None, tokenizer)
    with pytest.raises(ValueError, match="below 260"):
        train_bpe(GERMAN, 100)
