"""What carries a training: this process alone, or Lightning Fabric for many processes and for mixed precision.

The loop speaks Fabric's language. A lone full-precision process needs none of it, so `Alone` answers in the same words
and spares users an import of several seconds.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Alone:
    """One process, full precision."""

    global_rank, world_size, is_global_zero = 0, 1, True

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def setup(self, network: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """The network on its device."""
        return network.to(self.device), optimizer

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss."""
        loss.backward()

    def barrier(self) -> None:
        """Nobody to wait for."""


def engine(precision: str = "auto") -> Any:
    """Alone by default; a launched Fabric for mixed precision or as one of WORLD_SIZE processes under `torchrun`."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if precision == "auto":
        cuda = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        precision = "bf16-mixed" if cuda else "32-true"
    if world == 1 and precision == "32-true":
        return Alone()

    from lightning_fabric import Fabric

    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    fabric = Fabric(
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        strategy="ddp" if world > 1 else "auto",
        devices=local,
        num_nodes=max(1, world // local),
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric
