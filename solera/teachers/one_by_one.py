"""An ensemble of which only one member is in memory at a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from solera.core.disk import fingerprint
from solera.data import Batch
from solera.distributions.categorical import Categorical
from solera.distributions.summary import Mean, Spread
from solera.nn.call import call


class OneByOne:
    """Members that are loaded one after another, by functions that give one each, and asked about the whole batch.

    What is kept of them is a summary: the mean and its spread, so capture it with "mean" or "top_k". Each batch loads
    every member once: pass large batches (`Pairs(..., tokens=16_384)`); a capture does not depend on how its batches
    were cut.
    """

    live = True

    def __init__(self, members: Sequence[Callable[[], nn.Module]]) -> None:
        if not members:
            raise ValueError("an ensemble needs at least one member, got none")
        self.loaders = list(members)
        self._known: list[str] | None = None

    @property
    def members(self) -> int:
        return len(self.loaders)

    @property
    def fingerprints(self) -> list[str]:
        """As an `Ensemble` of these networks has them; all are loaded once to learn them."""
        if self._known is None:
            self._known = []
            for load in self.loaders:
                network = load()
                self._known.append(fingerprint(dict(network.state_dict()), type(network).__name__))
        return self._known

    def check(self, batch: Batch) -> None:
        """A live teacher answers for anything."""

    def _ask(self, load: Callable[[], nn.Module], batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One member's share of p̄, of mean_m ln p_m and of the data uncertainty; it is gone afterwards."""
        said = Categorical(call(load().eval(), batch.inputs))
        return said.mean / self.members, said.log_probs / self.members, said.total / self.members

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Mean:
        """p̄ and mean_m ln p_m are summed up member by member: RMI = Σ_k p̄_k·(ln p̄_k − mean_m ln p_mk)."""
        mean, logs, data = self._ask(self.loaders[0], batch)
        for load in self.loaders[1:]:
            for total, own in zip((mean, logs, data), self._ask(load, batch), strict=True):
                total += own
        averaged = Categorical(mean.log())
        total = averaged.total
        gap = torch.where(mean > 0, mean * (averaged.log_probs - logs), 0.0)
        spread = Spread(total, (total - data).clamp(min=0), gap.sum(-1).clamp(min=0))
        return Mean(averaged, spread)
