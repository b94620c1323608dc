"""The contract, executable: what every method, distribution, task and teacher must do. For plug-in authors too."""

import copy
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solera.data import Batch, Batches
from solera.distributions.base import Prediction, SecondOrder, Targets
from solera.distributions.families import family_named
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.distributions.normal_wishart import NormalWishart
from solera.methods.base import Method
from solera.tasks import Columns, Task, entry_of, task_named
from solera.tasks.infer import TASKS
from solera.teachers.base import Teacher
from solera.teachers.ensemble import Ensemble
from solera.training.distill import distill
from solera.training.settings import Training
from solera.training.student import Student


class _Network(nn.Sequential):
    """A small network over any batch axes."""

    def __init__(self, outputs: int) -> None:
        super().__init__(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs))


def _family(method: Method) -> Any:
    return family_named(getattr(method, "family", "categorical"))


def _changed(targets: Mixture, change: Callable[[Tensor], Tensor], weights: Tensor | None = None) -> Mixture:
    """The same members with every number of theirs changed."""
    return Mixture(type(targets.members)(*(change(t) for t in vars(targets.members).values())), weights)


def check_method(
    method: Method, batch: Sequence[int] = (3,), members: int = 4, classes: int = 6, seed: int = 0
) -> None:
    """Shape, purity, gradient, extremes, descent, member weights, prediction and a short real distillation.

    For a method of the Gaussian family `classes` are the target's dimensions.
    """
    torch.manual_seed(seed)
    batch, family = tuple(batch), _family(method)
    said = 2 * torch.randn(*batch, members, family.outputs(classes), dtype=torch.double)
    targets = Mixture(family.from_output(said))
    before = said.clone()
    student = method.student(_Network(method.outputs(classes)).double(), members).double()
    output = student(torch.randn(*batch, 5, dtype=torch.double)).detach().requires_grad_()
    for progress in (0.0, 0.5, 1.0):
        loss = method.loss(output, targets, progress)
        assert loss.shape == torch.Size(batch), f"a loss returns one number per batch element, not {tuple(loss.shape)}"
    assert torch.equal(said, before), "a loss must not change its inputs"
    if not method.adaptive:
        torch.autograd.gradcheck(lambda z: method.loss(z, targets, 1.0), output)
    _check_extremes(method, output, targets)
    _check_weights(method, output, targets)
    settled = _check_descent(method, output, targets)
    check_prediction(method.predict_in_training(settled), batch, classes)
    _check_distillation(method, members, classes)


def _check_extremes(method: Method, output: Tensor, targets: Mixture) -> None:
    for scale in (0.0, 1e-3, 20.0):
        extreme = _changed(targets, lambda t: (scale * t).float().clamp(-40, 40))  # noqa: B023
        for size in (1.0, 40.0):
            z = (size * output.detach().float().tanh()).requires_grad_()
            loss = method.loss(z, extreme, 1.0)
            (gradient,) = torch.autograd.grad(loss.sum(), z)
            finite = loss.isfinite().all() and gradient.isfinite().all()
            assert finite, f"loss and gradient must be finite at members × {scale} and outputs to ±{size}"


def _check_weights(method: Method, output: Tensor, targets: Mixture) -> None:
    """A member with weight 0 might as well not be there; a method that cannot do without one says so."""
    mean = targets.members.mean
    if mean.shape[-2] < 2:
        return
    weights = torch.full(mean.shape[:-1], 1 / (mean.shape[-2] - 1), dtype=mean.dtype)
    weights[..., 0] = 0
    if output.ndim == mean.ndim:
        _check_silent_head(method, output, targets, weights)
        return
    masked = method.loss(output, Mixture(targets.members, weights), 1.0)
    dropped = method.loss(output, _changed(targets, lambda t: t[..., 1:, :]), 1.0)
    torch.testing.assert_close(masked, dropped, msg="a member of weight 0 must not count")


def _check_silent_head(method: Method, output: Tensor, targets: Mixture, weights: Tensor) -> None:
    """One output per member, `[*batch, M, K]`: a member of weight 0 teaches its own output nothing, be it NaN."""
    nobody = torch.tensor([torch.nan] + [0.0] * (weights.shape[-1] - 1), dtype=weights.dtype).unsqueeze(-1)
    masked = method.loss(output, _changed(targets, lambda t: t + nobody, weights), 1.0)
    dropped = method.loss(output[..., 1:, :], _changed(targets, lambda t: t[..., 1:, :]), 1.0)
    torch.testing.assert_close(masked, dropped, msg="a member of weight 0 must not count")
    (gradient,) = torch.autograd.grad(masked.sum(), output)
    assert (gradient[..., 0, :] == 0).all(), "a member of weight 0 must not move its head"
    assert gradient.isfinite().all(), "what a member of weight 0 says must not leak into other heads"


def _check_descent(method: Method, output: Tensor, targets: Targets) -> Tensor:
    z = output.detach().clone().requires_grad_()
    start = method.loss(z, targets, 1.0).mean().item()
    optimizer = torch.optim.Adam([z], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        method.loss(z, targets, 1.0).mean().backward()
        optimizer.step()
    assert method.loss(z, targets, 1.0).mean().item() < start, "descent must lower the loss"
    return z.detach()


def _check_distillation(method: Method, members: int, classes: int) -> None:
    """Through the loop, to disk and back: the student must say the same after loading."""
    spoken = _family(method).outputs(classes)
    teacher = Ensemble([_Network(spoken) for _ in range(members)], family=getattr(method, "family", "categorical"))
    inputs, network = torch.randn(32, 5), _Network(method.outputs(classes))
    student = distill(teacher, network, Batches(inputs, batch_size=8), method, Training(epochs=2))
    with tempfile.TemporaryDirectory() as folder:
        again = Student.load(student.save(folder), model=_served_like(student))
    assert asdict(again.method) == asdict(method), "a method must survive being saved: its fields are its settings"
    torch.testing.assert_close(again.predict(inputs).mean, student.predict(inputs).mean, rtol=0, atol=0)


def _served_like(student: Student) -> nn.Module:
    empty = copy.deepcopy(student.model)
    for parameter in empty.parameters():
        nn.init.zeros_(parameter)
    return empty


def check_prediction(prediction: Prediction, batch: Sequence[int] = (3,), classes: int = 6) -> None:
    """Shapes, a mean that log_prob agrees with (it sums to one, or is where a density is symmetric), and the sums."""
    batch = tuple(batch)
    mean = prediction.mean
    assert mean.shape == (*batch, classes), "mean has one number per class or target dimension"
    assert prediction.total.shape == torch.Size(batch), "total is one number per batch element"
    if isinstance(prediction, (Gaussian, NormalWishart)):
        above, below = (prediction.log_prob(mean + step) for step in (0.5, -0.5))
        torch.testing.assert_close(above, below)
    elif not (isinstance(prediction, Mixture) and prediction.family == "gaussian"):
        torch.testing.assert_close(mean.sum(-1), torch.ones(batch, dtype=mean.dtype))
        labels = torch.zeros(batch, dtype=torch.long)
        torch.testing.assert_close(prediction.log_prob(labels).exp(), mean[..., 0])
    if isinstance(prediction, SecondOrder):
        check_distribution(prediction)


def check_distribution(distribution: SecondOrder) -> None:
    """Every uncertainty is at least 0, finite where the total is, and the sums hold."""
    found = {name: getattr(distribution, name) for name in ("total", "data", "knowledge")}
    real = isinstance(distribution, NormalWishart) or getattr(distribution, "family", "") == "gaussian"
    if not real:
        found["rmi"] = distribution.rmi
    for name, measure in found.items():
        assert measure.isfinite().all(), f"{name} must be finite"
        assert (measure >= -1e-6 * (1 + measure.abs())).all(), f"{name} must not be negative"
    torch.testing.assert_close(found["total"], found["data"] + found["knowledge"], rtol=1e-4, atol=1e-5)
    if not real:
        torch.testing.assert_close(distribution.epkl, found["knowledge"] + found["rmi"], rtol=1e-4, atol=1e-5)


def check_task(task: Task, batch: Batch, size: int, seed: int = 0) -> None:
    """What is read, checked, learned, measured, drawn and shown of a target, on a labelled batch of any batch axes.

    `size` is the number of classes or target dimensions.
    """
    assert batch.target is not None, "pass a batch with targets"
    torch.manual_seed(seed)
    read = task.batch((batch.inputs, batch.target), batch.index)
    assert torch.equal(read.index, batch.index), "a batch keeps the index of its examples"
    task.check(batch, size)
    family = family_named(task.family)
    axes = batch.target.shape if batch.weight is None else batch.weight.shape
    shape = tuple(axes[: 1 if task.family == "gaussian" and batch.weight is None else len(axes)])
    output = torch.randn(*shape, family.outputs(size), requires_grad=True)
    _check_label_loss(task, batch, output)
    members: Any = family.from_output(torch.randn(*shape, 3, family.outputs(size)))
    said = Mixture(members)
    columns = _check_columns(task, said, batch, shape)
    _check_scores(task, columns)
    _check_shown(task, said, batch, columns)
    mask = task.mask(replace(batch, weight=torch.zeros(shape)), shape)
    assert mask.shape == shape, "one truth value per element"
    assert not mask.any(), "an element of weight 0 does not count"
    if task.name in TASKS:
        again = task_named(**json.loads(json.dumps(entry_of(task))))
        assert again == task, "a task is its settings: it must survive being saved"


def _check_label_loss(task: Task, batch: Batch, output: Tensor) -> None:
    loss = task.label_loss(nn.Identity(), task.of_member(output), batch)
    assert loss.shape == output.shape[:-1], f"one loss per element, not {tuple(loss.shape)}"
    (gradient,) = torch.autograd.grad(loss.sum(), output)
    assert gradient.isfinite().all(), "the gradient of the label loss must be finite"
    better = task.label_loss(nn.Identity(), task.of_member(output - 0.01 * gradient), batch)
    assert better.sum() < loss.sum(), "a step down the gradient must lower the label loss"


def _check_columns(task: Task, said: Mixture, batch: Batch, shape: tuple[int, ...]) -> Columns:
    """The columns of the elements that count, as evaluation keeps them."""
    found = task.columns(said, batch) | task.compare(said, said)
    bare = task.columns(said, replace(batch, target=None))
    assert set(bare) < set(found), "without targets there is less to say"
    assert {"total", "data", "knowledge"} <= set(bare), "uncertainties are always among the columns"
    mask = task.mask(batch, shape).numpy()
    arrays = {name: np.asarray(column) for name, column in found.items()}
    for name, column in arrays.items():
        assert column.shape[: len(shape)] == shape, f"column {name} has one entry per element"
    return {name: column[mask] for name, column in arrays.items()}


def _check_scores(task: Task, columns: Columns) -> None:
    names = {score.name for score in task.table}
    scores, likeness = task.scores(columns), task.likeness(columns)
    assert set(scores) | set(likeness) <= names, "every score is explained in the task's table"
    assert {margin.score for margin in task.margins} <= set(scores), "a margin belongs to a score"
    assert set(task.shifted) <= set(scores), "shifted sets get scores that there are"
    order = np.random.default_rng(0).permutation(len(columns["total"]))
    mixed = task.scores({name: column[order] for name, column in columns.items()})
    for name, value in scores.items():
        torch.testing.assert_close(mixed[name], value, equal_nan=True, msg=f"{name} must not depend on the order")
    assert task.error(columns).shape == columns["total"].shape, "one error per element"
    assert isinstance(task.overconfident(columns), bool), "over-confident or not"


def _check_shown(task: Task, said: Mixture, batch: Batch, columns: Columns) -> None:
    assert batch.target is not None
    target = batch.target.reshape(len(columns["total"]), -1).squeeze(-1).numpy()
    for figure in task.figures(columns, target):
        extra = 1 if figure.kind == "bars" else 0
        assert len(figure.x) == len(figure.y) + extra, f"figure {figure.name} needs as many x as y (bars: edges)"
    answers = task.answers(said, None)
    assert len(answers) == len(batch), "one answer per example"
    assert all(set(answer) <= {"top", "mean", "low", "high", "tokens"} for answer in answers), "what a report can show"
    task.label(batch.target[0].numpy(), None)


def check_teacher(teacher: Teacher, batch: Batch) -> None:
    """One fingerprint per member, the same answer twice, and targets that are a proper distribution."""
    assert isinstance(teacher, Teacher), "a teacher has members, live, fingerprints, check and __call__"
    assert len(teacher.fingerprints) == teacher.members, "every member has a fingerprint"
    teacher.check(batch)
    with torch.no_grad():
        first, second = teacher(batch), teacher(batch)
    assert torch.equal(first.mean, second.mean), "a teacher asked twice says the same"
    assert first.mean.shape[0] == len(batch), "a teacher answers for every example"
    check_distribution(first)
