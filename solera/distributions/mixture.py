"""Several members as one prediction: an ensemble's answer, live or remembered, and that of Hydra's heads."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from solera.core.fused import compiled
from solera.distributions.base import Prediction, Targets
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family
from solera.distributions.gaussian import Ends, Gaussian
from solera.distributions.members import Measures, measure, weigh

Members = TypeVar("Members", Categorical, Gaussian)
Found = TypeVar("Found")
FEW = 1 << 24  # numbers of all members and rows together: so many are measured within a second


def _chosen(columns: Any, index: Tensor, device: torch.device) -> Any:
    """Some rows of a column, of members, or of what was measured of them."""
    if isinstance(columns, Tensor):
        return columns[index].to(device)
    return type(columns)(*(_chosen(getattr(columns, column.name), index, device) for column in fields(columns)))


@dataclass(frozen=True)
class Mixture(Targets, Generic[Members]):
    """Equally weighted members, or weighted ones: 0 for a member that must not speak here (it saw this row).

    Categorical members: entropies in nats. Gaussian members: variances, by the law of total variance.
    What classifiers say is measured in one pass over the members at the first question, unless a gradient is wanted.
    """

    members: Members  # the member axis is −2
    weights: Float[Tensor, "*batch M"] | None = None

    @property
    def family(self) -> Family:
        return "gaussian" if isinstance(self.members, Gaussian) else "categorical"

    @cached_property
    def averaged(self) -> Members:
        """p̄ = Σ_m w_m p_m; of Gaussians, the one Gaussian with the mixture's mean and variance."""
        if isinstance(self.members, Gaussian) and self._source is not None:
            return self._looked_up(lambda whole: whole.averaged)
        if self._measures is None or self.members.logits.shape[-2] == 1:  # type: ignore[union-attr]
            return self.members.averaged(self.weights)
        return Categorical(self._measures.log_odds)  # type: ignore[return-value]

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.averaged.mean if self._measures is None else self._measures.mean

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[p̄], or the variance of the mixture."""
        return self.averaged.total if self._measures is None else self._measures.total

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """mean_m H[p_m], or mean_m σ²_m."""
        return weigh(self._heard.total, self.weights) if self._measures is None else self._measures.data

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """Mutual information as mean_m KL[p_m ‖ p̄], or var_m μ_m: exactly 0 for one member, never negative."""
        if self._measures is not None:
            return self._measures.knowledge
        if isinstance(self.members, Gaussian):
            return self.members.spread(self.weights).sum(-1).to(self.members.location.dtype)
        return weigh(self._heard.departure(self.averaged), self.weights)  # type: ignore[arg-type]

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """KL between two members, over all ordered pairs, in nats; of Gaussians too."""
        if isinstance(self.members, Gaussian):
            return self.members.pairwise_kl(self.weights)
        return self.knowledge + self.rmi

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """mean_m KL[p̄ ‖ p_m]."""
        if isinstance(self.members, Gaussian):
            raise ValueError("a mixture of Gaussians has no closed form of the reverse mutual information: use epkl")
        if self._measures is not None:
            return self._measures.rmi
        return weigh(self._heard.reverse_departure(self.averaged), self.weights)  # type: ignore[union-attr]

    def log_prob(self, y: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        if self._measures is not None:
            return self.averaged.log_prob(y)
        return self.members.mixed_log_prob(y, self.weights)

    @property
    def wrong(self) -> Bool[Tensor, "*batch M"]:
        nan = self.members.mean.isnan().any(-1)
        return nan if self.weights is None else nan & (self.weights > 0)  # others are not heard

    @property
    def _measures(self) -> Measures | None:
        """Everything at once; None where a gradient is wanted, of Gaussians, in a traced graph, and without memory."""
        if isinstance(self.members, Gaussian) or torch.compiler.is_compiling() or self.members.logits.is_meta:
            return None
        learned = self.members.logits.requires_grad or (self.weights is not None and self.weights.requires_grad)
        return None if learned and torch.is_grad_enabled() else self._measured

    @cached_property
    def _measured(self) -> Measures:
        if self._source is not None:
            return self._looked_up(lambda whole: whole._measured)
        assert isinstance(self.members, Categorical)
        return measure(self.members, self.weights)

    def rows(self, index: Int[Tensor, " rows"], device: torch.device) -> "Mixture[Members]":
        """The prediction for some rows. Where the whole is small it is measured once, and its parts only look it up.

        So a row has the same digits in every part, and a training that goes on ends as one that was never stopped.
        """
        weights = None if self.weights is None else self.weights[index].to(device)
        part = Mixture(_chosen(self.members, index, device), weights)
        if getattr(self.members, fields(self.members)[0].name).numel() <= FEW:
            vars(part)["_source"] = self, index, device
        return part

    @cached_property
    def _source(self) -> "tuple[Mixture[Members], Tensor, torch.device] | None":
        """The whole, the rows and the device of a part. No field: what is made of a part is no part of that whole."""
        return None

    def _looked_up(self, found: "Callable[[Mixture[Members]], Found]") -> Found:
        """The part's rows of what is found, once, in the whole."""
        assert self._source is not None
        whole, index, device = self._source
        with compiled(False):  # whether kernels are compiled is often decided later
            return _chosen(found(whole), index, device)

    def once(self, name: str, make: "Callable[[Mixture[Members]], Tensor]") -> Float[Tensor, "*batch"]:
        """`make(self)`, one number for every row; a part looks it up in the whole, where it is made once."""
        return make(self) if self._source is None else self._looked_up(lambda whole: whole._column(name, make))

    def _column(self, name: str, make: "Callable[[Mixture[Members]], Tensor]") -> Tensor:
        if name not in self._columns:
            with torch.inference_mode(False), torch.no_grad():  # a later gradient may pass by it
                self._columns[name] = make(self)
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, Tensor]:
        """What `once` made for parts."""
        return {}

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Where the central interval of probability `level` begins and ends, in every dimension of a continuous target.

        Of the mixture itself, whatever its shape: half of what is left lies below, half above. See `Gaussian.interval`.
        """
        if not isinstance(self.members, Gaussian):
            return super().interval(level, dtype)
        return self.members.mixed_interval(self.weights, level, dtype)

    @cached_property
    def _heard(self) -> Members:
        return self.members if self.weights is None else self.members.heard(self.weights)


def as_one(prediction: Prediction) -> Prediction:
    """Several members as the one prediction that they average to; any other prediction as it is."""
    return prediction.averaged if isinstance(prediction, Mixture) else prediction


@dataclass(frozen=True)
class Labelled(Mixture[Categorical]):
    """One member, certain of the label; where there is none, it is not known and the prediction even."""

    known: Bool[Tensor, "*batch"] = field(kw_only=True)
