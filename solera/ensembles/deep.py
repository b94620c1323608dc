"""Deep ensembles: one architecture, several seeds (Lakshminarayanan et al., 2017)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from solera.core.seeds import generator, stream
from solera.data import Augment, Augmented, Batch, Batches
from solera.ensembles.members import fresh, together
from solera.nn.stacked import Stacked, stackable
from solera.teachers.ensemble import Ensemble
from solera.training.fit import fit, label_loss
from solera.training.loop import train
from solera.training.settings import Training


class _MemberBatches:
    """Every member's own shuffle of the same data, side by side: inputs `[B, M, ...]`."""

    def __init__(self, batches: Batches, seeds: list[int]) -> None:
        self.batches, self.seeds = batches, seeds

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return self.shuffled(0, 0)

    def shuffled(self, seed: int, epoch: int) -> Iterator[Batch]:
        """The order each member would see alone; the members' seeds decide, not the stack's."""
        orders = [torch.randperm(self.batches.examples, generator=generator(s, "order", epoch)) for s in self.seeds]
        whole = self.batches.all
        assert whole.target is not None
        for rows in torch.stack(orders, -1).split(self.batches.batch_size):
            yield Batch(whole.inputs[rows], rows[:, 0], whole.target[rows])


def _sum_of_label_losses(output: Tensor, batch: Batch, progress: float) -> Tensor:
    """Summed over members, so that each one's gradient is what it would be alone."""
    return label_loss(output, batch, progress).sum(-1)


def train_ensemble(
    make: Callable[[], nn.Module],
    batches: Batches,
    members: int = 10,
    training: Training | None = None,
    *,
    folder: str | Path | None = None,
    stacked: bool | None = None,
    augment: Augment | None = None,
) -> Ensemble:
    """Trains `members` networks from `make()`, each from its own initial weights and in its own order of the data.

    Small fully connected networks are trained together, as one stacked computation (`stacked` overrules that), others
    one after another. `augment` changes every batch at random as it is dealt out (see `Augmented`). With a folder, a
    killed run goes on where it was.
    """
    if members < 1:
        raise ValueError(f"an ensemble needs at least one member, got members={members}")
    training, folder = training or Training(), Path(folder) if folder else None
    seeds = [stream(training.seed, "member", number) for number in range(members)]
    networks = fresh(make, batches, seeds)
    if stacked and augment is not None:
        raise ValueError("augmented batches are not dealt to a stack of members: leave out stacked=True or augment")
    if (stackable(networks[0]) and augment is None) if stacked is None else stacked:
        stack = Stacked(networks)
        deal = _MemberBatches(batches, seeds)
        title = f"train {members} members together"
        data = batches.fingerprint() if folder else ""
        train(stack, deal, _sum_of_label_losses, training, folder=folder, identity=data, title=title)
        stack.unstack(networks)
    else:
        for number, network in enumerate(networks):
            own = replace(training, seed=seeds[number])
            place = folder / f"member-{number}" if folder else None
            seen = batches if augment is None else Augmented(batches, augment, own.seed)
            fit(network, seen, own, folder=place, title=f"train member {number + 1} of {members}")
    return together(networks, batches)
