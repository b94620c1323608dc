"""What `solera distill` does: arrays in, one student out."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera import methods
from solera.core.batch import Batch, Batches
from solera.core.checks import require_finite, require_labels
from solera.core.seeds import stream
from solera.distributions import Categorical, Mixture
from solera.evaluation import evaluate
from solera.methods import Method
from solera.nn import network_for
from solera.recipes.base import Recipe, Workspace, versions
from solera.teachers.adapters import Predictions
from solera.training import Student, Training, distill
from solera.training.distiller import as_inputs


def method_named(name: str) -> Method:
    """`proxy-dirichlet` for ProxyDirichlet, and so on."""
    kinds = {k.lower(): v for k, v in vars(methods).items() if isinstance(v, type) and issubclass(v, Method)}
    wanted = name.replace("-", "").replace("_", "").lower()
    if wanted not in kinds or wanted == "method":
        there = sorted(v.__module__.split(".")[-1].replace("_", "-") for k, v in kinds.items() if k != "method")
        raise ValueError(f"there is no method {name!r}: choose among {', '.join(there)}")
    return kinds[wanted]()


def load_array(path: str) -> np.ndarray:
    """One `.npy` file; never one that holds pickled objects."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from error


class Remembered:
    """Answers about the held-out examples only, from the array."""

    live = False

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture

    def predict(self, inputs: Tensor) -> Mixture:
        """What the members said about them."""
        return self.mixture


@dataclass(frozen=True)
class Arrays(Recipe):
    """Distil an array of member predictions into a default student for the inputs' shape: `solera distill`."""

    members: tuple[str, ...] = field(default=())
    inputs: str = ""
    labels: str = ""
    method: str = "proxy-dirichlet"
    epochs: int = 100
    label_weight: float = 0.0
    held_out: float = 0.2

    def run(self, work: Workspace) -> str:
        if not self.members or not self.inputs:
            raise ValueError("members=PREDICTIONS and inputs=ARRAY are needed: see solera distill --help")
        method, x = method_named(self.method), as_inputs(load_array(self.inputs))
        require_finite("inputs", x)
        teacher = Predictions(self.members[0] if len(self.members) == 1 else list(self.members), examples=len(x))
        classes = teacher.logits.shape[-1]
        y = torch.as_tensor(load_array(self.labels)).long() if self.labels else None
        if y is not None:
            require_labels("labels", y, classes)
        work.say(f"{teacher.members} members, {len(x)} examples, {classes} classes")
        rest, test = Batches(x, y).split(self.held_out, self.seed)
        train, held = rest.split(0.1, stream(self.seed, "validation"))
        torch.manual_seed(stream(self.seed, "student"))
        network = network_for(train.all.inputs, classes)
        training = Training(epochs=self.epochs, label_weight=self.label_weight, seed=self.seed)
        student = distill(teacher, network, train, method, training, validation=held, folder=work.folder / "training")
        student.save(work.folder)
        page = self._table(student, teacher, test.all)
        return f"# {type(method).__name__} student\n\n{page}\n\n{versions()}\n"

    def _table(self, student: Student, teacher: Predictions, test: Batch) -> str:
        ensemble = teacher(test)
        if test.target is None:
            agreement = (student.predict(test.inputs).mean.argmax(-1) == ensemble.mean.argmax(-1)).float().mean()
            return f"Agreement with the ensemble on {len(test)} held-out examples: {100 * agreement:.1f} % (no labels)."
        single = Mixture(Categorical(ensemble.members.logits[:, :1]))
        models = {"member 0": Remembered(single), "ensemble": Remembered(ensemble), "student": student}
        return evaluate(models, test.inputs, test.target).markdown()
