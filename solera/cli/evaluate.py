"""`solera evaluate`: students beside the ensemble they came from, on labelled test data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.options import Folds, Saw
from solera.cli.tagging import evaluate_tags, taggers_in

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from solera.evaluation import Evaluation
    from solera.tasks import Task
    from solera.training import Student

EXAMPLE = (
    "Example: solera evaluate --student student --members preds.npy --inputs x.npy --labels y.npy "
    "--unfamiliar other=z.npy --members-unfamiliar other=preds-z.npy --out evaluation\n\n"
    "Of taggers: solera evaluate --task tagging --student tagger --members one.conll --members two.conll --labels "
    "gold.conll --out evaluation"
)


def named(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`name=file` pairs; a name may come once."""
    found: dict[str, str] = {}
    for text in pairs:
        name, equals, file = text.partition("=")
        if not name or not equals or not file:
            raise ValueError(f"{option} {text} is not a name and a file: write {option} name={text or 'x.npy'}")
        if name in found:
            raise ValueError(f"{option} names {name!r} twice: give each set its own name")
        found[name] = file
    return found


def students_in(
    folders: Sequence[Path], taken: Sequence[str], shape: Sequence[int]
) -> "dict[str, tuple[Path, Student]]":
    """The students by the name of their folder, or by its whole path where that name is taken."""
    from solera.training import Student

    found: dict[str, tuple[Path, Student]] = {}
    for folder in folders:
        name = folder.name if folder.name and folder.name not in (*taken, *found) else str(folder)
        if name in found:
            raise ValueError(f"--student {folder} is given twice: name each student once")
        loaded = Student.load(folder)
        wanted = loaded.preprocessing.inputs[0].shape if loaded.preprocessing.inputs else None
        if wanted and all(isinstance(size, int) for size in wanted) and list(wanted) != list(shape):
            raise ValueError(f"{folder} takes inputs of shape {tuple(wanted)}, the test inputs have {tuple(shape)}")
        found[name] = folder, loaded
    return found


def inputs_by_set(inputs: Path, unfamiliar: Sequence[str]) -> "dict[str, Tensor]":
    """The test inputs and the unfamiliar ones, all of one shape."""
    from solera.core.checks import require_finite
    from solera.teachers.from_files import load_array
    from solera.training.distiller import floats

    sets: dict[str, Tensor] = {}
    for name, file in {"test": str(inputs), **named(unfamiliar, "--unfamiliar")}.items():
        sets[name] = floats(load_array(file))
        require_finite(f"inputs in {file}", sets[name])
        if sets[name].shape[1:] != sets["test"].shape[1:]:
            raise ValueError(
                f"{file} holds inputs of shape {tuple(sets[name].shape[1:])}, {inputs} of "
                f"{tuple(sets['test'].shape[1:])}: all models must be able to read both"
            )
    return sets


def ensemble_of(
    members: Sequence[Path],
    elsewhere: dict[str, str],
    variances: Path | None,
    sets: "dict[str, Tensor]",
    labels: "np.ndarray",
    saw: "Tensor | None",
    task: str,
) -> "tuple[dict[str, Any], Tensor, Any]":
    """The ensemble and its first member, live or as what they said; the labels as they are for it; and the noise."""
    import torch

    from solera.data import Batch
    from solera.teachers import Ensemble
    from solera.teachers.adapters import Forecasts, Predictions
    from solera.teachers.from_files import as_labels, first_member, teacher_from

    for name in elsewhere.keys() - sets.keys():
        raise ValueError(f"--members-unfamiliar names {name!r}, but there is no --unfamiliar {name}=FILE")
    if all(path.suffix == ".onnx" for path in members):
        if elsewhere:
            raise ValueError(
                "--members are models that answer for unfamiliar inputs too: leave --members-unfamiliar out"
            )
        if saw is not None:
            raise ValueError(
                "--folds and --saw are for predictions of rows; these --members are models: leave them out"
            )
        family = "gaussian" if task == "regression" or (not task and labels.dtype.kind == "f") else "categorical"
        whole = Ensemble(members, family=family)
        return {"single": Ensemble(members[:1], family=family), "ensemble": whole}, as_labels(labels, whole, task), None
    x = sets["test"]
    if variances is not None and elsewhere:
        raise ValueError(
            "--members-unfamiliar takes forecasts without variances: leave it out, or leave --variances out"
        )
    teacher, target = teacher_from([str(path) for path in members], str(variances or ""), x, labels, saw, task)
    noise = getattr(teacher, "noise", None)
    said = {"test": teacher(Batch(x, torch.arange(len(x))))}
    for name, file in elsewhere.items():
        other, count = sets[name], len(sets[name])
        theirs = Predictions(file, count) if isinstance(teacher, Predictions) else Forecasts(file, count, noise=noise)
        said[name] = theirs(Batch(other, torch.arange(count)))
    assert target is not None
    return {"single": {name: first_member(s) for name, s in said.items()}, "ensemble": said}, target, noise


def baseline_of(path: Path, noise: Any, x: "Tensor", task: "Task") -> Any:
    """A model of the user's own: an ONNX file, or the probabilities that it gave the test inputs."""
    import torch

    from solera.data import Batch
    from solera.teachers import Ensemble
    from solera.teachers.adapters import Predictions

    if path.suffix == ".onnx":
        return Ensemble([path], family=task.family, noise=noise)
    if task.family == "gaussian":
        raise ValueError(f"--baseline {path} is no model: for continuous targets a baseline must be an ONNX file")
    return {"test": Predictions([path], examples=len(x))(Batch(x, torch.arange(len(x))))}


def describe(result: "Evaluation", out: Path, absent: Sequence[str]) -> None:
    """The table and the verdicts, in a few lines."""
    from rich.console import Console
    from rich.markdown import Markdown

    from solera.evaluation.report_data import verdicts

    console = Console()
    console.print(Markdown(result.markdown())) if console.is_terminal else print(result.markdown())
    for found in verdicts(result):
        print(f"\n{found.student}: {found.sentences[0]}")
        print("\n".join(f"  {sentence}" for sentence in found.sentences[1:]))
    if not result.draws:
        print("\nNo verdict without intervals: --resamples 200.")
    if absent:
        print(
            f"\nNobody knows what the ensemble says about {', '.join(absent)}: pass its predictions as "
            f"--members-unfamiliar {absent[0]}=FILE, or the verdict does not look at it."
        )
    print(f"\nWritten to {out}: columns.csv (every answer), metrics.json, resamples.csv.")


def into_cards(result: "Evaluation", folders: dict[str, Path]) -> None:
    """Metrics and thresholds into the students' model cards."""
    from solera.evaluation.report import card_numbers
    from solera.training.card import record

    for name, folder in folders.items():
        try:
            record(folder, *card_numbers(result, name))
            print(f"{folder / 'README.md'} has its metrics and thresholds now.")
        except OSError as error:
            print(f"the model card of {folder} stays as it is: {error}")


def evaluate(
    student: Annotated[list[Path], typer.Option(help="The folder of a student; several: one --student each.")],
    members: Annotated[
        list[Path],
        typer.Option(help="The ensemble: ONNX models, or what they said about the inputs, as for solera distill."),
    ],
    labels: Annotated[
        Path, typer.Option(help="Their true classes (whole numbers) or targets: .npy (N,); tags and tokens: CoNLL.")
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(help="Test inputs that no model has seen: .npy, first axis the examples; taggers: left out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("evaluation"),
    unfamiliar: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="Inputs of another kind, .npy (taggers: CoNLL).")
    ] = None,
    members_unfamiliar: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="What the members said about that set, if they are no models; taggers': files joined by commas.",
        ),
    ] = None,
    labels_unfamiliar: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="True classes or targets of that set: its accuracy is measured, too."),
    ] = None,
    variances: Annotated[Path | None, typer.Option(help="Variances beside forecasts.")] = None,
    folds: Folds = None,
    saw: Saw = None,
    task: Annotated[
        str, typer.Option(help="classification, regression or tagging; without it, told by the labels.")
    ] = "",
    baseline: Annotated[
        Path | None, typer.Option(help="A model of your own to beat: ONNX, or its probabilities (N, K).")
    ] = None,
    resamples: Annotated[int, typer.Option(help="For the intervals; 0: none, and no verdict.")] = 200,
) -> None:
    """Compare students with their ensemble: accuracy, calibration, uncertainty, speed, and a verdict.

    The metrics and thresholds also go into the students' model cards.
    """
    from solera.core.disk import only_writer
    from solera.data import Batches
    from solera.evaluation import evaluate as compare
    from solera.tasks import task_named, task_of
    from solera.teachers.from_files import as_labels, load_array, load_saw
    from solera.training.tag_files import are_tag_files

    if task == "tagging" or (not task and are_tag_files([labels])):
        others = named(unfamiliar or [], "--unfamiliar"), named(members_unfamiliar or [], "--members-unfamiliar")
        taggers = taggers_in(student)
        result = evaluate_tags(taggers, [str(path) for path in members], str(labels), *others, out, resamples)
        describe(result, out, [name for name in others[0] if name not in others[1]])
        into_cards(result, {name: folder for name, (folder, _) in taggers.items()})
        print(f"What each tagger says of every token is in {out}, CoNLL. Next: solera report {out}")
        return
    if inputs is None:
        raise ValueError("--inputs is needed: the .npy file of the test inputs")
    sets = inputs_by_set(inputs, unfamiliar or [])
    y = load_array(str(labels))
    if len(y) != len(sets["test"]):
        raise ValueError(f"{inputs} holds {len(sets['test'])} inputs, {labels} {len(y)} labels: they must be the same")
    elsewhere = named(members_unfamiliar or [], "--members-unfamiliar")
    seen = load_saw(str(folds or ""), str(saw or ""))
    models, target, noise = ensemble_of(members, elsewhere, variances, sets, y, seen, task)
    kind = task_named(task) if task else task_of(target)
    absent = [name for name in sets if name not in models["ensemble"]] if isinstance(models["ensemble"], dict) else []
    if baseline is not None:
        models["baseline"] = baseline_of(baseline, noise, sets["test"], kind)
    students = students_in(student, ["single", "ensemble", "baseline"], sets["test"].shape[1:])
    models |= {name: found for name, (_, found) in students.items()}
    truths = named(labels_unfamiliar or [], "--labels-unfamiliar")
    for name in truths.keys() - sets.keys():
        raise ValueError(f"--labels-unfamiliar names {name!r}, but there is no --unfamiliar {name}=FILE")
    known = {name: as_labels(load_array(file), models["ensemble"], kind.name) for name, file in truths.items()}
    others = {name: Batches(x, known.get(name), batch_size=1024) for name, x in sets.items() if name != "test"}
    with only_writer(out):
        test = Batches(sets["test"], target, batch_size=1024)
        result = compare(models, test, task=kind, unfamiliar=others, resamples=resamples)
        result.save(out)
    describe(result, out, absent)
    into_cards(result, {name: folder for name, (folder, _) in students.items()})
    print(f"Next: solera report {out}")
