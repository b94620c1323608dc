"""`student.entities`: places, confidence by the definition of each kind of student, and texts of any length."""

import pytest
import torch

from solera import EnD, Hydra, ProxyDirichlet, Student
from solera.data import Span, Tags
from solera.data.tag_scheme import exact_span
from solera.nn import MLP, Tagger, WordFeatures
from solera.tasks.entities import decoded

TAGS = Tags(("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
TEXT = "Angela Merkel  visited Zu\u0308rich, then 👩‍👩‍👧 left."


@pytest.fixture(scope="module")
def words():
    return WordFeatures()


def student(words, method=None, crf=False, seed=3):
    torch.manual_seed(seed)
    network = Tagger(words, TAGS, crf=crf, width=8, layers=2, embedding=6)
    with torch.no_grad():
        network.output.weight.mul_(4)  # so that it is sure of something
        if crf:
            network.crf.transitions.normal_()
    method = method or ProxyDirichlet()
    return Student(method.student(network, 3), method, class_names=list(TAGS.names)).eval()


def spans(found, reading):
    starts = [word.start for word in reading.words]
    ends = [word.end for word in reading.words]
    return [Span(0, starts.index(e.start), ends.index(e.end) + 1, e.type) for e in found]


def test_entities_stand_where_they_say_and_tokens_are_joined_by_blanks(words):
    made = student(words)
    found = made.entities(TEXT)
    assert found
    assert all(TEXT[entity.start : entity.end] == entity.text for entity in found)
    tokens = [word.text for word in made.read(TEXT).words]
    again = made.entities(tokens)
    assert [e.type for e in again] == [e.type for e in found]


@pytest.mark.parametrize("method", [ProxyDirichlet(), EnD(), Hydra()])
def test_confidence_is_the_product_of_marginals_and_uncertainties_the_means_of_tokens(words, method):
    made = student(words, method)
    reading = made.read(TEXT)
    prediction = made.predict(words([[word.text for word in reading.words]])[0][None])
    for entity, span in zip(reading.entities, spans(reading.entities, reading), strict=True):
        allowed = exact_span(TAGS.names, torch.ones(len(reading.words), dtype=torch.bool), span)
        wanted = (prediction.mean[0].double() * allowed).sum(-1).prod()
        assert entity.confidence == pytest.approx(float(wanted), rel=1e-5)
        inside = slice(span.start, span.stop)
        for name in ("total", "data", "knowledge"):
            known = getattr(prediction, name, None)
            value = getattr(entity, name)
            assert value is None if known is None else value == pytest.approx(float(known[0, inside].mean()), rel=1e-4)
    assert reading.total == pytest.approx(float(prediction.total.mean()), rel=1e-5)
    assert len(reading.tags) == len(reading.words)


def test_a_crf_is_sure_by_its_own_constrained_sum(words):
    made = student(words, EnD(), crf=True)
    reading = made.read(TEXT)
    inputs = words([[word.text for word in reading.words]])[0][None]
    where = spans(reading.entities, reading)
    assert where
    exact = made.model.crf.span_log_prob(made.model.emissions(inputs), where).exp()
    assert [e.confidence for e in reading.entities] == pytest.approx(exact.tolist(), rel=1e-5)
    mean, counted = made.predict(inputs).mean[0], torch.ones(len(reading.words), dtype=torch.bool)
    product = [float((mean * exact_span(TAGS.names, counted, span)).sum(-1).prod()) for span in where]
    assert [e.confidence for e in reading.entities] != pytest.approx(product, rel=1e-3)


def test_many_entities_are_asked_of_a_crf_together(words, monkeypatch):
    made = student(words, EnD(), crf=True)
    text = " ".join([TEXT, "and", TEXT, *["x"] * 80, TEXT])
    together = made.entities(text)
    assert len(together) > 3
    monkeypatch.setattr("solera.training.entities.TOGETHER", 1)
    assert [e.confidence for e in made.entities(text)] == pytest.approx([e.confidence for e in together], rel=1e-5)


def test_a_long_document_is_read_in_windows_and_nothing_is_lost_or_shifted(words):
    made = student(words)
    tokens = [f"{'ABCdefg'[n % 7]}{n % 13}" for n in range(12_000)]
    reading = made.read(tokens)
    assert len(reading.tags) == 12_000
    whole = made.predict(words([tokens[:6000]])[0][None])
    first = decoded(whole.mean[:, :5000], torch.ones(1, 5000, dtype=torch.bool), TAGS)[0]
    assert reading.tags[:4990] == [TAGS.names[k] for k in first[:4990]]
    assert sum(tag.startswith("B-") for tag in reading.tags) == len(reading.entities)


def test_nothing_in_nothing_out(words):
    assert student(words).entities("") == student(words).entities([]) == student(words).entities("  \n") == []


def test_a_student_without_words_says_so():
    made = Student(MLP(3, 2), EnD(), class_names=["a", "b"])
    with pytest.raises(ValueError, match="takes no words"):
        made.entities("Angela Merkel")


def test_it_survives_being_saved(words, tmp_path):
    for number, method in enumerate((ProxyDirichlet(), Hydra())):
        made = student(words, method)
        again = Student.load(made.save(tmp_path / str(number)))
        assert again.entities(TEXT) == made.entities(TEXT)
