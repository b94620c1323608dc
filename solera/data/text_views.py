"""Views of texts, given as token ids."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from solera.core.checks import require_fraction
from solera.data.draws import Draws, Fresh
from solera.data.view import View

IDS = "input_ids"  # where a tokenizer puts them


@dataclass(frozen=True, eq=False)
class Reword(View):
    """x′_t = a token of the table's texts, drawn by its frequency, with probability `share`, else x_t.

    The ids in `kept` (padding, separators) stay where they are and are never put elsewhere. Of a tokenizer's answer, a
    dict of tensors, the `input_ids` are changed.
    """

    of_real_numbers = False
    table: Int[Tensor, "N T"]
    share: float = 0.15
    kept: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        require_fraction("share", self.share)
        if not len(self._tokens):
            raise ValueError(f"the table holds the kept ids {self.kept} alone: pass texts to take tokens from")

    @property
    def keeps_class(self) -> bool:
        return False

    @cached_property
    def _tokens(self) -> Int[Tensor, " tokens"]:
        return self.table[~torch.isin(self.table, torch.tensor(self.kept, dtype=self.table.dtype))].cpu()

    def __call__(self, inputs: Any, draw: torch.Generator) -> Any:
        """A random view of every text."""
        return self.seen(inputs, Fresh(draw))

    def seen(self, inputs: Any, draws: Draws) -> Any:
        """A random view of every text, by these random numbers."""
        if isinstance(inputs, Mapping):
            return {**inputs, IDS: self.seen(inputs[IDS], draws)}
        if inputs.is_floating_point():
            raise ValueError(f"Reword changes token ids, the inputs are {inputs.dtype}: for rows there is Resample")
        return self.change(inputs, draws)

    def change(self, inputs: Tensor, draws: Draws) -> Tensor:
        fixed = torch.isin(inputs, torch.tensor(self.kept, dtype=inputs.dtype, device=inputs.device))
        taken = (draws.uniform(*inputs.shape) < self.share).to(inputs.device) & ~fixed
        others = self._tokens[draws.below(len(self._tokens), *inputs.shape)]
        return torch.where(taken, others.to(inputs), inputs)
