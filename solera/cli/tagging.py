"""`solera evaluate` of taggers: CoNLL files in, an evaluation and CoNLL files with probabilities out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.data import Sentence, Tags
    from solera.evaluation import Evaluation
    from solera.training import Student


def taggers_in(folders: Sequence[Path]) -> "dict[str, tuple[Path, Student]]":
    """The students by the name of their folder; only taggers of words read CoNLL files, all with the same features."""
    from solera.nn import WordFeatures
    from solera.training import Student

    found: dict[str, tuple[Path, Student]] = {}
    for folder in folders:
        student = Student.load(folder)
        if not any(isinstance(part, WordFeatures) for part in student.model.modules()):
            raise ValueError(f"{folder} is no tagger of words: leave --task tagging out, and pass --inputs")
        name = folder.name if folder.name and folder.name not in (*found, "single", "ensemble") else str(folder)
        found[name] = folder, student
    return found


def ensembles(
    members: Sequence[str], elsewhere: Mapping[str, str], sets: "Mapping[str, list[Sentence]]", tags: "Tags"
) -> dict[str, Any]:
    """The first member and all of them, by what they said of each set."""
    from solera.teachers import Taggers

    said: dict[str, dict[str, Any]] = {"single": {}, "ensemble": {}}
    for name, files in {"test": list(members), **{key: file.split(",") for key, file in elsewhere.items()}}.items():
        if name not in sets:
            raise ValueError(f"--members-unfamiliar names {name!r}, but there is no --unfamiliar {name}=FILE")
        tokens = [sentence.tokens for sentence in sets[name]]
        said["single"][name] = Taggers(files[:1], tokens, class_names=tags.names)
        said["ensemble"][name] = Taggers(files, tokens, class_names=tags.names)
    return said


def evaluate_tags(
    students: "Mapping[str, tuple[Path, Student]]",
    members: Sequence[str],
    labels: str,
    unfamiliar: Mapping[str, str],
    elsewhere: Mapping[str, str],
    out: Path,
    resamples: int,
) -> "Evaluation":
    """Compares taggers with their ensemble on the sentences of `labels`, and writes what each of them says."""
    from solera.core.disk import only_writer
    from solera.data import Tags, load_conll
    from solera.evaluation import evaluate
    from solera.nn import WordFeatures
    from solera.tasks import Tagging
    from solera.training.tag_files import batches_of, require_files, write_said

    require_files([*members, labels, *unfamiliar.values()])
    networks = {name: student for name, (_, student) in students.items()}
    first = next(iter(networks.values()))
    tags = Tags.read(first.class_names or [])
    words = next(part for part in first.model.modules() if isinstance(part, WordFeatures))
    sets = {name: load_conll(file) for name, file in {"test": labels, **unfamiliar}.items()}
    models = {**ensembles(members, elsewhere, sets, tags), **networks}
    batches = {name: batches_of(sentences, words, tags) for name, sentences in sets.items()}
    test = batches.pop("test")
    with only_writer(out):
        result = evaluate(models, test, task=Tagging(tags), unfamiliar=batches, resamples=resamples)
        result.save(out)
        for name, student in networks.items():
            for each, sentences in sets.items():
                write_said(student, sentences, tags, out / f"{Path(name).name}.{each}.conll")
    return result
