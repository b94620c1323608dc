"""What `solera distill` does: arrays in, one student out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from solera import methods
from solera.core.array_files import read_npy
from solera.core.checks import require_finite, require_labels
from solera.core.progress import tell
from solera.core.seeds import stream
from solera.core.versions import versions
from solera.data import UNLABELLED, Batch, Batches, class_numbers
from solera.distributions import Mixture
from solera.evaluation import evaluate
from solera.methods import Method
from solera.nn import network_for
from solera.recipes.base import Recipe, Workspace
from solera.teachers import committee, saw_from_folds
from solera.teachers.adapters import Forecasts, Predictions
from solera.teachers.adapters.files import read
from solera.training import Student, Training, distill
from solera.training.card import require_own_folder
from solera.training.distiller import default_method, floats
from solera.training.settings import PATIENT


def method_named(name: str, family: str) -> Method:
    """`proxy-dirichlet` for ProxyDirichlet, and so on; of that family, where the method has several."""
    kinds = {k.lower(): v for k, v in vars(methods).items() if isinstance(v, type) and issubclass(v, Method)}
    wanted = name.replace("-", "").replace("_", "").lower()
    if wanted not in kinds or wanted == "method":
        there = sorted(v.__module__.split(".")[-1].replace("_", "-") for k, v in kinds.items() if k != "method")
        raise ValueError(f"there is no method {name!r}: choose among {', '.join(there)}")
    kind: Any = kinds[wanted]
    return kind(family=family) if "family" in [f.name for f in fields(kind)] else kind()


def load_array(path: str) -> np.ndarray:
    """One `.npy` file; never one that holds pickled objects."""
    return read_npy(Path(path))


def load_saw(folds: str, saw: str, members: int | None = None) -> Tensor | None:
    """Who was trained on which row: from a file of fold ids `(N,)`, or of true and false `(N, M)`."""
    if folds and saw:
        raise ValueError("--folds and --saw both say who saw which row: give one of them")
    if saw:
        return torch.as_tensor(load_array(saw))
    if not folds:
        return None
    ids = load_array(folds)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise ValueError(f"{folds} must hold one fold id per row, whole numbers from 0, got {ids.dtype} {ids.shape}")
    return saw_from_folds(torch.as_tensor(ids.astype(np.int64)), members)


def as_labels(values: np.ndarray, teacher: Any, task: str) -> Tensor:
    """Labels as the teacher has them: classes by its names, or numbers; continuous targets as floats."""
    if task == "regression" or isinstance(teacher, Forecasts) or getattr(teacher, "family", "") == "gaussian":
        return torch.as_tensor(values).float()
    numbers, _ = class_numbers(values, getattr(teacher, "labels", None))
    if numbers.is_floating_point():
        whole = numbers.long()
        if not torch.equal(whole.to(numbers.dtype), numbers):
            raise ValueError(f"classes are whole numbers, the labels hold {numbers[whole != numbers][0].item():.4g}")
        numbers = whole
    return numbers


def teacher_from(
    members: Sequence[str],
    variances: str,
    x: Tensor,
    labels: np.ndarray | None,
    saw: Tensor | None = None,
    task: str = "",
) -> tuple[Predictions | Forecasts, Tensor | None]:
    """What the files say, and the labels as they are for it: continuous targets are floats, classes whole numbers."""
    files = members[0] if len(members) == 1 else list(members)
    y = None if labels is None else torch.as_tensor(labels) if labels.dtype.kind in "biuf" else None
    if variances:
        return Forecasts(files, len(x), variances=variances, saw=saw), None if y is None else y.float()
    if isinstance(files, str) and read(files).values.ndim == 2:
        if y is None:
            raise ValueError(
                f"{files} holds one number per example and member, forecasts without a variance: pass labels to "
                "estimate the noise from, or variances"
            )
        if saw is None:
            tell(
                "nobody said which rows the members were trained on: the noise is right only if these were none of "
                "them (--folds FILE or --saw FILE says who saw which)"
            )
        return committee(files, x, y.float(), saw), y.float()  # type: ignore[return-value]
    teacher = Predictions(files, examples=len(x), saw=saw)
    if labels is None:
        return teacher, None
    numbers = as_labels(labels, teacher, task)
    known = numbers != UNLABELLED
    require_labels("labels", numbers.masked_fill(~known, 0), teacher.logits.shape[-1], torch.arange(len(numbers)))
    return teacher, numbers


def first_member(said: Mixture) -> Mixture:
    """What the first member said alone."""
    return Mixture(type(said.members)(*(t[:, :1] for t in vars(said.members).values())))


@dataclass(frozen=True)
class Arrays(Recipe):
    """Distil an array of member predictions into a default student for the inputs' shape: `solera distill`.

    Class probabilities, or forecasts of continuous targets: a number per example and member, with `variances` beside
    it or else the noise estimated from the labels.
    """

    study: ClassVar[bool] = False

    members: tuple[str, ...] = field(default=())
    inputs: str = ""
    labels: str = ""
    variances: str = ""
    method: str = ""  # none: proxy-dirichlet for classes, normal-wishart for continuous targets
    epochs: int = 0  # none: as many as help
    label_weight: float | None = None  # none: chosen by validation, where the number of epochs is
    held_out: float = 0.2
    folds: str = ""  # a file: the fold of each row; member m was trained on all rows but those of fold m
    saw: str = ""  # a file: (rows, members), true where a member was trained on a row
    task: str = ""  # none: told by the members' files

    def run(self, work: Workspace) -> str:
        if not self.members or not self.inputs:
            raise ValueError("members=PREDICTIONS and inputs=ARRAY are needed: see solera distill --help")
        require_own_folder(work.folder)  # before the training, not after
        x = floats(load_array(self.inputs))
        require_finite("inputs", x)
        labels = load_array(self.labels) if self.labels else None
        saw = load_saw(self.folds, self.saw)
        teacher, y = teacher_from(self.members, self.variances, x, labels, saw, self.task)
        rest, test = Batches(x, y).split(self.held_out, self.seed)
        train, held = rest.split(0.1, stream(self.seed, "validation"))
        said = teacher(train.all)
        real, size = said.family == "gaussian", said.mean.shape[-1]
        method = method_named(self.method, said.family) if self.method else default_method(said)
        work.say(
            f"{teacher.members} members, {len(x)} examples, {size} {'target dimensions' if real else 'classes'}: "
            f"distilling with {type(method).__name__}"
        )
        torch.manual_seed(stream(self.seed, "student"))
        network = network_for(train.all.inputs, method.outputs(size), said.mean if real else None)
        training = replace(PATIENT, seed=self.seed)
        if self.epochs:
            training = Training(epochs=self.epochs, seed=self.seed)
        if self.label_weight is not None:
            training = replace(training, label_weight=self.label_weight)
        student = distill(teacher, network, train, method, training, validation=held, folder=work.folder / "training")
        student.save(work.folder)
        page = self._table(student, teacher, test.all)
        return f"# {type(method).__name__} student\n\n{page}\n\n{versions()}\n"

    def _table(self, student: Student, teacher: Predictions | Forecasts, test: Batch) -> str:
        ensemble = teacher(test)
        if test.target is None:
            if ensemble.family == "gaussian":
                away = (student.predict(test.inputs).mean - ensemble.mean).square().mean().sqrt()
                return (
                    f"RMS distance from the ensemble's mean on {len(test)} held-out examples: {away:.4g} (no labels)."
                )
            agreement = (student.predict(test.inputs).mean.argmax(-1) == ensemble.mean.argmax(-1)).float().mean()
            return f"Agreement with the ensemble on {len(test)} held-out examples: {100 * agreement:.1f} % (no labels)."
        models = {"member 0": {"test": first_member(ensemble)}, "ensemble": {"test": ensemble}, "student": student}
        return evaluate(models, test.inputs, test.target, single="member 0").markdown()
