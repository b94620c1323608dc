"""solera_ner in a real spaCy pipeline: found by its entry point, saved and loaded again."""

import shutil

import pytest

from tests.words import tagger_student

spacy = pytest.importorskip("spacy")

TEXT = "Angela Merkel visited Paris .\n\n Paris ."


@pytest.fixture(scope="module")
def student():
    return tagger_student()


@pytest.fixture(scope="module")
def nlp(student, tmp_path_factory):
    made = spacy.blank("en")
    made.add_pipe("solera_ner", config={"student": str(student.save(tmp_path_factory.mktemp("student")))})
    return made


def found(doc):
    return [(span.text, span.label_, span.start_char, span._.confidence, span._.knowledge) for span in doc.ents]


def test_entities_are_the_students(nlp, student):
    doc = nlp(TEXT)
    expected = student.entities([token.text for token in doc if not token.is_space])
    assert [span.label_ for span in doc.ents] == [entity.type for entity in expected]
    for span, entity in zip(doc.ents, expected, strict=True):
        assert (span.text, span._.confidence, span._.knowledge) == (entity.text, entity.confidence, entity.knowledge)
        assert span._.total == pytest.approx(span._.data + span._.knowledge, abs=1e-6)
    assert ("Angela Merkel", "PER") in [(span.text, span.label_) for span in doc.ents]
    assert nlp.get_pipe("solera_ner").labels == ("PER", "LOC")
    assert nlp("").ents == nlp("\n \n").ents == ()


def test_a_saved_pipeline_is_loaded_again(nlp, tmp_path):
    nlp.to_disk(tmp_path / "nlp")
    shutil.move(tmp_path / "nlp", tmp_path / "elsewhere")
    again = spacy.load(tmp_path / "elsewhere")
    assert found(again(TEXT)) == found(nlp(TEXT))
    assert again.get_pipe("solera_ner") is not nlp.get_pipe("solera_ner")


def test_bytes_and_pipes_say_the_same(nlp):
    again = spacy.blank("en")
    again.add_pipe("solera_ner")
    again.from_bytes(nlp.to_bytes())
    assert [found(doc) for doc in again.pipe([TEXT, "Paris"])] == [found(nlp(TEXT)), found(nlp("Paris"))]


def test_without_a_student_it_says_what_to_pass():
    nlp = spacy.blank("en")
    nlp.add_pipe("solera_ner")
    with pytest.raises(ValueError, match=r"has no student: nlp\.add_pipe"):
        nlp("Paris")
