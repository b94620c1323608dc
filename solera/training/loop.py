"""The training loop, all of it: for an ensemble's member, for a stack of members, and for a student."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from solera.core.checks import first_not_finite
from solera.core.disk import fingerprint, only_writer, require_room
from solera.core.errors import DivergedError
from solera.core.fused import Choice, compiled
from solera.core.progress import progress as show_progress
from solera.core.seeds import generator, seed_everything, stream
from solera.data import Batch, ManyBatches, fingerprint_of, one_epoch
from solera.nn.call import call, laid_out
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.training import checkpoint
from solera.training.checkpoint import State
from solera.training.engine import engine
from solera.training.settings import Training

Objective = Callable[[Any, Batch, float], Tensor]  # output, batch, progress -> one loss per element
Admit = Callable[
    [Batch, bool], Batch
]  # a batch as it comes, and whether it may be new -> it, or an error that names it
Prepare = Callable[[Batch, torch.Generator], Batch]  # what is trained on instead of this batch
Ask = Callable[..., Any]  # network, inputs, the network as several processes share it -> output, as `call`
Watch = Callable[[int, nn.Module], None]  # is shown the network after each epoch, by its number
Weights = dict[str, Tensor]
CHECKPOINT = "checkpoint.safetensors"


def train(
    network: nn.Module,
    batches: ManyBatches,
    objective: Objective,
    training: Training,
    *,
    groups: Iterable[dict[str, Any]] | None = None,
    ask: Ask = call,
    admit: Admit | None = None,
    prepare: Prepare | None = None,
    validation: ManyBatches | None = None,
    criterion: Objective | None = None,
    watch: Watch | None = None,
    folder: Path | None = None,
    identity: str = "",
    title: str = "train",
) -> nn.Module:
    """Minimises the objective. With a folder, a killed run goes on from there and ends in the same bits.

    `admit` looks at every batch as it comes; `prepare` may put another one in its place, by random numbers that its
    step alone decides; `ask` calls the network. With `validation` data the weights of the epoch are kept whose
    `criterion` (the objective, unless another is given) is lowest on them. It goes on only if the settings, the
    network's first weights, the data (of the validation, too) and `identity` (what else the objective hangs on) are
    what they were. A loss, or weights, that are not finite stop it; nothing is kept of them.
    """
    fabric = engine(training.precision, training.device)
    reads = folder is None or checkpoint.is_finished(folder / CHECKPOINT, training.fixed_epochs)
    with _alone_in(None if reads or not fabric.is_global_zero else folder, network):
        return _train(
            network, batches, objective, training, fabric, groups=groups, admit=admit, prepare=prepare,
            validation=validation, criterion=criterion or objective, watch=watch, ask=ask, folder=folder,
            identity=identity, title=title,
        )  # fmt: skip


@contextmanager
def _alone_in(folder: Path | None, network: nn.Module) -> Iterator[None]:
    """Refuses, before any work, a second training in the folder, and a disk that is read-only or full.

    Who only reads what a finished training left passes no folder: many may do that at once.
    """
    if folder is None:
        yield
        return
    with only_writer(folder, "-training"):
        require_room(folder, checkpoint.bytes_of(network))
        yield


def _train(
    network: nn.Module,
    batches: ManyBatches,
    objective: Objective,
    training: Training,
    fabric: Any,
    *,
    groups: Iterable[dict[str, Any]] | None,
    admit: Admit | None,
    prepare: Prepare | None,
    validation: ManyBatches | None,
    criterion: Objective,
    watch: Watch | None,
    ask: Ask,
    folder: Path | None,
    identity: str,
    title: str,
) -> nn.Module:
    run = _name(network, batches, validation, training, identity) if folder else ""
    seed_everything(stream(training.seed, "train", fabric.global_rank))
    groups = groups or [
        {"params": list(network.parameters()), "lr": training.lr, "weight_decay": training.weight_decay}
    ]
    optimizer = training.make_optimizer(list(groups))
    peaks, rate = [group["lr"] for group in optimizer.param_groups], training.rate()
    state, best, average = State(), Weights(), Weights()
    file = folder / CHECKPOINT if folder else None
    if file and file.exists():
        state, best, average = checkpoint.load(file, run, network, optimizer)
    model, optimizer = fabric.setup(network, optimizer)
    steps, saved, new_until = len(batches), time.monotonic(), state.epoch + (state.step > 0)
    take, epochs = training.accumulate, training.fixed_epochs
    seen = torch.empty(0, dtype=torch.long)  # the examples of the last step
    choice = Choice(state.compiled if training.compile == "auto" else training.compile, epochs * steps)

    def save() -> None:
        nonlocal saved
        state.compiled = choice.compile
        if file and fabric.is_global_zero:
            checkpoint.save(file, run, state, network, best, average, optimizer)
        saved = time.monotonic()

    def require_finite() -> None:
        name = first_not_finite(network.state_dict()) or first_not_finite(average)
        if name is not None:
            raise _diverged(title, f"{name} is not finite", state, optimizer, seen)

    def step(batch: Batch) -> float:
        nonlocal seen
        progress = (state.epoch * steps + state.step) / max(epochs * steps - 1, 1)
        if state.step % take == 0:
            optimizer.zero_grad()
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * rate(progress)
        batch = batch if admit is None else admit(batch, state.epoch <= new_until)
        seen, batch = batch.index, batch.part(fabric.global_rank, fabric.world_size).to(fabric.device)
        if prepare is not None:
            draw = generator(training.seed, "prepare", state.epoch, state.step, fabric.global_rank)
            batch = prepare(batch, draw)
        try:
            output = ask(network, laid_out(network, batch.inputs), model)
            loss = batch.average(objective(output, batch, progress))
        except DivergedError as error:
            raise _diverged(title, str(error), state, optimizer, seen) from error
        value = loss.item()
        if not math.isfinite(value):
            raise _diverged(title, f"the loss became {value}", state, optimizer, seen)
        together = min(take, steps - state.step + state.step % take)  # batches that share this step
        fabric.backward(loss if together == 1 else loss / together)
        state.step, state.loss = state.step + 1, state.loss + value
        if state.step % take == 0 or state.step == steps:
            if training.clip is not None:
                fabric.clip_gradients(model, optimizer, max_norm=training.clip)
            optimizer.step()
            if training.average:
                _move(average, network, training.average)
        return value

    with compiled(choice), show_progress(title, epochs * steps, state.epoch * steps) as advance:
        while state.epoch < epochs and not state.finished:
            model.train()
            for batch in one_epoch(batches, training.seed, state.epoch, state.step):
                advance(f"loss {step(batch):.4g}")
                if time.monotonic() - saved > training.checkpoint_seconds and state.step % take == 0:
                    require_finite()
                    save()
            require_finite()
            record = {"epoch": state.epoch, "loss": state.loss / steps}
            if validation is not None:
                with _averaged(network, average):
                    new = admit if state.epoch <= new_until else None
                    record["validation"] = validate(network, validation, criterion, fabric.device, new, ask)
                    least = math.inf if state.best is None else state.best
                    if record["validation"] < least:  # NaN and infinity never are
                        state.best, state.best_epoch = record["validation"], state.epoch
                        best = {k: v.detach().clone() for k, v in network.state_dict().items()}
                late = training.patience is not None and state.epoch - state.best_epoch >= training.patience
                state.finished = late
            if watch is not None:
                watch(state.epoch, network.eval())
            state.history.append(record)
            state.epoch, state.step, state.loss = state.epoch + 1, 0, 0.0
            if state.finished or state.epoch == epochs or time.monotonic() - saved > 1.0:
                save()
    if validation is not None and not best:
        raise DivergedError(f"{title}: the validation loss was never finite: look for infinities among the targets")
    if best or average:
        network.load_state_dict(best or average)
    fabric.barrier()
    return network.eval()


REMEDY = "lower the learning rate, set Training(clip=1.0), or look for extreme values among inputs and targets"


def _diverged(title: str, what: str, state: State, optimizer: Any, index: Tensor) -> DivergedError:
    some = ", ".join(map(str, index[:4].tolist())) + (", …" if len(index) > 4 else "")
    rate = optimizer.param_groups[0]["lr"]
    return DivergedError(
        f"{title}: {what} in epoch {state.epoch}, step {state.step}, at a learning rate of {rate:.3g} "
        f"on the batch of examples {some}: {REMEDY}"
    )


@torch.no_grad()
def _move(average: Weights, network: nn.Module, decay: float) -> None:
    """average ← decay·average + (1 − decay)·weights; it starts at the first weights there are."""
    for name, tensor in network.state_dict().items():
        if name not in average or not tensor.is_floating_point():
            average[name] = tensor.detach().clone()
        else:
            average[name].lerp_(tensor, 1 - decay)


@contextmanager
def _averaged(network: nn.Module, average: Weights) -> Iterator[None]:
    """The network with averaged weights, where there are any, and its own again afterwards."""
    if not average:
        yield
        return
    own = {k: v.detach().clone() for k, v in network.state_dict().items()}
    network.load_state_dict(average)
    yield
    network.load_state_dict(own)


def _setting(value: Any) -> Any:
    """A setting as it counts in a run's identity: of a function what it does, not where it stands in memory."""
    return object_fingerprint(value) if callable(value) else value


def _name(
    network: nn.Module, batches: ManyBatches, validation: ManyBatches | None, training: Training, identity: str
) -> str:
    left_out = ("checkpoint_seconds", "compile", "device", "most_rounds")  # none of them changes what a round does
    settings = {k: _setting(getattr(training, k)) for k in asdict(training) if k not in left_out}
    start = fingerprint(dict(network.state_dict()), type(network).__name__)
    data = [fingerprint_of(part) for part in (batches, validation) if part is not None]
    return hashlib.sha256(repr((settings, start, *data, identity)).encode()).hexdigest()


@torch.no_grad()
def validate(
    network: nn.Module,
    batches: Iterable[Batch],
    objective: Objective,
    device: torch.device,
    admit: Admit | None = None,
    ask: Ask = call,
) -> float:
    """The objective as it counts at the end of the training, averaged over these batches by their weight."""
    network.eval()
    total, size = 0.0, 0.0
    for batch in batches:
        batch = (batch if admit is None else admit(batch, True)).to(device)
        weight = float(batch.weight.sum()) if batch.weight is not None else float(len(batch))
        total += batch.average(objective(ask(network, laid_out(network, batch.inputs)), batch, 1.0)).item() * weight
        size += weight
    return total / size
