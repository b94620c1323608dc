"""What a distillation method is."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from solera.core.checks import require_positive
from solera.core.fused import Kernel
from solera.data import Batch
from solera.distributions.base import Prediction, Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.gaussian import Gaussian


def require_family(method: "Method", targets: Targets) -> None:
    """Refuses continuous targets where classes are meant, and the other way round."""
    wanted = getattr(method, "family", "categorical")
    if targets.family != wanted:
        name = type(method).__name__
        fields = [field.name for field in dataclasses.fields(method)]
        other = {"categorical": "ProxyDirichlet, say", "gaussian": "NormalWishart, say"}[targets.family]
        remedy = f"{name}(family={targets.family!r})" if "family" in fields else other
        what = {"categorical": "class probabilities", "gaussian": "means and variances of continuous targets"}
        raise ValueError(f"the teacher gives {what[targets.family]}, {name} needs {what[wanted]}: use {remedy}")


def one_to_one(
    student: Categorical | Gaussian,
    teacher: Categorical | Gaussian,
    weights: Float[Tensor, "*batch M"] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """T²·mean_m KL[teacher_m ‖ student_m], the member axis being −2; Gaussians have no temperature but 1.

    A member of weight 0 is not read, nor is its part of the student: neither NaN nor a gradient passes.
    """
    shapes = [tuple((p.logits if isinstance(p, Categorical) else p.location).shape) for p in (student, teacher)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"a student that says {shapes[0]} is not one for each member of a teacher that says {shapes[1]}: give the "
            "network one output per member, as method.student(network, members) does"
        )
    if isinstance(student, Categorical) and isinstance(teacher, Categorical):
        student, teacher = student.tempered(temperature), teacher.tempered(temperature)
    if weights is None:
        return temperature**2 * teacher.kl(student).mean(-1)  # type: ignore[arg-type]
    each = teacher.heard(weights).kl(student.heard(weights))  # type: ignore[arg-type]
    return temperature**2 * (weights * each).sum(-1)


def require_temperature(temperature: float, family: Family) -> None:
    """A positive one for classes; Gaussians have none but 1."""
    require_positive("temperature", temperature)
    if family_named(family) is Gaussian and temperature != 1:
        raise ValueError(f"Gaussians have no temperature, got {temperature}: pass temperature=1")


@dataclass(frozen=True)
class Method(ABC):
    """One way to turn M opinions into one student. Its fields are its hyper-parameters: a method is its own config."""

    adaptive: ClassVar[bool] = False  # part of the loss follows the output and is held constant in its gradient
    judged_by_mean: ClassVar[bool] = False  # held-out examples pick the epoch by KL(p̄ ‖ mean), not by the loss

    def student(self, model: nn.Module, members: int) -> nn.Module:
        """`model`, given the head this method needs; default: as it is."""
        return model

    def outputs(self, size: int) -> int:
        """How many outputs the network needs for `size` classes or target dimensions; default: one each."""
        return size

    def begin(self, student: nn.Module, targets: Targets) -> None:  # noqa: B027
        """Sets first weights by what the teacher says about some examples; default: leaves them as they are."""

    @abstractmethod
    def loss(self, output: Tensor, targets: Targets, progress: float = 1.0) -> Float[Tensor, "*batch"]:
        """One loss per batch element. `progress` runs from 0 to 1 over the training; 1 is the loss that counts."""

    def kernel(self, targets: Targets, classes: int) -> tuple[Kernel, tuple[Tensor, ...]] | None:
        """`loss` as a kernel of rows of logits and its columns (`solera.core.fused`); None, the default: there is none.

        A method that has one can be trained without ever holding all logits (`solera.methods.fused_head`).
        """
        return None

    @property
    def softmax(self) -> bool:
        """Whether in training the mean of a prediction is the softmax of the output; default: no."""
        return False

    def batch_loss(
        self, output: Tensor, targets: Targets, batch: Batch, progress: float = 1.0
    ) -> Float[Tensor, "*batch"]:
        """`loss`, of a method that must know which elements of the batch are padding; default: `loss`."""
        return self.loss(output, targets, progress)

    @abstractmethod
    def predict(self, output: Tensor) -> Prediction:
        """What a raw output of the student means."""

    def fitted(
        self,
        output: Float[Tensor, "N outputs"],
        total: Float[Tensor, " N"],
        knowledge: Float[Tensor, " N"],
        auxiliary: Bool[Tensor, " N"] | None = None,
    ) -> "Method":
        """This method, predicting uncertainty of the ensemble's size; default: as it is.

        `output` is what the served network says of held-out inputs, `total` and `knowledge` are the ensemble's there.
        Auxiliary inputs count as much as all familiar ones.
        """
        return self

    def predict_in_training(self, output: Tensor) -> Prediction:
        """What an output of the network in training means, if `finalize` makes another of it; default: `predict`."""
        return self.predict(output)

    def finalize(self, student: nn.Module) -> nn.Module:
        """The module that is served, made from the module that was trained; default: the same."""
        return student

    def parameter_groups(self, student: nn.Module, lr: float, weight_decay: float) -> Iterable[dict[str, Any]]:
        """What the optimiser gets; default: one group."""
        return [{"params": list(student.parameters()), "lr": lr, "weight_decay": weight_decay}]
