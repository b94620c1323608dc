"""Tags and entities: what is counted, against seqeval, brute force and the CRF's own exact spans."""

import itertools

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score
from torch.nn.functional import cross_entropy

from solera import Ensemble, Training, fit, train_ensemble
from solera.data import UNLABELLED, Batch, Sentence, Sequences, Tags, chunked
from solera.data.chunks import windows
from solera.data.tag_scheme import exact_span
from solera.distributions.categorical import Categorical
from solera.nn import Tagger, WordFeatures
from solera.tasks import Classification, Tagging
from solera.tasks.entities import entity_columns, spans_of
from solera.testing import check_task

BIO = Tags(("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
BIOES = Tags.of([Sentence(["a", "b"], ["S-LOC", "S-PER"])])


def batch_of(tags, rows=12, tokens=6, seed=0, padding=False):
    random = torch.Generator().manual_seed(seed)
    target = torch.randint(len(tags), (rows, tokens), generator=random)
    weight = torch.ones(rows, tokens)
    if padding:
        weight[torch.arange(tokens) >= torch.randint(1, tokens + 1, (rows, 1), generator=random)] = 0
    return Batch(torch.randn(rows, tokens, 3), torch.arange(rows), target, weight)


def said(tags, batch, seed=1):
    shape = (*batch.target.shape, len(tags))
    return Categorical(2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double))


@pytest.mark.parametrize("tags", [BIO, BIOES])
def test_the_contract(tags):
    check_task(Tagging(tags), batch_of(tags, rows=20), len(tags))


@pytest.mark.parametrize("tags", [BIO, BIOES])
def test_scores_are_those_of_seqeval(tags):
    batch = batch_of(tags, rows=60, padding=True)
    task, prediction = Tagging(tags), said(tags, batch)
    mask = task.mask(batch, batch.target.shape)
    columns = {k: np.asarray(v)[mask.numpy()] for k, v in task.columns(prediction, batch).items()}
    predicted = task.columns(prediction, batch)["predicted"]
    names = [
        [[tags.names[k] for k in row[there]] for row, there in zip(rows, mask, strict=True)]
        for rows in (batch.target, predicted)
    ]
    row = task.scores(columns)
    for name, referee in (("F1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert row[name] == pytest.approx(referee(*names))
    assert row["F1"] > 0


@pytest.mark.parametrize("tags", [BIO, BIOES])
def test_decoding_is_the_likeliest_valid_sequence_and_confidence_the_exact_spans(tags):
    batch = batch_of(tags, rows=4, tokens=4)
    batch.weight[0, 1] = 0  # a gap
    batch.weight[1, 3:] = 0
    prediction = said(tags, batch)
    p, counted = prediction.mean, batch.weight > 0
    found = entity_columns(p, {"total": prediction.total}, counted, tags, None)
    start, transitions, end = tags.forbidden
    for row in range(4):
        places = counted[row].nonzero().flatten().tolist()
        best, most = None, -1.0
        for sequence in itertools.product(range(len(tags)), repeat=len(places)):
            if start[sequence[0]] or end[sequence[-1]]:
                continue
            if any(transitions[a, b] for a, b in itertools.pairwise(sequence)):
                continue
            chance = float(torch.stack([p[row, t, k] for t, k in zip(places, sequence, strict=True)]).prod())
            best, most = (sequence, chance) if chance > most else (best, most)
        assert found["predicted"][row, places].tolist() == list(best)
        packed = spans_of(torch.tensor([best]), tags)
        for span in packed.listed(tags):
            real = span._replace(row=row, start=places[span.start], stop=places[span.stop - 1] + 1)
            allowed = exact_span(tags.names, counted[row], real)
            wanted = (p[row] * allowed).sum(-1)[counted[row]].prod()
            assert found["entity_confidence"][row, real.start] == pytest.approx(float(wanted))
            inside = [t for t in places if real.start <= t < real.stop]
            total = prediction.total[row, inside].mean()
            assert found["entity_total"][row, real.start] == pytest.approx(float(total))
        assert int(found["entity"][row].sum()) == len(packed.listed(tags))


def test_a_tag_that_cannot_be_costs_no_other_entity_its_confidence():
    """I-LOC with certainty at the start is no entity's first tag; what comes after it is as sure as before."""
    sure = torch.eye(5)[torch.tensor([[2, 0, 1, 2, 0, 3]])]
    found = entity_columns(sure, {}, torch.ones(1, 6, dtype=torch.bool), BIO, None)
    assert found["predicted"].tolist() == [[0, 0, 1, 2, 0, 3]]
    assert found["entity_confidence"].tolist() == [[0, 0, 1, 0, 0, 1]]


def test_a_wrong_type_or_an_end_too_early_is_a_wrong_entity():
    gold = torch.tensor([[1, 2, 0, 3]])
    for row, right in (([1, 2, 0, 3], 2), ([1, 0, 0, 3], 1), ([3, 4, 0, 3], 1), ([1, 2, 2, 3], 1), ([0, 0, 0, 0], 0)):
        p = torch.nn.functional.one_hot(torch.tensor([row]), 5).double() * 0.9 + 0.02
        found = entity_columns(p, {}, torch.ones(1, 4, dtype=torch.bool), BIO, gold)
        assert (int(found["entity_correct"].sum()), int(found["gold"].sum())) == (right, 2)


def test_entities_are_what_is_rejected():
    batch = batch_of(BIO, rows=30)
    task = Tagging(BIO)
    columns = {k: np.asarray(v).reshape(-1) for k, v in task.columns(said(BIO, batch), batch).items()}
    units = task.rejected(columns)
    assert len(units["total"]) == columns["entity"].sum() < len(columns["total"])
    assert np.allclose(units["1 − confidence"], 1 - columns["entity_confidence"][columns["entity"]])
    assert task.error(units).sum() == columns["entity"].sum() - columns["entity_correct"].sum()


@pytest.fixture(scope="module")
def words():
    return WordFeatures()


def sentences(count, seed=0):
    """Names are capital words; Ann is a person and Rome a place."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        tokens, tags = [], []
        for _ in range(int(random.integers(2, 7))):
            word = random.choice(["the", "sees", "of", "Ann", "Rome", "Bob"])
            tokens.append(str(word))
            tags.append({"Ann": "B-PER", "Bob": "B-PER", "Rome": "B-LOC"}.get(str(word), "O"))
        found.append(Sentence(tokens, tags))
    return found


def small(words, crf=False):
    return Tagger(words, BIO, crf=crf, width=8, layers=1, embedding=4)


def test_a_network_with_a_crf_is_asked_for_its_likelihood_whatever_the_task(words):
    data = sentences(6)
    batch = Sequences(words(data), BIO(data)).take(range(6))
    network, plain = small(words, crf=True).eval(), small(words).eval()
    exact = -network.crf.log_prob(network.emissions(batch.inputs), batch.target, batch.weight).sum()
    for task in (Classification(), Tagging(BIO)):
        loss = task.label_loss(network, task.of_member(network(batch.inputs)), batch)
        assert loss.shape == batch.target.shape
        assert torch.allclose(batch.average(loss), exact / batch.weight.sum())
    loss = Tagging(BIO).label_loss(plain, Categorical(plain(batch.inputs)), batch)
    expected = cross_entropy(
        plain(batch.inputs).movedim(-1, 1), batch.target, reduction="none", ignore_index=UNLABELLED
    )
    assert torch.allclose(loss, expected)
    with pytest.raises(ValueError, match="likelihood of its own"):
        Tagging(BIO).label_loss(network, Categorical(network(batch.inputs)), batch, 0.1)


def test_the_likelihood_is_of_the_batch_that_is_asked_about_not_of_the_last_one(words):
    data = sentences(8)
    first, second = (Sequences(words(d), BIO(d)).take(range(4)) for d in (data[:4], data[4:]))
    network = small(words, crf=True).eval()
    network(first.inputs)
    assert torch.allclose(network.label_loss(second), network.label_loss(second))
    network(first.inputs)
    fresh = -network.crf.log_prob(network.emissions(second.inputs), second.target, second.weight)
    assert torch.allclose(network.label_loss(second).sum(-1), fresh, atol=1e-5)


@pytest.mark.parametrize("crf", [False, True])
def test_it_learns_and_members_can_be_trained(words, crf):
    data = sentences(60)
    batches = Sequences(words(data), BIO(data), tokens=64)
    ensemble = train_ensemble(lambda: small(words, crf), batches, members=2, training=Training(epochs=8, lr=0.03))
    assert ensemble.class_names == list(BIO.names)
    batch = batches.take(range(60))
    found = Tagging(BIO).columns(ensemble.predict(batch.inputs), batch)
    assert found["correct"][batch.weight > 0].double().mean() > 0.95


def test_unlabelled_tokens_do_not_count(words):
    data = sentences(5)
    batch = Sequences(words(data), BIO(data)).take(range(5))
    batch.target[0] = UNLABELLED
    for crf in (False, True):
        network = small(words, crf)
        loss = Tagging(BIO).label_loss(network, Categorical(network(batch.inputs)), batch)
        assert (loss[0] == 0).all()
        assert (loss[1][batch.weight[1] > 0] > 0).all()


def test_long_sentences_are_cut_between_entities_and_nothing_is_lost():
    tags = (["B-PER"] + ["I-PER"] * 2 + ["O"]) * 50
    whole = Sentence([str(n) for n in range(200)], tags)
    pieces = chunked([whole, Sentence(["x"], ["O"])], 10)
    assert max(len(piece.tokens) for piece in pieces) <= 10
    assert [t for piece in pieces for t in piece.tokens] == [*whole.tokens, "x"]
    assert [t for piece in pieces for t in piece.tags] == [*tags, "O"]
    assert all(not piece.tags[0].startswith("I-") for piece in pieces)
    assert [len(p.tokens) for p in chunked([Sentence(list("abcdef"))], 4)] == [4, 2]
    stuck = chunked([Sentence(list("abcd"), ["B-X", "I-X", "I-X", "I-X"])], 2)
    assert [t for piece in stuck for t in piece.tokens] == list("abcd")


@pytest.mark.parametrize(("size", "most", "context"), [(1, 5, 2), (50, 7, 3), (50, 50, 3), (51, 50, 3), (9, 3, 1)])
def test_windows_keep_every_token_once_with_its_neighbours(size, most, context):
    kept = []
    for seen, keep in windows(size, most, context):
        assert seen.stop - seen.start <= most
        for place in range(seen.start + keep.start, seen.start + keep.stop):
            kept.append(place)
            assert seen.start <= max(0, place - context)
            assert seen.stop >= min(size, place + context + 1)
    assert kept == list(range(size))
    with pytest.raises(ValueError, match="leave none to keep"):
        list(windows(10, 4, 2))


def test_a_task_of_other_tags_than_the_model_is_refused(words):
    data = sentences(3)
    batch = Sequences(words(data), BIO(data)).take(range(3))
    with pytest.raises(ValueError, match="answers for 5 tags, the task has 3"):
        Tagging(Tags(("O", "B-PER", "I-PER"))).check(batch, 5)


def test_fit_counts_tokens_not_sentences(words):
    """A CRF's loss is a mean over tokens, as that of independent tags is."""
    data = sentences(4)
    batches = Sequences(words(data), BIO(data))
    network = small(words, crf=True)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    batch = batches.take(range(4))
    loss = batch.average(Tagging(BIO).label_loss(network, Categorical(network(batch.inputs)), batch))
    assert 0.5 < loss.item() < float(np.log(5)) + 1e-6
    assert fit(network, batches, Training(epochs=1)) is network
    assert Ensemble([network]).members == 1
