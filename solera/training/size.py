"""The size of a student's uncertainty: what it and its teacher say of held-out inputs, and what is fitted to that."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from solera.data import Batch
from solera.distributions.base import SecondOrder
from solera.methods.base import Method
from solera.nn.call import call
from solera.tasks import Task, task_of
from solera.teachers.base import Teacher

KEPT = " kept, "  # how a card calls these shares: "knowledge kept, familiar"
MOST_NUMBERS = 1 << 21  # of the network's output that are kept in memory; of more, every second row


@dataclass(frozen=True)
class HeldOut:
    """What the served network and the teacher say of held-out inputs, one row per element that counts."""

    output: Float[Tensor, "N ..."]
    total: Float[Tensor, " N"]  # the teacher's
    knowledge: Float[Tensor, " N"]  # the teacher's
    labelled: Bool[Tensor, " N"]  # where there is a target
    elsewhere: Bool[Tensor, " N"]  # of another source than the others; where it is not given, what has no target
    target: Shaped[Tensor, "N ..."]  # a harmless 0 where there is none

    @property
    def auxiliary(self) -> Bool[Tensor, " N"] | None:
        """Inputs from elsewhere among others; None: all are of one kind."""
        return self.elsewhere if self.elsewhere.any() and not self.elsewhere.all() else None

    def fitted(self, method: Method) -> Method:
        """The method, predicting uncertainty of the teacher's size on these inputs."""
        return method.fitted(self.output, self.total, self.knowledge, self.auxiliary)


@dataclass(frozen=True)
class Kept:
    """Total, data and knowledge of a student in per cent of its ensemble's, on average over each group of inputs."""

    groups: dict[str, dict[str, float]]  # "familiar", "auxiliary" or "held-out": one number per measure

    def __str__(self) -> str:
        lines = [
            f"{group:>10}: " + ", ".join(f"{name} {value:.0f} %" for name, value in row.items())
            for group, row in self.groups.items()
        ]
        return "\n".join(lines)


def kept(method: Method, heard: HeldOut) -> Kept:
    """How much of the ensemble's uncertainty the method reads from these outputs."""
    said = method.predict(heard.output)
    pairs = {"total": (said.total, heard.total)}
    if isinstance(said, SecondOrder):
        pairs |= {"data": (said.data, heard.total - heard.knowledge), "knowledge": (said.knowledge, heard.knowledge)}
    everything = torch.ones_like(heard.labelled)
    groups = {"held-out": everything}
    if heard.auxiliary is not None:
        groups = {"familiar": ~heard.auxiliary, "auxiliary": heard.auxiliary}

    def share(ours: Tensor, theirs: Tensor) -> float:
        return 100 * float(ours.double().sum() / theirs.double().sum())

    return Kept(
        {group: {name: share(a[rows], b[rows]) for name, (a, b) in pairs.items()} for group, rows in groups.items()}
    )


def sizes(before: Method, after: Method, heard: HeldOut) -> dict[str, float]:
    """For the student's card: the shares of the ensemble's uncertainty that are kept, before a fit and after it."""
    return {
        f"{name}{KEPT}{group}{how}": share / 100
        for how, read in ((", before the fit", before), ("", after))
        for group, row in kept(read, heard).groups.items()
        for name, share in row.items()
    }


def _rows(network: nn.Module, teacher: Teacher, batch: Batch, task: Task | None) -> list[Tensor]:
    """The columns of HeldOut, of the elements of a batch that count."""
    output, said = call(network, batch.inputs), teacher(batch)
    if not output.isfinite().all():
        raise ValueError(
            f"the student answers {float(output[~output.isfinite()][0])} for a held-out input: its training diverged; "
            "lower the learning rate"
        )
    counts = torch.ones_like(said.total, dtype=torch.bool) if batch.weight is None else batch.weight > 0
    labelled, target = torch.zeros_like(counts), torch.zeros_like(counts, dtype=torch.long)
    if batch.target is not None:
        its = task or task_of(batch.target)
        labelled, target = its.labelled(batch, counts.ndim), its.filled(batch.target)
    elsewhere = ~labelled
    if batch.elsewhere is not None:
        elsewhere = batch.elsewhere.reshape(-1, *[1] * (counts.ndim - 1)).expand_as(counts)
    return [column[counts].cpu() for column in (output, said.total, said.knowledge, labelled, elsewhere, target)]


@torch.no_grad()
def ask(network: nn.Module, teacher: Teacher, batches: Iterable[Batch], task: Task | None = None) -> HeldOut:
    """Asks both about every batch, once."""
    network.eval()
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    parts: list[list[Tensor]] = []
    step, numbers = 1, 0
    for batch in batches:
        parts.append([column[::step] for column in _rows(network, teacher, batch.to(device), task)])
        numbers += parts[-1][0].numel()
        if numbers > MOST_NUMBERS:
            parts, step = [[column[::2] for column in part] for part in parts], 2 * step
            numbers = sum(part[0].numel() for part in parts)
    if not parts:
        raise ValueError("there is nothing to fit to: held_out holds no batches")
    return HeldOut(*(torch.cat(column) for column in zip(*parts, strict=True)))


def fitted_method(
    network: nn.Module,
    method: Method,
    teacher: Teacher,
    batches: Iterable[Batch] | None,
    task: Task | None = None,
) -> tuple[Method, dict[str, float]]:
    """The method with its prediction settings fitted on these batches, and how much of the teacher's uncertainty it
    keeps before and after; as it is without batches, or if it has no such settings."""
    if batches is None or type(method).fitted is Method.fitted:
        return method, {}
    held = ask(network, teacher, batches, task)
    fitted = held.fitted(method)
    return fitted, sizes(method, fitted, held)
