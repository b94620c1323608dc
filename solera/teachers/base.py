"""Who answers for the ensemble: the models themselves, or a memory of them."""

import hashlib
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.batch import Batch, tensors_in
from solera.distributions.base import Targets


@runtime_checkable
class Teacher(Protocol):
    """Answers about a batch, for all members at once."""

    @property
    def members(self) -> int:
        """M."""
        ...

    @property
    def live(self) -> bool:
        """Whether it can answer for inputs nobody asked about before."""
        ...

    @property
    def fingerprints(self) -> list[str]:
        """One name per member that changes when the member does."""
        ...

    def __call__(self, batch: Batch) -> Targets:
        """What every member says, or a summary of it."""
        ...

    def check(self, batch: Batch) -> None:
        """Raises if this teacher cannot answer for these very inputs."""
        ...


def fingerprint(tensors: dict[str, Tensor], name: str = "") -> str:
    """sha256 of names, shapes and bytes, shortened."""
    digest = hashlib.sha256(name.encode())
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()[:16]


def row_fingerprints(batch: Batch) -> np.ndarray:
    """A 64-bit fingerprint per example of its input: Σ_i bits_i·r_i mod 2⁶⁴ with fixed odd multipliers.

    Trailing zeros add nothing, so a sequence padded with 0 keeps its fingerprint whatever it is padded to.
    """
    result = np.zeros(len(batch), dtype=np.uint64)
    for number, tensor in enumerate(tensors_in(batch.inputs)):
        values = tensor.detach().cpu()
        if batch.weight is not None and values.shape == batch.weight.shape:
            values = values * (batch.weight.cpu() > 0).to(values.dtype)
        values = values.reshape(len(batch), -1)
        values = values.double() if values.is_floating_point() else values.long()
        bits = (values + 0).numpy().view(np.uint64)  # + 0: minus zero is zero
        random = np.random.default_rng(number).integers(0, 2**63, bits.shape[1], dtype=np.uint64) * 2 + 1
        with np.errstate(over="ignore"):
            mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            result += (mixed * random).sum(1, dtype=np.uint64)
    return result


def stack_members(logits: list[Float[Tensor, "*batch K"]]) -> Float[Tensor, "*batch M K"]:
    """Members side by side on axis −2; a member with other classes is named."""
    for number, member in enumerate(logits):
        if member.shape != logits[0].shape:
            raise ValueError(
                f"members disagree in shape: member 0 answers {tuple(logits[0].shape)}, member {number} answers "
                f"{tuple(member.shape)}: every member must give logits over the same classes"
            )
    return torch.stack(logits, dim=-2)
