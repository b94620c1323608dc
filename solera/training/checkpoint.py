"""One file from which a training goes on as if it had never stopped: weights, optimiser, random numbers, position."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from solera.core.disk import write_tensors
from solera.core.errors import DamagedFileError, MismatchError


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
    unshared = {k: v.clone() for k, v in tensors.items()}
    write_tensors(path, unshared, {"state": json.dumps(asdict(state)), "run": run})


def load(
    path: Path, run: str, network: nn.Module, optimizer: Optimizer
) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
    """Puts network, optimiser and random numbers back; returns where it stood, the best and the averaged weights."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        state = State(**json.loads(metadata["state"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{path} is damaged: delete it to start this training again") from error
    if metadata["run"] != run:
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
