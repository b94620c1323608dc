"""One file from which a training goes on as if it had never stopped: weights, optimiser, random numbers, position."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from solera.core.errors import DamagedFileError, MismatchError
from solera.core.schema import reading, require_form
from solera.core.tensor_files import read_sealed_tensors, write_sealed_tensors


@dataclass
class State:
    """Where a training stands."""

    epoch: int = 0
    step: int = 0  # within the epoch
    loss: float = 0.0  # summed over the steps of this epoch
    best: float | None = None  # the best validation loss so far
    best_epoch: int = -1
    finished: bool = False
    compiled: bool | None = None  # whether kernels are compiled; None: not decided yet
    history: list[dict[str, float]] = field(default_factory=list)


def save(
    path: Path,
    run: str,
    state: State,
    network: nn.Module,
    best: dict[str, Tensor],
    average: dict[str, Tensor],
    optimizer: Optimizer,
) -> None:
    """Atomic: a kill leaves this checkpoint or the one before. `run` identifies what is being trained, and how."""
    tensors = {f"network/{k}": v.detach() for k, v in network.state_dict().items()}
    tensors |= {f"best/{k}": v for k, v in best.items()} | {f"average/{k}": v for k, v in average.items()}
    tensors["random"] = torch.get_rng_state()
    for number, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{number}/{k}": torch.as_tensor(v) for k, v in slots.items()}
    write_sealed_tensors(path, tensors, {"state": json.dumps(asdict(state)), "run": run})


def bytes_of(network: nn.Module) -> int:
    """What a checkpoint takes at most: weights, the best and the averaged ones, and two slots of an optimiser."""
    return 5 * sum(t.numel() * t.element_size() for t in network.state_dict().values())


def read(path: Path) -> tuple[State, dict[str, Tensor], str]:
    """Where a training stood, its tensors, and what was being trained; a damaged file is refused by name."""
    try:
        tensors, metadata = read_sealed_tensors(path)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; delete it to start this training again") from error
    require_form(path, metadata, {"state": str, "run": str})
    with reading(path, "state"):
        state = State(**json.loads(metadata["state"]))
    return state, tensors, metadata["run"]


def is_finished(path: Path, epochs: int) -> bool:
    """Whether a training has nothing left to do, by what its checkpoint says; `load` finds out whether it is whole."""
    try:
        with safe_open(path, "pt") as file:
            state = State(**json.loads((file.metadata() or {})["state"]))
        return state.finished or state.epoch >= epochs
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return False


def load(
    path: Path, run: str, network: nn.Module, optimizer: Optimizer
) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
    """Puts network, optimiser and random numbers back; returns where it stood, the best and the averaged weights."""
    state, tensors, found = read(path)
    if found != run:
        raise MismatchError(
            f"{path} belongs to another training: its settings, network, teacher or data differ: "
            "choose another folder, or delete it to start again"
        )

    def part(name: str) -> dict[str, Tensor]:
        return {k.removeprefix(name): v for k, v in tensors.items() if k.startswith(name)}

    network.load_state_dict(part("network/"))
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in part("optimizer/").items():
        number, name = key.split("/")
        slots.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})
    torch.set_rng_state(tensors["random"])
    return state, part("best/"), part("average/")
