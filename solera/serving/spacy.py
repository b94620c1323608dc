"""`solera_ner`: a tagger as a component of spaCy, with `span._.confidence` and `span._.knowledge`.

    nlp = spacy.blank("en")
    nlp.add_pipe("solera_ner", config={"student": "folder"})
    for span in nlp("Angela Merkel visited Paris.").ents:
        print(span.text, span.label_, span._.confidence, span._.knowledge)

`nlp.to_disk` writes the student too, and `spacy.load` finds the component by itself, where Solera is installed.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from solera.training.student import Student

try:
    import srsly
    from spacy.language import Language
    from spacy.tokens import Doc, Span
except ImportError as error:
    raise ImportError(f"the component solera_ner needs spaCy ({error}): pip install 'solera[spacy]'") from error

NAMES = ("confidence", "total", "data", "knowledge")


class SoleraNer:
    """Sets `doc.ents`; every entity's `_` has confidence, total and, where the student has them, data and knowledge."""

    def __init__(self, name: str, student: Student | None) -> None:
        self.name, self.student = name, student
        for extension in NAMES:
            if not Span.has_extension(extension):
                Span.set_extension(extension, default=None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The types of entities; none without a student."""
        tags = [] if self.student is None else self.student.class_names or []
        kinds = (tag.partition("-")[2] for tag in tags)
        return tuple(dict.fromkeys(kind for kind in kinds if kind))

    @property
    def _known(self) -> Student:
        if self.student is None:
            raise ValueError(
                f'the component {self.name!r} has no student: nlp.add_pipe("solera_ner", config={{"student": folder}})'
            )
        return self.student

    def __call__(self, doc: Doc) -> Doc:
        tokens = [token for token in doc if not token.is_space]
        if not tokens:
            return doc
        said = self._known.read([token.text for token in tokens])
        first = {word.start: token.i for word, token in zip(said.words, tokens, strict=True)}
        last = {word.end: token.i + 1 for word, token in zip(said.words, tokens, strict=True)}
        spans = [Span(doc, first[e.start], last[e.end], label=e.type) for e in said.entities]
        doc.set_ents(spans)  # pyright: ignore[reportArgumentType]  (its type is a list, it takes any)
        for span, entity in zip(spans, said.entities, strict=True):
            for extension in NAMES:
                setattr(span._, extension, getattr(entity, extension))
        return doc

    def to_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> None:
        """The student's own folder, inside the pipeline's."""
        self._known.save(path)

    def from_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> "SoleraNer":
        """The student that `to_disk` wrote."""
        self.student = Student.load(path)
        return self

    def to_bytes(self, exclude: Iterable[str] = ()) -> bytes:
        """The same files, for another process."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(Path(folder) / "student")
            return srsly.msgpack_dumps({file.name: file.read_bytes() for file in (Path(folder) / "student").iterdir()})

    def from_bytes(self, content: bytes, exclude: Iterable[str] = ()) -> "SoleraNer":
        """What `to_bytes` gave."""
        with tempfile.TemporaryDirectory() as folder:
            for name, part in srsly.msgpack_loads(content).items():  # type: ignore[union-attr]
                (Path(folder) / name).write_bytes(part)
            return self.from_disk(folder)


def _made(name: str, student: str) -> SoleraNer:
    """With the student of this folder; a saved pipeline brings its own, so the folder may be gone."""
    there = bool(student) and Path(student, "config.json").is_file()
    return SoleraNer(name, Student.load(student) if there else None)


# a lambda, because spaCy reads the names of its arguments and follows no decorators, not even those of a type checker
make_ner: Any = Language.factory(
    "solera_ner",
    default_config={"student": ""},
    assigns=["doc.ents"],
    func=lambda nlp, name, student: _made(name, student),
)
