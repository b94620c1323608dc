"""Translators taken away: Hugging Face folders and graphs of steps."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from solera import EnD, Hydra, Pairs, ProxyDirichlet, Student, translate
from solera.cli.export import export
from solera.data import train_bpe
from solera.nn import MLP, Translator, grow
from solera.serving import Steps, export_huggingface, export_steps

TEXT = ["ein Hund läuft", "zwei Männer singen laut", "ein Mann"]


@pytest.fixture(scope="module")
def student():
    torch.manual_seed(0)
    network = Translator(270, width=16, encoder=1, decoder=1, heads=2).eval()
    for weight in network.parameters():
        weight.data *= 1.7  # so that hypotheses differ
    method = ProxyDirichlet(mean_temperature=1.3, precision_slope=0.8)
    return Student(network, method, tokenizer=train_bpe(TEXT, 270))


@torch.no_grad()
def test_generate_decodes_by_the_mean(student, tmp_path):
    export_huggingface(student, tmp_path / "folder")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "folder").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    pairs = Pairs(TEXT, TEXT, student.tokenizer)
    inputs = pairs.take(range(3)).inputs
    mean = student.predict(inputs).mean
    torch.testing.assert_close(model(**inputs).logits.softmax(-1), mean, rtol=1e-3, atol=1e-6)
    given = tokenizer(TEXT, return_tensors="pt", padding=True, return_token_type_ids=False)
    found = model.generate(**given, num_beams=3, max_new_tokens=10)[:, 1:]
    for row, written in zip(found.tolist(), translate(student, pairs, 3, longest=10).written, strict=True):
        assert row[: len(written)] == written


@torch.no_grad()
def test_graphs_of_steps_write_the_same_with_the_same_uncertainty(student, tmp_path):
    student.save(tmp_path / "student")
    export(tmp_path / "student", tmp_path / "graphs")
    steps = Steps(tmp_path / "graphs")
    inputs = Pairs(TEXT, TEXT, student.tokenizer).take([0, 2]).inputs
    state, own = steps.begin(inputs), student.model.begin(inputs)
    for tokens in (torch.tensor([1, 1]), torch.tensor([30, 40]), torch.tensor([7, 9])):
        said, state = steps.step(state, tokens)
        output, own = student.model.step(own, tokens)
        wanted = student.method.predict(output)
        for name in ("total", "data", "knowledge"):
            np.testing.assert_allclose(said[name], getattr(wanted, name), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.exp(said["log_mean"]), wanted.mean, rtol=1e-3, atol=1e-6)
    found = steps.decode(TEXT, beams=2)
    best = [tokens[mask].tolist() for tokens, mask in zip(found.tokens[:, 0], found.mask[:, 0], strict=True)]
    assert best == translate(student, Pairs(TEXT, None, student.tokenizer), 2).written


def test_what_cannot_be_taken_away_so_says_why(student, tmp_path):
    student.save(tmp_path / "student")
    with pytest.raises(ValueError, match=r"name a folder, not student\.onnx"):
        export(tmp_path / "student", Path("student.onnx"))
    other = Student(MLP(2, 3), EnD())
    with pytest.raises(ValueError, match="made of a Translator"):
        export_steps(other, tmp_path)
    plain = Student(student.model, EnD())
    with pytest.raises(ValueError, match="no tokenizer"):
        export_huggingface(plain, tmp_path / "plain")
    offset = Student(student.model, ProxyDirichlet(mean_offset=0.1), tokenizer=student.tokenizer)
    with pytest.raises(ValueError, match="not a softmax"):
        export_huggingface(offset, tmp_path / "offset")
    heads = Student(grow(student.model, 2), Hydra(), tokenizer=student.tokenizer)
    with pytest.raises(ValueError, match="is a Heads"):
        export_huggingface(heads, tmp_path / "heads")
