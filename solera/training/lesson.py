"""What a teacher tells a student: the data, the loss, and how far the student still is from its teacher."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.core.errors import DivergedError
from solera.data import Batch, ManyBatches
from solera.methods.base import Method
from solera.methods.end import EnD
from solera.nn.call import call, laid_out
from solera.nn.last_layer import Unfinished, call_unfinished
from solera.perturbations import Perturbation
from solera.tasks import Row, Task
from solera.teachers.base import Teacher
from solera.training.engine import device_named
from solera.training.head import fused_loss, head_to_fuse
from solera.training.loop import Admit, Objective, Watch, train
from solera.training.settings import Training

LOOKED_AT = 32  # batches of the transfer set by which likeness is told


@torch.no_grad()
def require_numbers(teacher: Teacher, batch: Batch) -> None:
    """Asked when a loss is wrong: names the member that says NaN, and the example."""
    wrong = teacher(batch).wrong
    if wrong is not None and bool(wrong.any()):
        example, *_, member = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"member {member} says NaN about example {int(batch.index[example])}: look at that input, or leave out "
            "that member"
        )


@dataclass(frozen=True)
class Lesson:
    """A distillation but for its settings: who teaches whom, on which data, by which method."""

    teacher: Teacher
    student: nn.Module
    method: Method
    task: Task
    batches: ManyBatches
    held: ManyBatches | None
    admit: Admit
    perturbation: Perturbation | None
    watch: Watch | None
    identity: str  # what the loss hangs on besides the data, the network and the settings

    def objective(self, training: Training, method: Method | None = None) -> Objective:
        """The method's loss (or another's), with this share of the labels' mixed in where there are labels."""
        share, method = training.label_share, method or self.method

        def loss_of(output: Any, batch: Batch, progress: float) -> Tensor:
            if isinstance(output, Unfinished):
                return fused_loss(output, self.teacher, method, self.task, batch, training)
            with torch.no_grad():
                targets = self.teacher(batch)
            loss = method.batch_loss(output, targets, batch, progress)
            if share == 0 or batch.target is None:
                return loss
            mixed = (1 - share) * loss + share * self._label_loss(output, batch, training.label_smoothing)
            return torch.where(self.task.labelled(batch, loss.ndim), mixed, loss)

        def checked(output: Any, batch: Batch, progress: float) -> Tensor:
            try:
                loss = loss_of(output, batch, progress)
            except (ValueError, DivergedError):
                require_numbers(self.teacher, batch)
                raise
            if not bool(loss.isfinite().all()):
                require_numbers(self.teacher, batch)
            return loss

        return checked

    def criterion(self, training: Training) -> Objective:
        """What held-out examples judge an epoch by."""
        return self.objective(training, EnD() if self.method.judged_by_mean else None)

    def _label_loss(self, output: Any, batch: Batch, smoothing: float = 0.0) -> Tensor:
        return self.task.label_loss(self.student, self.method.predict_in_training(output), batch, smoothing)

    def train(self, training: Training, folder: Path | None) -> None:
        """Goes through the data for a number of epochs; the best one by the held-out examples is kept."""

        def moved(batch: Batch, draw: torch.Generator) -> Batch:
            assert self.perturbation is not None
            return replace(batch, inputs=self.perturbation(batch.inputs, self.teacher, self.student, draw))

        first = next(iter(self.batches))
        layer = head_to_fuse(self.student, self.method, self.task, self.teacher, first, training)
        train(
            self.student,
            self.batches,
            self.objective(training),
            training,
            groups=self.method.parameter_groups(self.student, training.lr, training.weight_decay),
            ask=call if layer is None else partial(call_unfinished, layer),
            admit=self.admit,
            prepare=None if self.perturbation is None else moved,
            validation=self.held,
            criterion=self.criterion(training),
            watch=self.watch,
            folder=folder,
            identity=self.identity,
            title=f"distil {type(self.method).__name__}",
        )

    def divergence(self, training: Training) -> Float[Tensor, " N"]:
        """The criterion of every held-out element that counts."""
        return self._each(self.criterion(training), labelled=False)

    def surprise(self) -> Float[Tensor, " N"]:
        """−ln p(y) of every held-out element that has a target."""
        return self._each(lambda output, batch, _: self._label_loss(output, batch), labelled=True)

    @torch.no_grad()
    def _each(self, objective: Objective, labelled: bool) -> Float[Tensor, " N"]:
        assert self.held is not None
        self.student.eval()
        found, device = [], next(iter(self.student.parameters())).device
        for batch in self.held:
            batch = batch.to(device)
            loss = objective(call(self.student, laid_out(self.student, batch.inputs)), batch, 1.0)
            counts = torch.ones_like(loss, dtype=torch.bool) if batch.weight is None else batch.weight > 0
            found.append(loss[counts & self.task.labelled(batch, loss.ndim) if labelled else counts].double().cpu())
        return torch.cat(found)

    def seconds_a_step(self, training: Training) -> float:
        """How long a step takes on this machine, by two of them whose gradients are thrown away."""
        objective, first = self.objective(training), next(iter(self.batches))
        before = {name: buffer.clone() for name, buffer in self.student.named_buffers()}
        network, taken = self.student.to(device_named(training.device)).train(), []
        batch = first.to(device_named(training.device))
        for _ in range(2):  # the first one also pays for what is set up once
            start = time.perf_counter()
            batch.average(objective(call(network, laid_out(network, batch.inputs)), batch, 0.0)).backward()
            network.zero_grad(set_to_none=True)
            taken.append(time.perf_counter() - start)
        for name, buffer in self.student.named_buffers():
            buffer.copy_(before[name])
        return min(taken)


@torch.no_grad()
def likeness(network: nn.Module, method: Method, teacher: Teacher, batches: Iterable[Batch], task: Task) -> Row:
    """How close a served network is to its teacher, as the task has it: agreement and KL, say."""
    columns: dict[str, list[np.ndarray]] = {}
    device = next((p.device for p in network.eval().parameters()), torch.device("cpu"))
    for batch in islice(batches, LOOKED_AT):
        batch = batch.to(device)
        said = teacher(batch)
        found = task.compare(method.predict(call(network, laid_out(network, batch.inputs))), said)
        counts = task.mask(replace(batch, target=None), said.total.shape).cpu().numpy()
        for name, column in found.items():
            array = column.cpu().numpy() if isinstance(column, Tensor) else column
            columns.setdefault(name, []).append(array[counts])
    return task.likeness({name: np.concatenate(parts) for name, parts in columns.items()})


def shortcoming(task: Task, transfer: Row, held: Row | None) -> str | None:
    """Why a student should not stand in for its teacher yet, and what to try; None if it may."""
    rows = {"the inputs it learned from": transfer} | ({} if held is None else {"held-out inputs": held})
    wrong = {name: row for name, row in rows.items() if not task.stands_in(row)}
    if not wrong:
        return None
    where, row = next(iter(wrong.items()))
    found = ", ".join(f"{name} {value:.3g}" for name, value in row.items() if value is not None)
    remedies = ["show it more inputs (unlabelled=, views='auto')"] if "held-out inputs" in wrong else []
    if row is transfer:
        remedies.append("try a larger network, more epochs (most_rounds=), or another learning rate")
    return f"the student does not follow its ensemble closely on {where} ({found}): {'; '.join(remedies)}"
