"""Who answers for the ensemble: the models themselves, or a memory of them."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Protocol, runtime_checkable  # typing's own, before 3.12, computes every property it finds

from solera.core.disk import fingerprint
from solera.core.errors import MismatchError
from solera.data import Batch, tensors_in
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
        """Whether it can answer for inputs that it was never asked about."""
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


def require_vocabulary(teacher: Teacher, batches: Any) -> None:
    """Refuses a memory of tokens that another tokenizer made, where both tell whose they are."""
    kept, own = getattr(teacher, "vocabulary", None), getattr(batches, "vocabulary", None)
    if None not in (kept, own) and kept != own:
        raise MismatchError(
            f"these predictions are of the tokens of tokenizer {kept}, the data have tokenizer {own}: pass pairs made "
            "with the tokenizer of the capture, or capture again"
        )


def _masks(batch: Batch, tensors: list[Tensor]) -> list[Tensor | None]:
    """Where each input is no padding, as far as the batch tells."""
    if batch.masks is not None:
        return list(tensors_in(batch.masks))
    alone = len(tensors) == 1 and batch.weight is not None and batch.weight.shape == tensors[0].shape
    return [batch.weight > 0 if alone and batch.weight is not None else None for _ in tensors]


def row_fingerprints(batch: Batch) -> np.ndarray:
    """A 64-bit fingerprint per example of its input: Σ_i bits_i·r_i mod 2⁶⁴ with fixed odd multipliers.

    Trailing zeros add nothing, so a sequence padded with 0 keeps its fingerprint whatever it is padded to. Other
    padding is told by the batch's masks; of a lone tensor with a weight per token, by these weights.
    """
    result = np.zeros(len(batch), dtype=np.uint64)
    tensors = tensors_in(batch.inputs)
    for number, (tensor, mask) in enumerate(zip(tensors, _masks(batch, tensors), strict=True)):
        values = tensor.detach().cpu()
        if mask is not None:
            values = values * mask.cpu().reshape(*mask.shape, *[1] * (values.ndim - mask.ndim)).to(values.dtype)
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
                f"{tuple(member.shape)}: every member must answer for the same classes or targets"
            )
    return torch.stack(logits, dim=-2)


def as_saw(saw: Any, members: int, examples: int | None = None) -> Bool[Tensor, "N M"] | None:
    """A mask of who was trained on what, once its shape and kind are right."""
    if saw is None:
        return None
    saw = torch.as_tensor(saw).cpu()
    if saw.dtype != torch.bool:
        raise ValueError(
            f"saw must hold true and false, got {saw.dtype}: saw[i, m] says if member m trained on example i"
        )
    if saw.ndim != 2 or saw.shape[1] != members or examples not in (None, len(saw)):
        wanted = f"({'examples' if examples is None else examples}, {members})"
        raise ValueError(
            f"saw must have the shape {wanted}, one row per example and one column per member, got {tuple(saw.shape)}"
        )
    return saw


def member_weights(saw: Bool[Tensor, "N M"] | None, index: Int[Tensor, " B"]) -> Float[Tensor, "B M"] | None:
    """How much each member counts for these examples: those that did not see one share it evenly.

    An example past the end of the mask is new to all of them.
    """
    if saw is None:
        return None
    index = index.cpu()
    unseen = torch.ones(len(index), saw.shape[1], dtype=torch.bool)
    known = index < len(saw)
    unseen[known] = ~saw[index[known]]
    count = unseen.sum(1, keepdim=True)
    if (count == 0).any():
        example = int(index[(count == 0).squeeze(1)][0])
        raise ValueError(
            f"all {saw.shape[1]} members were trained on example {example} ({int(saw.all(1).sum())} examples are like "
            "that), so none can speak for it out of fold: leave such examples out (saw.all(1) marks them), or add a "
            "member that was trained without them"
        )
    return unseen.float() / count


def with_mask(fingerprints: list[str], saw: Bool[Tensor, "N M"] | None) -> list[str]:
    """The members' fingerprints; where each may speak is part of them, because it decides what they teach."""
    if saw is None:
        return fingerprints
    return [fingerprint({"saw": saw[:, number]}, name) for number, name in enumerate(fingerprints)]


def saw_from_folds(folds: Int[Tensor, " N"] | Int[np.ndarray, " N"], members: int | None = None) -> Bool[Tensor, "N M"]:
    """The mask of k-fold members: member m was trained on every example but those of fold m.

    With one member per fold one member answers for a held-out example, so its knowledge uncertainty is 0 and no
    student can learn any. Keep several: repeat with other folds, `torch.cat([saw_from_folds(f) for f in repeats], 1)`,
    train several seeds per fold, `saw_from_folds(folds).repeat_interleave(seeds, 1)`, or use bagging.
    """
    folds = torch.as_tensor(folds)
    members = int(folds.max()) + 1 if members is None else members
    wrong = (folds < 0) | (folds >= members)
    if wrong.any():
        raise ValueError(
            f"fold ids must lie between 0 and {members - 1} for {members} members, example "
            f"{int(wrong.nonzero()[0])} has {int(folds[wrong][0])}"
        )
    return folds[:, None] != torch.arange(members)
