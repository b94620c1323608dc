"""Every categorical method on tokens: from CRF teachers, live or remembered, to one tagger of independent tags."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from solera import (
    AEKD,
    BatchEnsemble,
    EnD,
    EnD2,
    Ensemble,
    Hydra,
    LatentBE,
    ProxyDirichlet,
    Sequences,
    Student,
    Training,
    capture,
    distill,
    evaluate,
    report,
    train_ensemble,
    train_folds,
    train_snapshots,
)
from solera.calibration import fit_temperature
from solera.data import Tags
from solera.distributions.base import SecondOrder
from solera.nn import Tagger, WordFeatures
from solera.tasks import Tagging
from tests.tasks.test_tagging import BIO, sentences, small

TASK, DATA, TEST = Tagging(BIO), sentences(60), sentences(30, seed=1)
FAST = Training(epochs=8, lr=0.03)
METHODS = [EnD(), EnD2(), ProxyDirichlet(), Hydra(), BatchEnsemble(), LatentBE(), AEKD()]


@pytest.fixture(scope="module")
def words():
    return WordFeatures()


@pytest.fixture(scope="module")
def batches(words):
    return Sequences(words(DATA), BIO(DATA), tokens=64)


@pytest.fixture(scope="module")
def mixed(words, batches):
    """One member of independent tags, one with a CRF: it rules out what the other allows."""
    members = [
        train_ensemble(lambda crf=crf: small(words, crf), batches, members=1, training=FAST) for crf in (False, True)
    ]
    return Ensemble([member.models[0] for member in members])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_student_of_each_method_tags_like_its_teacher(method, mixed, batches, words, tmp_path):
    student = distill(mixed, small(words), batches, method, FAST, task=TASK)
    batch = batches.take(range(len(DATA)))
    said, there = student.predict(batch.inputs), batch.weight > 0
    assert said.mean.shape == (*there.shape, len(BIO))
    found = TASK.columns(said, batch)
    assert found["correct"][there].double().mean() > 0.9
    assert isinstance(said, SecondOrder) or isinstance(method, (EnD, AEKD, LatentBE))
    again = Student.load(student.save(tmp_path / "student"))
    assert again.entities("Ann sees Rome") == student.entities("Ann sees Rome")
    assert [(e.text, e.type) for e in student.entities("Ann sees Rome")] == [("Ann", "PER"), ("Rome", "LOC")]


def test_labels_are_mixed_in_for_tokens_that_have_one(mixed, batches, words):
    """With the whole weight on labels the teacher is not heard: the student learns labels that contradict it."""
    turned = [torch.where(t == 1, 3, torch.where(t == 3, 1, t)) for t in BIO(DATA)]  # LOC and PER change places
    other = Sequences(words(DATA), turned, tokens=64)
    for share, wanted in ((0.0, "PER"), (1.0, "LOC")):
        training = Training(epochs=8, lr=0.03, label_weight=share)
        student = distill(mixed, small(words), other, EnD(), training, task=TASK)
        assert [e.type for e in student.entities(["Ann"])] == [wanted]


def test_a_remembered_mean_takes_few_bytes_a_token_and_batches_little_padding(words, tmp_path):
    nine = Tags(("O", *(f"{p}-{kind}" for kind in ("A", "B", "C", "D") for p in "BI")))
    random = np.random.default_rng(0)
    tokens = [["a"] * int(n) for n in random.integers(3, 60, 400)]
    batches = Sequences(words(tokens), tokens=768)
    members = Ensemble([Tagger(words, nine, width=4, layers=1, embedding=2) for _ in range(2)])
    capture(members, batches, tmp_path / "kept", "mean")
    size = sum(file.stat().st_size for file in (tmp_path / "kept").glob("*.safetensors"))
    assert size / sum(map(len, tokens)) <= 30
    assert batches.padding_share < 0.1


def test_snapshots_and_folds_of_taggers(words, batches):
    short = Training(epochs=2, lr=0.03)
    assert train_snapshots(lambda: small(words), batches, 2, short, task=TASK).members == 2
    folds = train_folds(lambda: small(words), batches, 2, short, task=TASK)
    assert (folds.saw.sum(0) == 30).all()  # each member saw half of the sentences
    assert (folds.saw.sum(1) == 1).all()


def test_one_temperature_for_all_tokens(mixed, batches):
    """Of an ensemble after averaging; padding does not count."""
    batch = batches.take(range(len(DATA)))
    there = batch.weight > 0
    noise = torch.rand(there.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    target = batch.target.masked_fill(noise & there, 1)  # some labels are wrong: it was too sure
    logs = mixed.predict(batch.inputs).mean.double().log()
    kept = fit_temperature(logs[there], target[there])
    assert kept == pytest.approx(fit_temperature(logs, target.clamp(min=0), batch.weight), rel=1e-6)
    assert kept > 1

    def loss(temperature):
        return float(cross_entropy(logs[there] / temperature, target[there]))

    assert loss(kept) < min(loss(0.9 * kept), loss(1.1 * kept))


def test_sentences_go_straight_into_an_evaluation_and_its_report_shows_their_words(mixed, batches, words, tmp_path):
    student = distill(mixed, small(words), batches, ProxyDirichlet(), FAST, task=TASK)
    models = {"ensemble": mixed, "single": mixed.member(0), "student": student}
    result = evaluate(models, TEST, task=TASK, unfamiliar={"odd": sentences(20, seed=2)}, resamples=20)
    assert result.rows["student"]["F1"] > 0.9
    assert {"entity ECE", "PR area", "B-BS", "F1 on odd"} <= set(result.rows["student"])
    example = result.examples[0]
    assert " ".join(example["shown"]["tokens"]) in {" ".join(s.tokens) for s in [*TEST, *sentences(20, seed=2)]}
    assert any("entity" in token for e in result.examples for token in e["answers"]["student"]["tokens"])
    page = report(result, tmp_path / "report.html").read_text()
    assert "Reliability of entities" in page
    assert "Reject entities whose uncertainty" in page
    with pytest.raises(ValueError, match="WordFeatures of a model"):
        TASK.prepared(TEST, {})
