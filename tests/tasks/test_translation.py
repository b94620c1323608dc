"""Whole translations and their tokens, measured beside references."""

import numpy as np
import pytest
import sacrebleu
import torch

from solera import Ensemble, evaluate, metrics, report, translate
from solera.evaluation import Evaluation
from solera.metrics import text
from solera.tasks import Seq2Seq, Translation
from tests.training.test_translate import ensemble, members, pairs, sentences, tokenizer  # noqa: F401

WRITTEN = ["the cat sat on the mat .", "A dog runs", "two men and a woman walk in the park", "x"]
WANTED = [
    "The cat is on the mat .",
    "a dog runs fast",
    "two men and one woman walk in a park",
    "a quite different line",
]


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_are_those_of_sacrebleu(lowercase):
    found = text.bleu_statistics(WRITTEN, WANTED, lowercase), text.chrf_statistics(WRITTEN, WANTED, lowercase)
    theirs = sacrebleu.corpus_bleu(WRITTEN, [WANTED], lowercase=lowercase).score
    assert 100 * text.bleu(found[0]) == pytest.approx(theirs, abs=1e-9)
    chrf = sacrebleu.metrics.CHRF(lowercase=lowercase)
    assert 100 * text.chrf(found[1]) == pytest.approx(chrf.corpus_score(WRITTEN, [WANTED]).score, abs=1e-9)
    part = sacrebleu.corpus_bleu(WRITTEN[1:3], [WANTED[1:3]], lowercase=lowercase).score
    assert 100 * text.bleu(found[0][1:3]) == pytest.approx(part, abs=1e-9)
    metric = sacrebleu.metrics.BLEU(lowercase=lowercase, effective_order=True)
    each = [metric.sentence_score(w, [r]).score for w, r in zip(WRITTEN, WANTED, strict=True)]
    np.testing.assert_allclose(100 * text.sentence_bleu(found[0]), each, atol=1e-9)
    assert f"case:{'lc' if lowercase else 'mixed'}" in text.signatures(lowercase)["BLEU"]
    with pytest.raises(ValueError, match="4 translations and 1 references"):
        text.bleu_statistics(WRITTEN, WANTED[:1])


@pytest.fixture(scope="module")
def evaluated(ensemble, members, pairs):  # noqa: F811
    test, strange = pairs.of(torch.arange(20)), [line[::-1] for line in sentences(15, 3)[0]]
    others = type(pairs)(strange, None, pairs.tokenizer)
    models = {"ensemble": ensemble, "single": members[0]}
    said = {
        name: {"test": translate(m, test, 2, longest=12), "strange": translate(m, others, 2, longest=12)}
        for name, m in models.items()
    }
    return said, test, evaluate(said, test, task=Translation(), unfamiliar={"strange": others}, resamples=8)


def test_sentences_are_measured_by_what_was_written(evaluated, tmp_path):
    said, test, found = evaluated
    for name in said:
        row, wrote = found.rows[name], said[name]["test"]
        assert 100 * row["BLEU"] == pytest.approx(
            sacrebleu.corpus_bleu(wrote.target_text, [test.target_text]).score, abs=1e-9
        )
        score = torch.cat([wrote.score_total, said[name]["strange"].score_total])
        expected = metrics.auroc(score, np.repeat([0, 1], [20, 15]))
        assert row["OOD strange score_total"] == pytest.approx(expected, abs=1e-12)
    assert "OOD strange rmi" in found.rows["ensemble"]
    assert found.rows["single"]["OOD strange knowledge"] is None
    error = 1 - text.sentence_bleu(text.bleu_statistics(said["ensemble"]["test"].target_text, test.target_text))
    expected = metrics.retention_ratio(said["ensemble"]["test"].total, error)
    assert found.rows["ensemble"]["PRR"] == pytest.approx(expected, abs=1e-12)
    again = Evaluation.load(found.save(tmp_path))
    assert again.rows["ensemble"]["BLEU"] == found.rows["ensemble"]["BLEU"]
    page = report(found, tmp_path / "report.html").read_text()
    assert "BLEU of what is kept" in page


def test_the_curve_starts_at_the_quality_of_all(evaluated):
    _, _, found = evaluated
    (figure,) = found.task.figures(found.columns["ensemble"]["test"], found.target)
    assert figure.y[0] == pytest.approx(found.rows["ensemble"]["BLEU"])
    order = np.argsort(found.columns["ensemble"]["test"]["total"], kind="stable")[:10]
    half = text.bleu(found.columns["ensemble"]["test"]["bleu"][order])
    place = np.abs(figure.x - 0.5).argmin()
    assert figure.y[place] == pytest.approx(half, abs=0.25)


def test_given_tokens_are_no_translation(ensemble, pairs):  # noqa: F811
    with pytest.raises(TypeError, match=r"pass .*translate"):
        evaluate({"ensemble": ensemble}, pairs.of(torch.arange(4)), task=Translation())


def test_other_sentences_are_refused(evaluated, pairs):  # noqa: F811
    said, _, _ = evaluated
    with pytest.raises(ValueError, match="not among the translated sources"):
        evaluate({"ensemble": {"test": said["ensemble"]["test"]}}, pairs.of(torch.arange(30)), task=Translation())


@torch.no_grad()
def test_tokens_are_measured_teacher_forced(members, pairs):  # noqa: F811
    test = pairs.of(torch.arange(12))
    alone = Ensemble(members[:1])
    row = evaluate({"single": alone}, test, task=Seq2Seq()).rows["single"]
    batch = test.take(range(12))
    counts = batch.weight > 0
    probs, target = members[0](batch.inputs).softmax(-1)[counts], batch.target[counts]
    assert row["NLL"] == pytest.approx(metrics.nll(probs, target), rel=1e-5)
    for ranks in (1, 5):
        assert row[f"ECE-{ranks}"] == pytest.approx(metrics.top_k_ece(probs, target, ranks), rel=1e-4, abs=1e-6)
    assert row["accuracy"] == pytest.approx(metrics.accuracy(probs, target))
