"""Whole sequences that a model writes by itself, judged beside what should have been written."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from solera import metrics
from solera.data import Batch
from solera.distributions.base import Prediction
from solera.distributions.decoded import Decoded
from solera.distributions.families import Family
from solera.tasks.base import Columns, Figure, Row, Task, mean_of

POINTS = 40  # of the curve of quality against the share rejected


class Generation(Task):
    """One element is one sequence; a prediction is a `Decoded`: what was written, and its sequence measures."""

    family: ClassVar[Family] = "categorical"
    beside: ClassVar[tuple[str, ...]] = ("agrees",)
    detects: ClassVar[tuple[str, ...]] = ("total", "knowledge", "rmi", "score_total", "score_rmi")

    @abstractmethod
    def compared(self, written: Sequence[Any], wanted: Sequence[Any]) -> dict[str, np.ndarray]:
        """Columns of what was written beside what was wanted: `error`, at least 0, and what `quality` adds up."""

    @abstractmethod
    def quality(self, columns: Columns) -> Row:
        """The scores of these sequences together; the first one is drawn against the share rejected."""

    def check_target(self, batch: Batch, size: int) -> None:
        """Tokens are not looked at: what was written is compared with what was wanted as text."""

    def outputs(self, target: Shaped[Tensor, "..."], size: int) -> int:
        return size

    def labelled(self, batch: Batch, axes: int | None = None) -> Bool[Tensor, " B"]:
        return torch.full((len(batch),), batch.target is not None)

    def filled(self, target: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        return target

    def mask(self, batch: Batch, shape: Sequence[int]) -> Bool[Tensor, " B"]:
        """Every sequence counts."""
        return torch.ones(len(batch), dtype=torch.bool)

    def weight(self, batch: Batch, shape: Sequence[int]) -> Float[Tensor, " B"] | None:
        """All alike: the weights of a batch are those of tokens."""
        return None

    def element_target(self, batch: Batch) -> Int[Tensor, " B"] | None:
        """The number of tokens that were wanted."""
        if batch.target is None:
            return None
        assert batch.weight is not None
        return (batch.weight > 0).sum(-1)

    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """Every sequence measure there is, and with references what `compared` gives."""
        if not isinstance(prediction, Decoded):
            raise TypeError(
                f"{self.name} judges what a model writes, got a {type(prediction).__name__} of given tokens: pass "
                "{'test': solera.translate(model, pairs)} for the model"
            )
        found: dict[str, Tensor | np.ndarray] = dict(prediction.measures)
        if prediction.wanted is not None:
            found |= self.compared(prediction.written, prediction.wanted)
        return found

    def compare(self, prediction: Prediction, reference: Prediction) -> dict[str, Tensor | np.ndarray]:
        """`agrees`: both wrote the same."""
        assert isinstance(prediction, Decoded)
        assert isinstance(reference, Decoded)
        return {"agrees": np.array([a == b for a, b in zip(prediction.written, reference.written, strict=True)])}

    def likeness(self, columns: Columns) -> Row:
        return {"agreement": mean_of(columns, "agrees")}

    def error(self, columns: Columns) -> np.ndarray:
        return columns["error"]

    def scores(self, columns: Columns) -> Row:
        """The quality of all, and PRR of the sequences' errors by total uncertainty and by score."""
        found = self.quality(columns)
        for name, key in (("PRR", "total"), ("PRR by knowledge", "knowledge"), ("PRR by score", "score_total")):
            known = key in columns and np.ptp(columns["error"]) > 0
            found[name] = metrics.retention_ratio(columns[key], columns["error"]) if known else None
        return found

    def overconfident(self, columns: Columns) -> bool:
        """Not to be told of whole sequences: `Seq2Seq` measures the calibration of tokens."""
        return False

    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        name = self.table[0].name
        order = np.argsort(columns["total"], kind="stable")
        shares = np.linspace(0, 0.9, POINTS + 1)
        kept = [order[: max(1, round((1 - share) * len(order)))] for share in shares]
        quality = [self.quality({key: column[rows] for key, column in columns.items()})[name] for rows in kept]
        return [
            Figure(
                "quality",
                f"{name} of what is kept",
                f"{name} of the sequences that are left when those of the most total uncertainty are rejected.",
                "line",
                shares,
                np.array(quality, dtype=float),
                ("rejected", name),
                f"%{{x:.1%}} rejected: {name} %{{y:.1%}}",
                percent=(True, True),
            )
        ]

    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        """What was written, and how probable its tokens are."""
        assert isinstance(prediction, Decoded)
        sure = prediction.mean[:, 0].tolist()
        return [{"top": [[str(one), share]]} for one, share in zip(prediction.written, sure, strict=True)]

    def label(self, target: Any, names: Sequence[str] | None) -> Any:
        """How long it should have been."""
        return f"{int(target)} tokens"
