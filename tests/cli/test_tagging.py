"""Taggers from the shell: the examples of --help as they are printed, CoNLL in, CoNLL with probabilities out."""

import json
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

from solera.cli import distill, evaluate
from solera.cli.main import app
from solera.data import Sentence, load_conll, save_conll
from solera.data.tag_probabilities import load_tag_probabilities, save_tag_probabilities
from solera.metrics import lenient_spans
from solera.training import Student
from tests.words import SENTENCES, TAGS

GOLD = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-LOC", "O"], ["O", "B-PER", "O"]]


def files(folder, count=36):
    """True tags, and two members that mostly know them, each in its own order of tags."""
    sentences = [Sentence(SENTENCES[n % 3], GOLD[n % 3]) for n in range(count)]
    save_conll(folder / "gold.conll", sentences)
    random = np.random.default_rng(0)
    for name, order in (("one", TAGS), ("two", TAGS[::-1])):
        rows = [
            0.8 * np.array([[tag == known for known in order] for tag in sentence.tags])
            + 0.2 * random.dirichlet(np.ones(len(order)), len(sentence.tokens))
            for sentence in sentences
        ]
        save_tag_probabilities(folder / f"{name}.conll", [s.tokens for s in sentences], order, rows)
    return sentences


def run(command):
    found = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("shell")
    files(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        said = run(distill.EXAMPLE.split("Of taggers: ")[1] + " --epochs 8 --label-weight 0.2")
    assert "| student |" in said
    assert "solera serve tagger" in said
    return made


def test_distill_leaves_a_tagger_and_what_it_says(folder):
    student = Student.load(folder / "tagger")
    assert set(student.class_names) == set(TAGS)
    held = load_conll(folder / "tagger" / "held-out.conll")  # valid tags
    assert [s.tokens for s in held] == [SENTENCES[n % 3] for n in range(29, 36)]
    said = load_tag_probabilities(folder / "tagger" / "held-out.conll")
    expected = student.read(held[0].tokens)
    assert held[0].tags == expected.tags
    inputs = student.model.words([held[0].tokens])[0][None]
    np.testing.assert_allclose(said.probabilities[0], student.predict(inputs).mean[0], atol=1e-5)
    assert len(lenient_spans([expected.tags])) == len(expected.entities)


def test_evaluate_judges_it_and_writes_conll(folder, monkeypatch):
    monkeypatch.chdir(folder)
    save_conll(folder / "other.conll", [Sentence(["#wow", "😀", "zzz"], ["O", "O", "O"])])
    said = run(evaluate.EXAMPLE.split("Of taggers: ")[1] + " --resamples 0 --unfamiliar other=other.conll")
    assert "Nobody knows what the ensemble says about other" in said
    columns = json.loads((folder / "evaluation" / "metrics.json").read_text())
    assert "F1" in str(columns)
    found = load_tag_probabilities(folder / "evaluation" / "tagger.test.conll")
    assert len(found.lines) == 36
    assert len(load_conll(folder / "evaluation" / "tagger.other.conll")[0].tokens) == 3
    card = (folder / "tagger" / "README.md").read_text()
    assert "Not recorded" not in card.split("## Metrics")[1].split("##")[0]


def test_help_ends_with_the_examples():
    for verb in (distill, evaluate):
        name = verb.__name__.split(".")[-1]
        shown = " ".join(run(f"solera {name} --help").split())
        assert shown.endswith(" ".join(verb.EXAMPLE.split()))


def test_mistakes_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files(tmp_path, 4)
    (tmp_path / "three.conll").write_text("Angela O\nMerkel O\nvisits O\nParis O\n. O\n")
    for command, message in {
        "--members three.conll --labels gold.conll": "three.conll, line 3: the token is 'visits', sentence 0 of the",
        "--members one.conll --members three.conll": "three.conll, line 3: the token is 'visits'",
        "--members one.conll --inputs gold.conll": "leave --inputs and --variances out",
        "--members one.conll --members two.conll": "4 sentences cannot be cut into training, validation and a held-out",
        "--members none.conll": "there is no file none.conll",
        "--task classification --members one.npy": "--inputs is needed",
    }.items():
        with pytest.raises((ValueError, OSError), match=message):
            run(f"solera distill {command} --out tagger")
        assert not (tmp_path / "tagger").exists()
