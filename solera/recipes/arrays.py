"""What `solera distill` does: arrays in, one student out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera import methods
from solera.core.checks import require_finite, require_labels
from solera.core.seeds import stream
from solera.core.versions import versions
from solera.data import Batch, Batches
from solera.distributions import Mixture
from solera.evaluation import evaluate
from solera.methods import Method
from solera.nn import network_for
from solera.recipes.base import Recipe, Workspace
from solera.teachers import committee
from solera.teachers.adapters import Forecasts, Predictions
from solera.teachers.adapters.files import read
from solera.training import Student, Training, distill
from solera.training.card import require_own_folder
from solera.training.distiller import as_inputs


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
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from error


def teacher_from(
    members: Sequence[str], variances: str, x: Tensor, y: Tensor | None
) -> tuple[Predictions | Forecasts, Tensor | None]:
    """What the files say, and the labels as they are for it: real targets are floats, classes whole numbers."""
    files = members[0] if len(members) == 1 else list(members)
    if variances:
        return Forecasts(files, len(x), variances=variances), None if y is None else y.float()
    if isinstance(files, str) and read(files).values.ndim == 2:
        if y is None:
            raise ValueError(
                f"{files} holds one number per example and member, forecasts without a variance: pass labels to "
                "estimate the noise from, or variances"
            )
        return committee(files, x, y.float()), y.float()  # type: ignore[return-value]
    teacher = Predictions(files, examples=len(x))
    if y is not None:
        y = y.long()
        require_labels("labels", y, teacher.logits.shape[-1])
    return teacher, y


def first_member(said: Mixture) -> Mixture:
    """What the first member said alone."""
    return Mixture(type(said.members)(*(t[:, :1] for t in vars(said.members).values())))


@dataclass(frozen=True)
class Arrays(Recipe):
    """Distil an array of member predictions into a default student for the inputs' shape: `solera distill`.

    Class probabilities, or forecasts of real targets: a number per example and member, with `variances` beside it or
    else the noise estimated from the labels.
    """

    members: tuple[str, ...] = field(default=())
    inputs: str = ""
    labels: str = ""
    variances: str = ""
    method: str = ""  # none: proxy-dirichlet for classes, normal-wishart for real targets
    epochs: int = 100
    label_weight: float = 0.0
    held_out: float = 0.2

    def run(self, work: Workspace) -> str:
        if not self.members or not self.inputs:
            raise ValueError("members=PREDICTIONS and inputs=ARRAY are needed: see solera distill --help")
        require_own_folder(work.folder)  # before the training, not after
        x = as_inputs(load_array(self.inputs))
        require_finite("inputs", x)
        y = torch.as_tensor(load_array(self.labels)) if self.labels else None
        teacher, y = teacher_from(self.members, self.variances, x, y)
        rest, test = Batches(x, y).split(self.held_out, self.seed)
        train, held = rest.split(0.1, stream(self.seed, "validation"))
        said = teacher(train.all)
        real, size = said.family == "gaussian", said.mean.shape[-1]
        method = method_named(self.method or ("normal-wishart" if real else "proxy-dirichlet"), said.family)
        work.say(
            f"{teacher.members} members, {len(x)} examples, {size} {'target dimensions' if real else 'classes'}: "
            f"distilling with {type(method).__name__}"
        )
        torch.manual_seed(stream(self.seed, "student"))
        network = network_for(train.all.inputs, method.outputs(size), said.mean if real else None)
        training = Training(epochs=self.epochs, label_weight=self.label_weight, seed=self.seed)
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
