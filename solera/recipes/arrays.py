"""What `solera distill` does: arrays in, one student out."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch

from solera import methods
from solera.core.checks import require_finite
from solera.core.seeds import stream
from solera.core.versions import versions
from solera.data import Batch, Batches
from solera.evaluation import evaluate
from solera.methods import Method
from solera.nn import network_for
from solera.recipes.base import Recipe, Workspace
from solera.teachers.adapters import Forecasts, Predictions
from solera.teachers.from_files import first_member, load_array, load_saw, teacher_from
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
