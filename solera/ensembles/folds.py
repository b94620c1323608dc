"""k-fold and bagged ensembles: each member sees a part of the data, and the ensemble knows which.

So the ensemble can be asked about its own training examples out of fold: only members that did not see one speak.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from solera.core.seeds import generator, stream
from solera.data import Batches, Sequences
from solera.ensembles.members import fresh, in_memory, together
from solera.tasks import Task
from solera.teachers.ensemble import Ensemble
from solera.training.fit import fit
from solera.training.settings import Training


def fold_ids(examples: int, folds: int, seed: int = 0, labels: Int[Tensor, " _"] | None = None) -> Int[Tensor, " N"]:
    """The fold of each example, 0 to folds − 1: a random partition into folds whose sizes differ by one at most.

    With `labels`, every label's examples are spread over the folds as evenly. A model of your own for fold f trains on
    the rows with `ids != f` and answers for those with `ids == f`.
    """
    if not 2 <= folds <= examples:
        raise ValueError(f"folds must lie between 2 and the number of examples, {examples}, got {folds}")
    order = torch.randperm(examples, generator=generator(seed, "folds"))
    if labels is not None:
        if len(labels) != examples:
            raise ValueError(f"there are {len(labels)} labels for {examples} examples: pass one for each")
        order = order[labels.cpu()[order].argsort(stable=True)]
    ids = torch.empty(examples, dtype=torch.long)
    ids[order] = torch.arange(examples) % folds
    return ids


def saw_mask(index: Int[Tensor, " N"], rows: Sequence[Int[Tensor, " _"]]) -> Bool[Tensor, "E M"]:
    """saw[i, m]: member m was trained on the example of index i. Indices that are not there were seen by none."""
    saw = torch.zeros(int(index.max()) + 1, len(rows), dtype=torch.bool)
    for number, mine in enumerate(rows):
        saw[index[mine], number] = True
    return saw


def bag_rows(examples: int, members: int, seed: int = 0) -> tuple[list[Int[Tensor, " N"]], Bool[Tensor, "N M"]]:
    """Each member's bootstrap sample of the rows (as many as there are, with repeats), and which rows it saw.

    A member misses a row with probability (1 − 1/N)^N ≈ 1/e. The 0.63^M of the rows that are in every bag, which no
    member could predict out of bag, are taken out of one bag each, and rows of that bag repeated in their place.
    """
    if examples < 1 or members < 1:
        raise ValueError(f"bags need at least one example and one member, got {examples} and {members}")
    rows = [torch.randint(examples, (examples,), generator=generator(seed, "bag", m)) for m in range(members)]
    everywhere = saw_mask(torch.arange(examples), rows).all(1).nonzero().squeeze(1)
    left_out = torch.randint(members, everywhere.shape, generator=generator(seed, "left out"))
    for number, mine in enumerate(rows):
        gone = torch.isin(mine, everywhere[left_out == number])
        kept = mine[~gone]
        if len(kept):  # a bag must hold something
            again = torch.randint(len(kept), (int(gone.sum()),), generator=generator(seed, "again", number))
            mine[gone] = kept[again]
    return [mine.sort().values for mine in rows], saw_mask(torch.arange(examples), rows)


def _train_each(
    make: Callable[[], nn.Module],
    batches: Batches | Sequences,
    rows: list[Tensor],
    training: Training,
    task: Task,
    folder: Path | None,
) -> Ensemble:
    """One member per set of rows, each from weights and in an order of its own."""
    seeds = [stream(training.seed, "member", number) for number in range(len(rows))]
    networks = fresh(make, seeds)
    for number, network in enumerate(networks):
        fit(
            network,
            batches.of(rows[number]),
            replace(training, seed=seeds[number]),
            task=task,
            folder=folder / f"member-{number}" if folder else None,
            title=f"train member {number + 1} of {len(networks)}",
        )
    index = batches.index if isinstance(batches, Sequences) else batches.all.index
    return together(networks, batches, task, saw_mask(index, rows))


def train_folds(
    make: Callable[[], nn.Module],
    data: Any,
    folds: int = 5,
    training: Training | None = None,
    *,
    task: Task | None = None,
    repeats: int = 1,
    folder: str | Path | None = None,
) -> Ensemble:
    """Trains `folds · repeats` networks, each on all examples but one fold; each repeat deals the folds out afresh.

    To any one example `repeats` members are new. With one, there is no disagreement about it: to distil knowledge on
    these examples, repeat, or bag. Folds are stratified where an example's label is one class. With a folder, a killed
    run goes on where it was.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    batches, task = in_memory(data, task, "folds")
    training, target = training or Training(), None if isinstance(batches, Sequences) else batches.all.target
    labels = target if target is not None and target.ndim == 1 and not target.is_floating_point() else None
    rows: list[Tensor] = []
    for repeat in range(repeats):
        ids = fold_ids(batches.examples, folds, stream(training.seed, "repeat", repeat), labels)
        rows += [(ids != fold).nonzero().squeeze(1) for fold in range(folds)]
    return _train_each(make, batches, rows, training, task, Path(folder) if folder else None)


def train_bags(
    make: Callable[[], nn.Module],
    data: Any,
    members: int = 10,
    training: Training | None = None,
    *,
    task: Task | None = None,
    folder: str | Path | None = None,
) -> Ensemble:
    """Bagging (Breiman, 1996): trains `members` networks, each on its bootstrap sample of the examples (`bag_rows`).

    With a folder, a killed run goes on where it was.
    """
    batches, task = in_memory(data, task, "bags")
    training = training or Training()
    rows, _ = bag_rows(batches.examples, members, training.seed)
    return _train_each(make, batches, rows, training, task, Path(folder) if folder else None)
