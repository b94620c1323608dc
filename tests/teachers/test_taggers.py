"""Taggers of words as members: transformers with their tokenizers, spaCy pipelines, CoNLL files."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
import transformers

from solera import Ensemble
from solera.data.sequences import Sequences
from solera.data.tag_probabilities import load_tag_probabilities, save_tag_probabilities
from solera.teachers import Taggers
from solera.teachers.adapters import SequenceClassifier, TokenClassifier, adapt, word_pieces
from solera.teachers.adapters.spacy import SpacyTagger, span_marginals
from solera.teachers.adapters.words import TransformerTagger
from solera.testing import check_teacher
from tests.words import SENTENCES, TAGS, bert, tokenizer


def by_hand(model, words):
    """Logits of each word's first piece, one sentence at a time, without padding."""
    cut, ids, starts = tokenizer(), [2], []
    for word in words:
        starts.append(len(ids))
        ids += cut.convert_tokens_to_ids(cut.tokenize(word))
    with torch.no_grad():
        return model(input_ids=torch.tensor([[*ids, 3]])).logits[0, starts]


def batch_of(sentences, index=None):
    return Sequences([torch.ones(len(words)) for words in sentences]).take(range(len(sentences)))


def test_a_transformer_becomes_what_its_class_says():
    assert type(adapt(bert())) is TokenClassifier
    assert type(adapt(bert("BertForSequenceClassification"))) is SequenceClassifier
    with pytest.raises(TypeError, match=r"BertForMaskedLM is none of \.\.\.ForTokenClassification"):
        adapt(bert("BertForMaskedLM"))


def test_a_token_classifier_answers_for_the_first_piece_of_each_word():
    models = [bert(seed=0), bert(seed=1)]
    inputs = Sequences(word_pieces(SENTENCES, tokenizer())).take([0, 1, 2])
    assert inputs.weight.sum(1).tolist() == [5, 2, 3]
    ensemble = Ensemble(models)
    assert ensemble.class_names == TAGS
    check_teacher(ensemble, inputs)
    said = ensemble(inputs).members.logits
    for row, words in enumerate(SENTENCES):
        for member, model in enumerate(models):
            torch.testing.assert_close(said[row, : len(words), member], by_hand(model, words), atol=1e-5, rtol=1e-5)


def test_taggers_answer_by_number_each_with_its_own_tags_and_order():
    flipped = bert(names=TAGS[::-1], seed=1)
    teacher = Taggers([(bert(), tokenizer()), (flipped, tokenizer())], SENTENCES, class_names=TAGS)
    batch = batch_of(SENTENCES).take(torch.tensor([2, 0]))
    check_teacher(teacher, batch)
    said = teacher(batch).members.logits
    assert said.shape == (2, 5, 2, 5)
    for row, number in enumerate((2, 0)):
        words = SENTENCES[number]
        torch.testing.assert_close(said[row, : len(words), 0], by_hand(bert(), words), atol=1e-5, rtol=1e-5)
        expected = by_hand(flipped, words).flip(-1)
        torch.testing.assert_close(said[row, : len(words), 1], expected, atol=1e-5, rtol=1e-5)


def test_many_short_parts_are_one_answer(monkeypatch):
    monkeypatch.setattr("solera.teachers.adapters.words.PIECES", 8)
    tagger = TransformerTagger(bert(), tokenizer(), SENTENCES)
    for words, said in zip(SENTENCES, tagger.said([0, 1, 2]), strict=True):
        torch.testing.assert_close(said, by_hand(bert(), words), atol=1e-5, rtol=1e-5)


def test_a_lost_word_is_named_and_nothing_is_shifted():
    with pytest.raises(ValueError, match=r"loses word 1 of sentence 1, '\\u200d': .* unknown token '\[UNK\]'"):
        word_pieces([["Paris"], ["Paris", "\u200d", "."]], tokenizer())
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        word_pieces([["Paris"], []], tokenizer())
    with pytest.raises(ValueError, match=r"sentence 0 \(40 words\) makes 42 pieces, the model takes 16"):
        Taggers([(bert(), tokenizer())], [["Paris"] * 40])
    with pytest.raises(ValueError, match="42 pieces, the model takes 10"):
        word_pieces([["Paris"] * 40], tokenizer(model_max_length=10))
    slow = type("Slow", (), {"is_fast": False, "model_max_length": 10})()
    with pytest.raises(ValueError, match="Slow does not say which piece belongs to which word: pass a fast tokenizer"):
        word_pieces([["Paris"]], slow)


def test_positions_that_start_after_padding_leave_room_for_fewer_pieces():
    """RoBERTa has 16 positions here, the first of them at padding_idx + 1 = 4."""
    config = transformers.RobertaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, pad_token_id=3,
        max_position_embeddings=16, num_labels=5,
    )  # fmt: skip
    roberta = transformers.RobertaForTokenClassification(config).eval()
    assert Taggers([(roberta, tokenizer())], [["Paris"] * 10]).members == 1
    with pytest.raises(ValueError, match=r"sentence 0 \(11 words\) makes 13 pieces, the model takes 12"):
        Taggers([(roberta, tokenizer())], [["Paris"] * 11])


def test_emoji_and_combining_characters_keep_their_place():
    words = ["e\u0301", "😀", "👩\u200d💻", "Paris", "naïve\u0308"]
    found = word_pieces([words], tokenizer())
    assert len(found["word_starts"][0]) == len(words)
    pieces = tokenizer().convert_ids_to_tokens(found["input_ids"][0])
    assert pieces[found["word_starts"][0][3]] == "paris"


def test_batches_of_other_sentences_are_refused():
    teacher = Taggers([(bert(), tokenizer())], SENTENCES)
    with pytest.raises(ValueError, match="sentence 1 has 2 words for the taggers and 3 in the batch"):
        teacher(batch_of([SENTENCES[0], ["a", "b", "c"]]))
    with pytest.raises(ValueError, match="there are 3 sentences, none with the number 3"):
        teacher(batch_of([*SENTENCES, ["x"]]))
    with pytest.raises(TypeError, match="a int is no tagger of words: pass a pair of a Hugging Face"):
        Taggers([3], SENTENCES)


def test_members_that_saw_a_sentence_are_silent():
    saw = np.array([[True, False], [False, False], [False, True]])
    said = Taggers([(bert(seed=n), tokenizer()) for n in (0, 1)], SENTENCES, saw=saw)(batch_of(SENTENCES))
    torch.testing.assert_close(said.mean[0], by_hand(bert(seed=1), SENTENCES[0]).softmax(-1), atol=1e-5, rtol=1e-5)
    assert said.knowledge[1, :2].min() > 0


# CoNLL files


def probabilities(seed):
    random = np.random.default_rng(seed)
    return [random.dirichlet(np.ones(len(TAGS)), len(words)) for words in SENTENCES]


def test_files_of_probabilities_and_of_tags_are_members(tmp_path):
    rows = probabilities(0)
    one = save_tag_probabilities(tmp_path / "one.conll.gz", SENTENCES, TAGS, rows)
    other = save_tag_probabilities(
        tmp_path / "two.conll", SENTENCES, TAGS[::-1], [r[:, ::-1] for r in probabilities(1)]
    )
    votes = tmp_path / "votes.conll"
    votes.write_text(
        "Angela B-PER\nMerkel I-PER\nvisited O\nParis B-LOC\n. O\n\nParis O\n. O\n\nzzz O\nMerkel O\n😀 O\n"
    )
    teacher = Taggers([one, other, votes], SENTENCES, class_names=TAGS)
    batch = batch_of(SENTENCES)
    check_teacher(teacher, batch)
    said = teacher(batch).members.logits.exp().numpy()
    np.testing.assert_allclose(said[0, :, 0], rows[0], rtol=1e-5)
    np.testing.assert_allclose(said[2, :3, 1], probabilities(1)[2], rtol=1e-5)
    assert said[0, :, 2].argmax(-1).tolist() == [1, 2, 0, 3, 0]
    assert said[0, 0, 2].tolist() == pytest.approx([2e-5, 1 - 8e-5, 2e-5, 2e-5, 2e-5])


def test_tokens_that_differ_are_named_by_file_and_line(tmp_path):
    file = tmp_path / "member.conll"
    for text, message in {
        "Angela O\nMerkel O\nvisits O\nParis O\n. O\n": "member.conll, line 3: the token is 'visits', sentence 0 of",
        "Angela O\nMerkel O\nvisited O\nParis O\n": "member.conll, line 4: sentence 0 ends after 4 tokens, in the data",
        "Angela O\nMerkel O\nvisited O\nParis O\n. O\n": "member.conll holds 1 sentences, the data 3",
        "Angela X\n": "member.conll, line 1: the tag 'X' is none of O, B-PER",
        "Angela O=0.5 B-PER=0.4 O\n": "member.conll, line 1: the probabilities of 'Angela' are .* sum to 0.9",
        "Angela O=1 B-PER=0 O\nMerkel B-PER=0 O=1 O\n": "line 2 gives probabilities of B-PER, O, the first line of O",
        "Angela\nMerkel\n": "member.conll holds no predictions",
    }.items():
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            Taggers([file], SENTENCES, class_names=TAGS)


def test_a_file_with_probabilities_is_a_plain_conll_file_too(tmp_path):
    from solera.data.conll import load_conll

    rows = [np.eye(len(TAGS))[[1, 2, 0, 3, 0]] * 0.6 + 0.08]
    file = save_tag_probabilities(tmp_path / "said.conll", SENTENCES[:1], TAGS, rows)
    (sentence,) = load_conll(file)
    assert (sentence.tokens, sentence.tags) == (SENTENCES[0], ["B-PER", "I-PER", "O", "B-LOC", "O"])
    np.testing.assert_allclose(load_tag_probabilities(file).probabilities[0], rows[0], rtol=1e-5)


# spaCy


def docs(nlp):
    spacy = pytest.importorskip("spacy")
    tokens = spacy.tokens
    for words, tags in ((SENTENCES[0], ["B-PER", "I-PER", "O", "B-LOC", "O"]), (SENTENCES[1], ["B-LOC", "O"])):
        doc = tokens.Doc(nlp.vocab, words=words, tags=tags)
        starts = [n for n, tag in enumerate(tags) if tag.startswith("B")]
        doc.spans["sc"] = [tokens.Span(doc, n, n + 1 + (tags[n] == "B-PER"), label=tags[n][2:]) for n in starts]
        yield spacy.training.Example(tokens.Doc(nlp.vocab, words=words), doc)


@cache
def pipeline(component):
    spacy = pytest.importorskip("spacy")
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    nlp = spacy.blank("en")
    small = {"@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 8, "depth": 1,
             "embed_size": 50, "window_size": 1, "maxout_pieces": 2, "subword_features": True}  # fmt: skip
    nlp.add_pipe(component, config={"model": {"tok2vec": small}})
    nlp.initialize(lambda: list(docs(nlp)))
    for _ in range(5):
        nlp.update(list(docs(nlp)))
    return nlp


def test_a_spacy_tagger_of_bio_tags_says_its_softmax():
    nlp = pipeline("tagger")
    tagger = SpacyTagger(nlp, SENTENCES)
    assert set(tagger.class_names) == {"O", "B-PER", "I-PER", "B-LOC"}
    for words, said in zip(SENTENCES, tagger.said([0, 1, 2]), strict=True):
        doc = nlp.get_pipe("tagger")(__import__("spacy").tokens.Doc(nlp.vocab, words=words))
        assert [tagger.class_names[n] for n in said.argmax(-1)] == [token.tag_ for token in doc]
    before = tagger.fingerprint
    again = __import__("spacy").blank("en").from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert SpacyTagger(again, SENTENCES).fingerprint == before
    teacher = Taggers([nlp, nlp], SENTENCES, class_names=TAGS)  # I-LOC it has never seen
    check_teacher(teacher, batch_of(SENTENCES))


def segmentations(tokens, types, spans):
    """Every set of spans with types that do not overlap."""
    for count in range(tokens + 1):
        for chosen in itertools.combinations(range(len(spans)), count):
            covered = [t for n in chosen for t in range(*spans[n])]
            if len(set(covered)) == len(covered):
                for kinds in itertools.product(range(types), repeat=count):
                    yield list(zip(chosen, kinds, strict=True))


def test_span_marginals_are_brute_force():
    tokens, types = 4, 2
    spans = np.array([(a, b) for a in range(tokens) for b in range(a + 1, min(tokens, a + 3) + 1)])
    log_odds = np.random.default_rng(0).normal(0, 2, (len(spans), types))
    log_odds[2, 1] = -np.inf
    expected = np.zeros((tokens, 1 + 2 * types))
    for chosen in segmentations(tokens, types, spans):
        weight = np.exp(sum(log_odds[n, kind] for n, kind in chosen))
        tags = [0] * tokens
        for n, kind in chosen:
            start, stop = spans[n]
            tags[start:stop] = [1 + 2 * kind] + [2 + 2 * kind] * (stop - start - 1)
        expected[range(tokens), tags] += weight
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(span_marginals(spans, log_odds, tokens)), expected, rtol=1e-12)


@pytest.mark.parametrize("component", ["spancat", "spancat_singlelabel"])
def test_a_spancat_says_distributions_of_tags(component):
    nlp = pipeline(component)
    tagger = SpacyTagger(nlp, SENTENCES)
    assert tagger.class_names[0] == "O"
    assert set(tagger.class_names) == set(TAGS)
    said = tagger.said([0])[0]
    torch.testing.assert_close(said.exp().sum(-1), torch.ones(5), atol=1e-5, rtol=0)
    if component == "spancat":  # one candidate alone has its own odds
        doc = __import__("spacy").tokens.Doc(nlp.vocab, words=["Paris"])
        (score,) = nlp.get_pipe(component).predict([doc])[1]
        odds = score / (1 - score)
        expected = np.concatenate([[1], odds]) / (1 + odds.sum())
        alone = SpacyTagger(nlp, [["Paris"]]).said([0])[0].exp()[0]
        assert [float(alone[0]), *alone[1::2].tolist()] == pytest.approx(expected.tolist(), rel=1e-5)


def test_pipelines_without_scores_are_refused():
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    with pytest.raises(ValueError, match=r"this spaCy pipeline \(empty\) has no component with scores of entities"):
        SpacyTagger(nlp, SENTENCES)
    nlp.add_pipe("ner")
    with pytest.raises(ValueError, match="'ner', which chooses one action after the other and gives no token and no"):
        Taggers([nlp], SENTENCES)


def test_a_component_of_ones_own_with_tag_scores():
    spacy = pytest.importorskip("spacy")

    class Own:
        labels = ("O", "B-LOC")

        def __call__(self, doc):
            return doc

        def tag_scores(self, doc):
            return np.log([[0.25, 0.75] if token.text == "Paris" else [0.9, 0.1] for token in doc])

    spacy.language.Language.component("own_scores", func=lambda doc: doc)
    nlp = spacy.blank("en")
    nlp.add_pipe("own_scores")
    nlp._components[0] = ("own_scores", Own())
    said = Taggers([nlp], SENTENCES)(batch_of(SENTENCES)).mean
    assert said[1, 0].tolist() == pytest.approx([0.25, 0.75])
    assert said[0, 0].tolist() == pytest.approx([0.9, 0.1])
