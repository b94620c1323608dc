"""Tags of tokens, and the entities that they make up."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from solera import metrics
from solera.data import Batch, Sentence, Sequences, Tags
from solera.data.chunks import chunked
from solera.distributions.base import Prediction
from solera.metrics.curves import reliability
from solera.metrics.spans import precision_recall, span_brier
from solera.nn import WordFeatures
from solera.tasks.base import Columns, ErrorKind, Figure, Margin, Row, Score, mean_of, uncertainties
from solera.tasks.classification import OVERCONFIDENT, Classification
from solera.tasks.entities import entity_columns, type_probabilities, types_of

TOKENS = 4096  # in a batch of sentences that nobody has put into batches
POINTS = 200  # of a curve


@dataclass(frozen=True)
class Tagging(Classification):
    """A tag per token (BIO, BIOES or BILOU); tokens of one entity are judged together: exact tokens, right type."""

    tags: Tags

    name: ClassVar[str] = "tagging"
    table: ClassVar[tuple[Score, ...]] = (
        Score("F1", 1, "Of entities: the harmonic mean of precision and recall; tokens and type must match.", True),
        Score("precision", 1, "The share of the predicted entities that are right.", percent=True),
        Score("recall", 1, "The share of the true entities that are found.", percent=True),
        Score("NLL", -1, "How surprised the model is by the true tag of a token, on average."),
        Score(
            "entity ECE",
            -1,
            "How far the confidence in an entity and how often it is right lie apart, on average: 0 is calibrated.",
            percent=True,
            inflated=True,
        ),
        Score("entity Brier", -1, "The mean squared distance of an entity's confidence from right (1) or wrong (0)."),
        Score("PR area", 1, "Average precision over all thresholds of an entity's confidence.", percent=True),
        Score("B-BS", -1, "Balanced Brier score of token types: over the 2N most confident tokens of each type."),
        Score("B-ECE", -1, "Balanced calibration error of token types, over the same tokens.", True, inflated=True),
        Score(
            "PRR",
            1,
            "How much of an oracle's gain is had when the least certain entities are rejected: 100 is all, 0 chance.",
            percent=True,
        ),
        Score("agreement", 1, "How often it gives a token the same likeliest tag as the ensemble.", percent=True),
        Score("KL from the ensemble", -1, "How far its probabilities are from the ensemble's, in nats per token."),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "F1", 0.01),
        Margin("calibration", "entity ECE", 0.02),
        Margin("rejection", "PRR", 0.05),
    )
    shifted: ClassVar[tuple[str, ...]] = ("F1", "NLL", "entity ECE", "B-BS")
    errors: ClassVar[ErrorKind] = ErrorKind("wrong entities", percent=True, wanted=(0.01, 0.02, 0.05, 0.10))
    question: ClassVar[str] = "Are entities right as often as it says?"

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Tagging":
        return cls(Tags.read(settings["tags"]))

    def prepared(self, data: Any, models: Mapping[str, Any]) -> Any:
        """Sentences as batches: their words as the models' networks take them, none longer than those allow."""
        if not (isinstance(data, list) and data and isinstance(data[0], Sentence)):
            return data
        networks = [module for model in models.values() for module in _modules(model)]
        words = next((module for module in networks if isinstance(module, WordFeatures)), None)
        if words is None:
            raise ValueError(
                "sentences are turned into numbers by the WordFeatures of a model, and none of these has any: pass "
                "Sequences(words(sentences), tags(sentences))"
            )
        limits = [limit for network in networks if (limit := getattr(network, "limit", None)) is not None]
        data = chunked(data, min(limits)) if limits else data
        target = None if data[0].tags is None else self.tags(data)
        longest = max(len(sentence.tokens) for sentence in data)
        texts = [sentence.tokens for sentence in data]
        return Sequences(words(data), target, tokens=max(TOKENS, longest), names=self.tags.names, texts=texts)

    def check_target(self, batch: Batch, size: int) -> None:
        if size != len(self.tags):
            raise ValueError(f"the model answers for {size} tags, the task has {len(self.tags)}: {self.tags.names}")
        super().check_target(batch, size)

    def columns(self, prediction: Prediction, batch: Batch) -> dict[str, Tensor | np.ndarray]:
        """Of each token what `Classification` has, and of each entity, at its first token, what `entity_columns` has.

        With a target also `type` (the true one, −1 outside) and the probability of each type, for balanced scores.
        """
        found = super().columns(prediction, batch)
        mean = prediction.mean.detach().cpu()
        counted = self.mask(batch, mean.shape[:-1])
        target = None if batch.target is None else self.filled(batch.target).cpu()
        found |= entity_columns(mean, uncertainties(prediction), counted, self.tags, target)
        if target is not None:
            found |= {"correct": found["predicted"] == target, "type": types_of(target, self.tags)}
            each = type_probabilities(mean, self.tags).clamp(max=1).unbind(-1)
            found |= {f"p({name})": p for name, p in zip(self.tags.types, each, strict=True)}
        return found

    def rejected(self, columns: Columns) -> Columns:
        """The predicted entities, with their own confidence and uncertainties; the tokens, where there are none."""
        starts = columns["entity"].astype(bool)
        if not starts.any():
            return columns
        prefix = "entity_"
        return {key.removeprefix(prefix): column[starts] for key, column in columns.items() if key.startswith(prefix)}

    def scores(self, columns: Columns) -> Row:
        starts, correct = columns["entity"].astype(bool), columns["entity_correct"].astype(bool)
        predicted, gold, right = (int(columns[key].sum()) for key in ("entity", "gold", "entity_correct"))
        certain, correct = columns["entity_confidence"][starts], correct[starts]
        cells = np.stack([columns[f"p({name})"] for name in self.tags.types], -1)
        labels = columns["type"][:, None] == np.arange(len(self.tags.types))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # nothing wrong, nothing gold: a dash in the table says it
            prr = metrics.prediction_rejection_ratio(columns["entity_total"][starts], ~correct) if predicted else None
            balanced = [metrics.balanced_brier(cells, labels), metrics.balanced_ece(cells, labels)]
        return {
            "F1": 2 * right / (predicted + gold) if predicted + gold else None,
            "precision": right / predicted if predicted else None,
            "recall": right / gold if gold else None,
            "NLL": mean_of(columns, "nll"),
            "entity ECE": metrics.confidence_ece(certain, correct) if predicted else None,
            "entity Brier": span_brier(certain, correct) if predicted else None,
            "PR area": precision_recall(certain, correct, gold).area if predicted and gold else None,
            "B-BS": balanced[0],
            "B-ECE": balanced[1],
            "PRR": prr,
        }

    def overconfident(self, columns: Columns) -> bool:
        """The mean confidence in its entities exceeds the share of right ones by 5 points."""
        found = self.rejected(columns)
        return mean_of(found, "confidence") - mean_of(found, "correct") > OVERCONFIDENT

    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        """Reliability of entities, and precision over recall."""
        found = self.rejected(columns)
        points = reliability(found["confidence"], found["correct"])
        made = [
            Figure(
                "reliability",
                "Reliability of entities",
                "How often an entity is right, tokens and type, by how sure the model is of it. Points on the diagonal "
                "are calibrated; below it the model is over-confident. The bars show how often it is so sure.",
                "line",
                points["confidence"],
                points["accuracy"],
                ("confidence", "right"),
                "%{x:.1%} sure, %{y:.1%} right",
                percent=(True, True),
                share=points["share"],
                guide="diagonal",
            )
        ]
        gold = int(columns["gold"].sum())
        if gold and columns["entity"].any():
            curve = precision_recall(found["confidence"], found["correct"], gold)
            some = np.unique(np.linspace(0, len(curve.recall) - 1, POINTS).round().astype(int))
            made.append(
                Figure(
                    "precision and recall",
                    "Precision and recall of entities",
                    "Keep the entities above a confidence, from the surest to all of them: how many of the true ones "
                    "are found, and how many of those kept are right.",
                    "line",
                    curve.recall[some],
                    curve.precision[some],
                    ("recall", "precision"),
                    "%{x:.1%} found, %{y:.1%} right",
                    percent=(True, True),
                )
            )
        return made

    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        """`tokens` with their likeliest tags; the first token of an entity has `entity`: type, length, confidence."""
        told = super().answers(prediction, names or self.tags.names)
        mean = prediction.mean.detach().cpu()
        counted = torch.ones(mean.shape[:-1], dtype=torch.bool)
        found = entity_columns(mean, {}, counted, self.tags, None)
        kinds = types_of(found["predicted"], self.tags)
        for row, answer in enumerate(told):
            for place in found["entity"][row].nonzero().flatten().tolist():
                rest = found["predicted"][row, place + 1 :]
                more = ((types_of(rest, self.tags) == kinds[row, place]) & ~found["entity"][row, place + 1 :]).long()
                entity = {
                    "type": self.tags.types[int(kinds[row, place])],
                    "tokens": 1 + int(more.cumprod(0).sum()),
                    "confidence": float(found["entity_confidence"][row, place]),
                }
                answer["tokens"][place]["entity"] = entity
        return told


def _modules(model: Any) -> list[Any]:
    """All parts of a model, or of the parts that it holds."""
    return list(model.modules()) if isinstance(model, torch.nn.Module) else []
