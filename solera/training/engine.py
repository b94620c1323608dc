"""Where a training runs: in this process alone, or Lightning Fabric for many processes and for mixed precision.

The loop speaks Fabric's language. A lone full-precision process needs none of it, so `Alone` answers in the same words
and spares users an import of several seconds.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from solera.core.hardware import warn_of_slow_bfloat16


class Alone:
    """One process, full precision."""

    global_rank, world_size, is_global_zero = 0, 1, True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def setup(self, network: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """The network on its device."""
        return network.to(self.device), optimizer

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss."""
        loss.backward()

    def clip_gradients(self, network: nn.Module, optimizer: Optimizer, max_norm: float) -> None:
        """No gradient of all weights together is longer than that."""
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)

    def barrier(self) -> None:
        """Nobody to wait for."""


def device_named(name: str) -> torch.device:
    """A device by its name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"there is no device {name!r}: choose 'auto', 'cpu' or 'cuda'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}, but this PyTorch finds no GPU: pass device='cpu', or install a CUDA build")
    return device


def precision_named(precision: str, device: str) -> str:
    """A precision by its name; "auto" is bf16-mixed where the hardware has it."""
    if precision != "auto":
        return precision
    where = device_named(device)
    return "bf16-mixed" if where.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"


def engine(precision: str = "auto", device: str = "auto") -> Any:
    """Alone by default; a launched Fabric for mixed precision or as one of WORLD_SIZE processes under `torchrun`."""
    world, where = int(os.environ.get("WORLD_SIZE", "1")), device_named(device)
    precision = precision_named(precision, device)
    if where.type == "cpu":
        warn_of_slow_bfloat16(precision, "leave Training(precision=...) at 'auto'")
    if world == 1 and precision == "32-true":
        return Alone(where)

    from lightning_fabric import Fabric

    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    fabric = Fabric(
        accelerator=where.type,
        strategy="ddp" if world > 1 else "auto",
        devices=local if where.index is None else [where.index],
        num_nodes=max(1, world // local),
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric
