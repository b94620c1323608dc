"""The training loop, all of it: for an ensemble's member, for a stack of members, and for a student."""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.disk import fingerprint
from solera.core.fused import compiled
from solera.core.progress import progress as show_progress
from solera.core.seeds import generator, seed_everything, stream
from solera.data import Augmented, Batch, Batches, ManyBatches, in_order
from solera.training import checkpoint
from solera.training.checkpoint import State
from solera.training.engine import engine
from solera.training.settings import Training

Objective = Callable[[Any, Batch, float], Tensor]  # output, batch, progress -> one loss per element
Prepare = Callable[[Batch, torch.Generator], Batch]  # what is trained on instead of this batch
Watch = Callable[[int, nn.Module], None]  # is shown the network after each epoch, by its number


def train(
    network: nn.Module,
    batches: ManyBatches,
    objective: Objective,
    training: Training,
    *,
    groups: Iterable[dict[str, Any]] | None = None,
    prepare: Prepare | None = None,
    validation: Iterable[Batch] | None = None,
    watch: Watch | None = None,
    folder: Path | None = None,
    identity: str = "",
    title: str = "train",
) -> nn.Module:
    """Minimises the objective. With a folder, a killed run goes on from there and ends in the same bits.

    `prepare` may put another batch in the place of one, by random numbers that its step alone decides.
    It goes on only if the settings, the network's first weights, the data and `identity` (what else the objective hangs
    on) are what they were.
    """
    run = _name(network, batches, training, identity) if folder else ""
    fabric = engine(training.precision)
    seed_everything(stream(training.seed, "train", fabric.global_rank))
    groups = groups or [
        {"params": list(network.parameters()), "lr": training.lr, "weight_decay": training.weight_decay}
    ]
    optimizer = training.steps(list(groups))
    peaks, rate = [group["lr"] for group in optimizer.param_groups], training.rate()
    state, best, file = State(), dict[str, Tensor](), folder / "checkpoint.safetensors" if folder else None
    if file and file.exists():
        state, best = checkpoint.load(file, run, network, optimizer)
    model, optimizer = fabric.setup(network, optimizer)
    steps, saved = len(batches), time.monotonic()

    def save() -> None:
        nonlocal saved
        if file and fabric.is_global_zero:
            checkpoint.save(file, run, state, network, best, optimizer)
        saved = time.monotonic()

    with compiled(training.compile), show_progress(title, training.epochs * steps, state.epoch * steps) as advance:
        while state.epoch < training.epochs and not state.finished:
            model.train()
            order = in_order(batches, training.seed, state.epoch)
            for batch in islice(order, state.step, None):
                progress = (state.epoch * steps + state.step) / max(training.epochs * steps - 1, 1)
                for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                    group["lr"] = peak * rate(progress)
                batch = batch.part(fabric.global_rank, fabric.world_size).to(fabric.device)
                if prepare is not None:
                    draw = generator(training.seed, "prepare", state.epoch, state.step, fabric.global_rank)
                    batch = prepare(batch, draw)
                optimizer.zero_grad()
                loss = batch.average(objective(model(batch.inputs), batch, progress))
                fabric.backward(loss)
                optimizer.step()
                state.step, state.loss = state.step + 1, state.loss + loss.item()
                advance(f"loss {loss.item():.4g}")
                if time.monotonic() - saved > training.checkpoint_seconds:
                    save()
            record = {"epoch": state.epoch, "loss": state.loss / steps}
            if validation is not None:
                record["validation"] = validate(network, validation, objective, fabric.device)
                if state.best is None or record["validation"] < state.best:
                    state.best, state.best_epoch = record["validation"], state.epoch
                    best = {k: v.detach().clone() for k, v in network.state_dict().items()}
                late = training.patience is not None and state.epoch - state.best_epoch >= training.patience
                state.finished = late
            if watch is not None:
                watch(state.epoch, network.eval())
            state.history.append(record)
            state.epoch, state.step, state.loss = state.epoch + 1, 0, 0.0
            if state.finished or state.epoch == training.epochs or time.monotonic() - saved > 1.0:
                save()
    if best:
        network.load_state_dict(best)
    fabric.barrier()
    return network.eval()


def _name(network: nn.Module, batches: ManyBatches, training: Training, identity: str) -> str:
    settings = {k: v for k, v in asdict(training).items() if k not in ("checkpoint_seconds", "compile")}
    start = fingerprint(dict(network.state_dict()), type(network).__name__)
    data = batches.fingerprint() if isinstance(batches, (Batches, Augmented)) else len(batches)
    return hashlib.sha256(repr((settings, start, data, identity)).encode()).hexdigest()


@torch.no_grad()
def validate(network: nn.Module, batches: Iterable[Batch], objective: Objective, device: torch.device) -> float:
    """The objective as it counts at the end of the training, averaged over these batches by their weight."""
    network.eval()
    total, size = 0.0, 0.0
    for batch in batches:
        batch = batch.to(device)
        weight = float(batch.weight.sum()) if batch.weight is not None else float(len(batch))
        total += batch.average(objective(network(batch.inputs), batch, 1.0)).item() * weight
        size += weight
    return total / size
