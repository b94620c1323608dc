"""A transformer student as a folder: the stock pipeline must get the student's probabilities and its knowledge."""

import json
from dataclasses import replace

import pytest
import torch

from solera import EnD, EnD2, Hydra, PriorNetwork, ProxyDirichlet, Student
from solera.nn import MLP
from solera.serving import export_huggingface
from solera.teachers.adapters import TokenClassifier, word_pieces
from tests.words import SENTENCES, TAGS, bert, tokenizer

FITTED = {"mean_temperature": 1.3, "mean_offset": 0.01, "precision_slope": 0.8, "precision_shift": 0.4}
METHODS = {
    "plain": ProxyDirichlet(),
    "classes": EnD(),
    "fitted": ProxyDirichlet(**FITTED),
    "end2": replace(EnD2(), **FITTED),
    "published": ProxyDirichlet(as_published=True),
    "prior": PriorNetwork(),
}
STOCK = ("plain", "classes")


def loaded(task, folder, monkeypatch, tmp_path, **settings):
    import transformers

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return transformers.pipeline(task, model=str(folder), device="cpu", **settings)


@pytest.mark.parametrize("name", METHODS)
def test_the_stock_pipeline_says_what_the_student_says(name, tmp_path, monkeypatch):
    student = Student(TokenClassifier(bert()), METHODS[name], class_names=TAGS)
    folder = export_huggingface(student, tmp_path / "out", tokenizer())
    trust = {} if name in STOCK else {"trust_remote_code": True}
    ask = loaded("token-classification", folder, monkeypatch, tmp_path, ignore_labels=[], **trust)
    said = ask(" ".join(SENTENCES[0]))
    found = word_pieces(SENTENCES[:1], tokenizer())
    pieces = student.predict({key: torch.tensor(found[key]) for key in ("input_ids", "attention_mask")})
    mean = pieces.mean[0, 1:-1]  # not the special tokens
    assert [answer["entity"] for answer in said] == [TAGS[n] for n in mean.argmax(-1)]
    assert [float(answer["score"]) for answer in said] == pytest.approx(mean.max(-1).values.tolist(), abs=1e-6)
    with torch.no_grad():
        logits = ask.model(**{k: torch.tensor(found[k]) for k in ("input_ids", "attention_mask")}).logits.double()
    torch.testing.assert_close(logits.softmax(-1).float(), pieces.mean, atol=1e-6, rtol=1e-5)
    if name != "classes":
        torch.testing.assert_close(logits.logsumexp(-1), pieces.log_precision, atol=1e-5, rtol=1e-5)
        a, p = logits.exp(), logits.softmax(-1)
        data = (p * (torch.digamma(a.sum(-1, keepdim=True) + 1) - torch.digamma(a + 1))).sum(-1)
        knowledge = -(p * p.log()).sum(-1) - data
        torch.testing.assert_close(knowledge.float(), pieces.knowledge.float(), atol=1e-5, rtol=1e-4)


def test_sequence_classifiers_and_writing_again(tmp_path, monkeypatch):
    network = bert("BertForSequenceClassification", names=["bad", "good", "none"])
    student = Student(network, ProxyDirichlet(precision_slope=0.5), class_names=["bad", "good", "none"])
    folder = export_huggingface(student, tmp_path / "out", tokenizer())
    folder = export_huggingface(student, folder, tokenizer())
    ask = loaded("text-classification", folder, monkeypatch, tmp_path, top_k=None, trust_remote_code=True)
    said = {answer["label"]: answer["score"] for answer in ask(["Paris ."])[0]}
    ids = torch.tensor([tokenizer()("Paris .")["input_ids"]])
    expected = student.predict({"input_ids": ids, "attention_mask": torch.ones_like(ids)}).mean[0]
    assert [said[name] for name in ("bad", "good", "none")] == pytest.approx(expected.tolist(), abs=1e-6)


def test_nobody_loads_it_and_passes_over_the_map(tmp_path, monkeypatch):
    student = Student(TokenClassifier(bert()), ProxyDirichlet(**FITTED), class_names=TAGS)
    folder = export_huggingface(student, tmp_path / "out", tokenizer())
    assert json.loads((folder / "config.json").read_text())["model_type"] == "solera_bert"
    with pytest.raises(ValueError, match="trust_remote_code"):
        loaded("token-classification", folder, monkeypatch, tmp_path, trust_remote_code=False)


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="this student's network is a MLP, Hugging Face's pipelines load"):
        export_huggingface(Student(MLP(4, 3), EnD()), tmp_path / "out")
    with pytest.raises(ValueError, match="a Hydra student says several distributions at once"):
        export_huggingface(Student(bert(), Hydra()), tmp_path / "out")
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds files that are not from export_huggingface"):
        export_huggingface(Student(bert(), EnD()), tmp_path)
    assert not (tmp_path / "out").exists()
