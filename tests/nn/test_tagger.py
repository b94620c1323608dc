"""Words as numbers, and the tagger that looks them up: padding, batches and files change nothing."""

import numpy as np
import pytest
import torch

from solera.data import Sentence, Sequences, Tags
from solera.methods import EnD
from solera.nn import Tagger, WordFeatures
from solera.training.student import Student

TAGS = Tags(("O", "B-PER", "I-PER"))
SENTENCES = [["Angela", "Merkel", "smiled", "."], ["No"], ["the", "Zürich", "👩‍👩‍👧", "1951"], ["a", "b", "Angela"]]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    known = ["the", "angela", "zürich"]
    listed = np.frombuffer("\n".join(known).encode(), np.uint8)
    np.savez(folder / "vectors.npz", words=listed, vectors=np.arange(12, dtype=np.float16).reshape(3, 4))
    named = np.frombuffer("\n".join(["Angela", "the", "b"]).encode(), np.uint8)
    np.savez(folder / "clusters.npz", words=named, cluster=np.array([0b11110101, 0b1, 0b11110101], np.uint32))
    return WordFeatures(vectors=folder / "vectors.npz", clusters=folder / "clusters.npz")


def tagger(words, crf=False, seed=0):
    torch.manual_seed(seed)
    made = Tagger(words, TAGS, crf=crf, width=12, layers=2, embedding=6).eval()
    if crf:
        torch.nn.init.normal_(made.crf.transitions)
    return made


def test_columns_are_a_words_own_and_alike_for_alike_words(words):
    first, _, _, last = words(SENTENCES)
    assert first.shape == (4, 9)
    assert (first[:, :4] > 0).all()
    assert torch.equal(first[0], last[2])
    upper, lower = words([["ANGELA", "angela"]])[0]
    assert upper[0] == lower[0]
    assert upper[3] != lower[3]
    assert words([["the", "angela", "Zürich", "unheard"]])[0][:, -1].tolist() == [1, 2, 3, 0]
    angela, b = words([["Angela", "b"]])[0]
    assert angela[4:8].tolist() == b[4:8].tolist() == [2, 5, 53, 245]  # coarser clusters are the low bits


def test_characters_that_look_alike_are_alike_and_odd_ones_are_fine(words):
    composed, decomposed = words([["Z\u00fcrich", "Zu\u0308rich"]])[0]
    assert torch.equal(composed, decomposed)
    for token in ("👍🏽", "\u0301", "\ud800", "ﷺ", "a" * 10_000):
        assert words([[token]])[0].shape == (1, 9)


def test_bad_sentences_are_named(words):
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        words([["a"], []])
    with pytest.raises(ValueError, match="got a text"):
        words("Angela Merkel")


def test_files_without_what_is_needed_are_refused(tmp_path):
    np.savez(tmp_path / "none.npz", words=np.frombuffer(b"a", np.uint8))
    with pytest.raises(ValueError, match="not 'vectors': it needs"):
        WordFeatures(vectors=tmp_path / "none.npz")
    np.savez(tmp_path / "short.npz", words=np.frombuffer(b"a\nb", np.uint8), vectors=np.zeros((1, 2)))
    with pytest.raises(ValueError, match="2 words and 1 rows"):
        WordFeatures(vectors=tmp_path / "short.npz")


@pytest.mark.parametrize("crf", [False, True])
def test_company_and_padding_change_no_answer(words, crf):
    network = tagger(words, crf)
    batch = Sequences(words(SENTENCES), tokens=100).take(range(4))
    together = network(batch.inputs)
    for row, features in enumerate(words(SENTENCES)):
        alone = network(features[None])
        assert torch.allclose(together[row, : len(features)], alone[0], atol=1e-5)


def test_a_token_beyond_the_context_changes_nothing_and_one_within_does(words):
    network = tagger(words)
    text = ["a"] * 9
    changed = [["the", *text[1:]]]
    before, after = network(words([text])[0][None]), network(words(changed)[0][None])
    moved = (before - after).abs().amax(-1)[0]
    assert (moved[: network.context + 1] > 0).all()
    assert (moved[network.context + 1 :] == 0).all()


def test_a_crf_answers_with_log_marginals_and_a_likelihood_of_whole_sequences(words):
    network = tagger(words, crf=True)
    batch = Sequences(words(SENTENCES), TAGS([["B-PER", "I-PER", "O", "O"], ["O"], ["O"] * 4, ["O"] * 3])).take(
        range(4)
    )
    answer = network(batch.inputs)
    there = batch.weight.bool()
    assert torch.allclose(answer.exp().sum(-1)[there], torch.ones(int(there.sum())))
    assert (answer[:, 0, 2] == -30).all()  # I-PER begins no sentence
    emissions = network.emissions(batch.inputs)
    expected = network.crf.log_prob(emissions, batch.target, there)
    assert torch.allclose(network.log_likelihood(batch.inputs, batch.target), expected)
    unknown = batch.target.masked_fill(there, -100)
    assert torch.allclose(network.log_likelihood(batch.inputs, unknown), torch.zeros(4), atol=1e-5)
    some = batch.target.clone()
    some[0, 1] = -100  # marginalised: the sum over its tags
    total = torch.stack([network.crf.log_prob(emissions, some.masked_fill(some == -100, k), there) for k in range(3)])
    assert torch.allclose(network.log_likelihood(batch.inputs, some)[0], total.logsumexp(0)[0], atol=1e-5)


@pytest.mark.parametrize("crf", [False, True])
def test_a_saved_tagger_needs_no_other_file(words, tmp_path, crf):
    student = Student(tagger(words, crf), EnD(), class_names=list(TAGS.names))
    again = Student.load(student.save(tmp_path / "student"))
    inputs = words(SENTENCES)[0][None]
    assert torch.equal(again.predict(inputs).mean, student.predict(inputs).mean)
    assert all(torch.equal(a, b) for a, b in zip(again.model.words(SENTENCES), words(SENTENCES), strict=True))


def test_words_without_files_are_hashed_alone():
    words = WordFeatures()
    network = Tagger(words, TAGS, width=8, layers=1, embedding=4)
    assert words([["a", "b"]])[0].shape == (2, 4)
    assert network(words([Sentence(["a", "b"])])[0][None]).shape == (1, 2, 3)


def test_words_are_looked_up_anew_once_their_tables_are_loaded(words):
    fresh = WordFeatures.empty(words.settings)
    before = fresh([["Angela", "the"]])[0]
    fresh.load_state_dict(words.state_dict())
    after = fresh([["Angela", "the"]])[0]
    assert not torch.equal(before, after)
    assert torch.equal(after, words([["Angela", "the"]])[0])
