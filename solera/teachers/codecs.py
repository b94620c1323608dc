"""How predictions are remembered: targets to columns of rows, and back."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from solera.distributions.base import Targets
from solera.distributions.categorical import Categorical
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.distributions.summary import Mean, Moments, Spread, TopK, summarize, summarize_top

Columns = dict[str, Tensor]  # one row per example or token in each
Precision = Literal["float16", "float32"]
Axes = dict[str, tuple[int | None, ...]]  # of a row of each column; None is the axis of the members


@runtime_checkable
class Codec(Protocol):
    """One way to remember. Its fields are its settings and go into the manifest."""

    def encode(self, targets: Targets) -> Columns:
        """Columns `[*batch, ...]` to keep."""
        ...

    def decode(self, columns: Columns, classes: int) -> Targets:
        """What the columns say, as the teacher would have said it."""
        ...

    def axes(self, names: Collection[str], classes: int) -> Axes:
        """The columns that there must be where there are some of these names, and the axes of their rows."""
        ...


def _rounded(log_probs: Tensor, dtype: str) -> Tensor:
    """In fewer bits; what is too small for them becomes their smallest, and a class without probability stays so."""
    kind = getattr(torch, dtype)
    kept = log_probs.clamp(min=torch.finfo(kind).min).masked_fill(log_probs == -torch.inf, -torch.inf)
    return kept.to(kind)


_SPREAD = ("total", "knowledge", "rmi")


def _spread_columns(spread: Spread) -> Columns:
    """Eight bytes a row: the reverse mutual information sets the proxy's precision, so it keeps more digits."""
    return {"total": spread.total.half(), "knowledge": spread.knowledge.half(), "rmi": spread.rmi.float()}


def _spread(columns: Columns) -> Spread:
    return Spread(*(columns[name].float() for name in _SPREAD))


def _summary(targets: Targets) -> Mean:
    if isinstance(targets, Mean):
        return targets
    if targets.family == "gaussian":
        raise ValueError(
            "top_k keeps the likeliest classes, and continuous targets have none: choose codec='dense' or 'mean'"
        )
    if isinstance(targets, Mixture):
        return summarize(targets)
    raise ValueError(f"{type(targets).__name__} targets cannot be captured again: capture from the ensemble itself")


@dataclass(frozen=True)
class DenseCodec:
    """Every member's log-probabilities: every method can use them; the size grows with members and classes.

    Of continuous targets every member's mean and log-variance, in float32: their units know no bounds.
    """

    dtype: Precision = "float16"

    def encode(self, targets: Targets) -> Columns:
        said = targets.members
        if isinstance(said, Gaussian):
            columns = {"location": said.location.float(), "log_variance": said.log_variance.float()}
        else:
            columns = {"members": _rounded(said.log_probs, self.dtype)}
        if targets.weights is not None:
            columns["weights"] = targets.weights.float()
        return columns

    def decode(self, columns: Columns, classes: int) -> Mixture:
        weights = columns.get("weights")
        if "location" in columns:
            return Mixture(Gaussian(columns["location"], columns["log_variance"]), weights)
        return Mixture(Categorical(columns["members"].float()), weights)

    def axes(self, names: Collection[str], classes: int) -> Axes:
        kept = ("location", "log_variance") if "location" in names else ("members",)
        weights: Axes = {"weights": (None,)} if "weights" in names else {}
        return {**dict.fromkeys(kept, (None, classes)), **weights}


@dataclass(frozen=True)
class MeanCodec:
    """The ensemble's mean and its spread: the size does not depend on the members.

    Of continuous targets the mixture's mean and variance and its knowledge, in float32.
    """

    dtype: Precision = "float16"

    def encode(self, targets: Targets) -> Columns:
        if isinstance(targets, (Mixture, Moments)) and isinstance(targets.averaged, Gaussian):
            one = targets.averaged
            columns = {"location": one.location, "log_variance": one.log_variance, "knowledge": targets.knowledge}
            return {name: column.float() for name, column in columns.items()}
        summary = _summary(targets)
        return {"mean": _rounded(summary.averaged.log_probs, self.dtype), **_spread_columns(summary.spread)}

    def decode(self, columns: Columns, classes: int) -> Mean | Moments:
        if "location" in columns:
            return Moments(Gaussian(columns["location"], columns["log_variance"]), columns["knowledge"])
        return Mean(Categorical(columns["mean"].float()), _spread(columns))

    def axes(self, names: Collection[str], classes: int) -> Axes:
        if "location" in names:
            return {"location": (classes,), "log_variance": (classes,), "knowledge": ()}
        return {"mean": (classes,), **dict.fromkeys(_SPREAD, ())}


@dataclass(frozen=True)
class TopKCodec:
    """The `keep` likeliest classes of the mean, the mass of the rest, and the spread over all classes.

    4·keep + 12 bytes a row (6·keep + 12 beyond 65,536 classes), whatever the members and classes.
    """

    keep: int = 64

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"top_k must keep at least one class, got keep={self.keep}")

    def encode(self, targets: Targets) -> Columns:
        if isinstance(targets, Mixture) and targets.family == "categorical":
            top = summarize_top(targets, self.keep)
        else:
            summary = _summary(targets)
            probs, indices = summary.mean.topk(min(self.keep, summary.mean.shape[-1]), -1)
            top = TopK.of(probs, indices, summary.mean.shape[-1], summary.spread)
        return {
            "indices": top.indices.to(torch.uint16 if top.classes <= 1 << 16 else torch.int32),
            "kept": _rounded(top.probs.log(), "float16"),
            "tail": top.tail.float(),
            **_spread_columns(top.spread),
        }

    def decode(self, columns: Columns, classes: int) -> TopK:
        """Rounding is taken up by the kept classes, so that with the tail they sum to one."""
        tail, probs = columns["tail"], columns["kept"].float().exp()
        probs = probs * ((1 - tail) / probs.sum(-1)).unsqueeze(-1)
        return TopK(columns["indices"].long(), probs, tail, classes, _spread(columns))

    def axes(self, names: Collection[str], classes: int) -> Axes:
        kept = min(self.keep, classes)
        return {"indices": (kept,), "kept": (kept,), "tail": (), **dict.fromkeys(_SPREAD, ())}


CODECS: dict[str, Any] = {"dense": DenseCodec, "mean": MeanCodec, "top_k": TopKCodec}


def codec_named(name: str, **settings: Any) -> Codec:
    """The codec of this name with these settings."""
    if name not in CODECS:
        raise ValueError(f"there is no codec {name!r}: choose among {', '.join(CODECS)}")
    return CODECS[name](**settings)


def name_of(codec: Codec) -> str:
    """What the manifest calls it."""
    return next(name for name, kind in CODECS.items() if isinstance(codec, kind))
