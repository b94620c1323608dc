"""CoNLL files of taggers' predictions: read for a distillation or an evaluation, and written by a student."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from solera.data import Sentence, Sequences, Tags, load_conll
from solera.data.tag_probabilities import load_tag_probabilities, save_tag_probabilities
from solera.nn import WordFeatures
from solera.tasks.entities import decoded
from solera.training.student import Student

TOKENS = 768  # in a batch
CONLL = (".conll", ".conll.gz", ".bio", ".iob", ".iob2")


def are_tag_files(paths: Sequence[str | Path]) -> bool:
    """Whether these are CoNLL files, by their names."""
    return bool(paths) and all(str(path).endswith(CONLL) for path in paths)


def require_files(paths: Sequence[str]) -> None:
    """Refuses a name with nothing behind it."""
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}")


def read_tag_files(members: Sequence[str], labels: str = "") -> tuple[list[Sentence], Tags]:
    """The sentences that the members speak of, with their true tags where a file has them; and all tags there are."""
    require_files([*members, *([labels] if labels else [])])
    first = load_tag_probabilities(members[0])
    sentences = [Sentence([line.columns[0] for line in block]) for block in first.lines]
    if labels:
        sentences = load_conll(labels)
        first.require_tokens([sentence.tokens for sentence in sentences])
    said = {tag for member in members for tag in load_tag_probabilities(member).names}
    return sentences, Tags.of([*sentences, Sentence([""] * len(said), sorted(said))])


def batches_of(sentences: Sequence[Sentence], words: WordFeatures, tags: Tags) -> Sequences:
    """Them as a tagger takes them, with their tags where they are known."""
    target = tags(sentences) if sentences[0].tags is not None else None
    texts = [sentence.tokens for sentence in sentences]
    longest = max(len(text) for text in texts)
    return Sequences(words(sentences), target, tokens=max(TOKENS, longest), names=tags.names, texts=texts)


def write_said(student: Student, sentences: Sequence[Sentence], tags: Tags, path: Path) -> Path:
    """What a student says of every token, as a CoNLL file with probabilities; the last column makes whole entities."""
    words = next(part for part in student.model.modules() if isinstance(part, WordFeatures))
    said: dict[int, np.ndarray] = {}
    spelled: dict[int, list[str]] = {}
    for batch in batches_of([Sentence(sentence.tokens) for sentence in sentences], words, tags):
        assert batch.weight is not None
        mean, counted = student.predict(batch.inputs).mean.cpu(), batch.weight > 0
        numbers = decoded(mean, counted, tags)
        for row, index in enumerate(batch.index.tolist()):
            size = len(sentences[index].tokens)
            said[index] = mean[row, :size].double().numpy()
            spelled[index] = [tags.names[int(number)] for number in numbers[row, :size]]
    order = range(len(sentences))
    tokens = [sentence.tokens for sentence in sentences]
    return save_tag_probabilities(path, tokens, tags.names, [said[i] for i in order], [spelled[i] for i in order])
