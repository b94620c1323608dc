"""Deep ensembles: one architecture, several seeds (Lakshminarayanan et al., 2017)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.seeds import generator, stream
from solera.data import Augment, Augmented, Batch, Batches, ManyBatches, View, shuffling
from solera.ensembles.members import fresh, prepared, together
from solera.nn.stacked import Stacked, stackable
from solera.tasks import Task
from solera.teachers.ensemble import Ensemble
from solera.training.fit import admit_labelled, fit, label_loss
from solera.training.loop import Objective, train
from solera.training.settings import Training


class _MemberBatches:
    """Every member's own shuffle of the same data, side by side: inputs `[B, M, ...]`."""

    def __init__(self, batches: Batches, seeds: list[int]) -> None:
        self.batches, self.seeds = batches, seeds

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return self.shuffled(0, 0)

    def shuffled(self, seed: int, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The order each member would see alone; the members' seeds decide, not the stack's."""
        orders = [torch.randperm(self.batches.examples, generator=generator(s, "order", epoch)) for s in self.seeds]
        whole = self.batches.all
        assert whole.target is not None
        for rows in torch.stack(orders, -1).split(self.batches.batch_size)[start:]:
            weight = None if whole.weight is None else whole.weight[rows]
            yield Batch(whole.inputs[rows], rows[:, 0], whole.target[rows], weight)

    def fingerprint(self) -> str:
        """That of the data and of every member's order of them."""
        return f"{self.batches.fingerprint()} {self.seeds}"


def _sum_of_label_losses(task: Task, stack: nn.Module, training: Training) -> Objective:
    """Summed over members, so that each one's gradient is what it would be alone."""
    alone = label_loss(task, stack, training)

    def objective(output: Tensor, batch: Batch, progress: float) -> Tensor:
        losses = alone(output, batch, progress)
        if batch.weight is None:
            return losses.sum(-1)
        return losses * batch.weight.sum() / batch.weight.sum(0)  # so that each member's own weights sum to one

    return objective


def train_ensemble(
    make: Callable[[], nn.Module],
    data: Any,
    members: int = 10,
    training: Training | None = None,
    *,
    task: Task | None = None,
    folder: str | Path | None = None,
    stacked: bool | None = None,
    augment: Augment | None = None,
) -> Ensemble:
    """Trains `members` networks from `make()`, each from its own initial weights and in its own order of the data.

    Small fully connected networks on arrays are trained together, as one stacked computation (`stacked` overrules
    that), others one after another. `augment` changes every batch at random as it is dealt out (see `Augmented`). With
    a folder, a killed run goes on where it was.
    """
    if members < 1:
        raise ValueError(f"an ensemble needs at least one member, got members={members}")
    training, folder = training or Training(), Path(folder) if folder else None
    seeds = [stream(training.seed, "member", number) for number in range(members)]
    if stacked and augment is not None:
        raise ValueError("augmented batches are not dealt to a stack of members: leave out stacked=True or augment")
    if isinstance(augment, View) and not augment.keeps_class:
        raise ValueError(
            f"members learn from labels, and {type(augment).__name__} does not keep an example's class: choose a view "
            "that does (Jitter, Noise, Shift, Crop, Flip)"
        )
    batches, task = prepared(data, task)
    networks = fresh(make, seeds)
    admit = admit_labelled(task, make, batches)
    if stacked is None:
        stacked = stackable(networks[0]) and augment is None and _stackable_data(batches, task)
    if stacked:
        if not isinstance(batches, Batches):
            raise ValueError(f"a stack of members needs arrays in memory, got {type(batches).__name__}: use Batches")
        stack = Stacked(networks)
        deal = _MemberBatches(batches, seeds)
        title = f"train {members} members together"
        for batch in batches:  # in memory, and looked at in order: a stack's batches mix up whose row is whose
            admit(batch, True)
        objective = _sum_of_label_losses(task, stack, training)
        train(stack, deal, objective, training, folder=folder, identity=repr(task), title=title)
        stack.unstack(networks)
    else:
        for number, network in enumerate(networks):
            own = replace(training, seed=seeds[number])
            place = folder / f"member-{number}" if folder else None
            seen = batches if augment is None else Augmented(shuffling(batches), augment, own.seed)
            fit(network, seen, own, task=task, folder=place, title=f"train member {number + 1} of {members}")
    return together(networks, batches, task)


def _stackable_data(batches: ManyBatches, task: Task) -> bool:
    """Whether members can be dealt rows of one tensor: arrays, all of them in memory and labelled, a row an example."""
    if not isinstance(batches, Batches) or not isinstance(batches.all.inputs, Tensor) or batches.mapped:
        return False
    weight = batches.all.weight
    return bool(task.labelled(batches.all).all()) and (weight is None or weight.ndim == 1)
