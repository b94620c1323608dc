"""One file from which a training goes on as if it had never stopped: weights, optimiser, random numbers, position."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from solera.core.checks import first_not_finite
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


_FORM = {  # of a state, as far as an earlier Solera wrote it
    **{"epoch": int, "step": int, "loss?": float, "best?": (None, float), "best_epoch?": int},
    **{"finished?": bool, "compiled?": (None, bool), "history?": [{str: float}]},
}
_REMEDY = "delete it to start this training again"


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
        raise DamagedFileError(f"{error}; {_REMEDY}") from error
    require_form(path, metadata, {"state": str, "run": str})
    with reading(path, "state"):
        found = json.loads(metadata["state"])
        require_form(path, found, _FORM, "state")
        state = State(**found)
    if state.epoch < 0 or state.step < 0:
        raise DamagedFileError(f"{path}: state stands at epoch {state.epoch}, step {state.step}; {_REMEDY}")
    return state, tensors, metadata["run"]


def is_finished(path: Path, epochs: int) -> bool:
    """Whether a training has nothing left to do, by what its checkpoint says; `load` finds out whether it is whole."""
    try:
        with safe_open(path, "pt") as file:
            state = State(**json.loads((file.metadata() or {})["state"]))
        return state.finished or state.epoch >= epochs
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        return False


def _part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(name): tensor for key, tensor in tensors.items() if key.startswith(name)}


def _load_weights(path: Path, tensors: dict[str, Tensor], network: nn.Module) -> None:
    """Puts the weights back; the best and the averaged ones, if there are any, must be of the same network."""
    for kind in ("network/", "best/", "average/"):
        if (name := first_not_finite(_part(tensors, kind))) is not None:
            raise DamagedFileError(f"{path}: {kind}{name} is not finite; {_REMEDY}")
    try:
        network.load_state_dict(_part(tensors, "network/"))
    except RuntimeError as error:
        reason = " ".join(str(error).splitlines()[1:2]).strip()[:200]
        raise DamagedFileError(f"{path}: its weights are not those of this network ({reason}); {_REMEDY}") from error
    wanted = {name: tensor.shape for name, tensor in network.state_dict().items()}
    for kind in ("best/", "average/"):
        found = {name: tensor.shape for name, tensor in _part(tensors, kind).items()}
        if found and (other := sorted(name for name, _ in found.items() ^ wanted.items())):
            raise DamagedFileError(f"{path}: {kind}{other[0]} is not as this network has it; {_REMEDY}")


def _load_optimizer(path: Path, tensors: dict[str, Tensor], optimizer: Optimizer) -> None:
    weights = sum(len(group["params"]) for group in optimizer.param_groups)
    slots: dict[int, dict[str, Tensor]] = {}
    for key, value in _part(tensors, "optimizer/").items():
        number, _, name = key.partition("/")
        if not (number.isdecimal() and name and len(number) < 10 and int(number) < weights):
            raise DamagedFileError(f"{path}: optimizer/{key} belongs to none of the {weights} weights; {_REMEDY}")
        slots.setdefault(int(number), {})[name] = value
    with reading(path, "optimizer"):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


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
    _load_weights(path, tensors, network)
    _load_optimizer(path, tensors, optimizer)
    with reading(path, "random"):
        torch.set_rng_state(tensors["random"])
    return state, _part(tensors, "best/"), _part(tensors, "average/")
