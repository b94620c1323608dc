"""Hugging Face classifiers, of whole inputs and of tokens; the class of the model says which."""

import inspect
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.core.disk import fingerprint
from solera.teachers.adapters.base import Adapter

WORD_STARTS = "word_starts"  # among a tokenizer's answers: where each word's first piece stands


class Classifier(Adapter, ABC):
    """A transformer that gives logits of classes; its inputs are a dict of tensors.

    Its `id2label` names the classes, unless they are the names it invents, LABEL_0 and so on.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        config: Any = model.config
        if config.num_labels < 2 or config.problem_type in ("regression", "multi_label_classification"):
            raise ValueError(
                f"{type(model).__name__} with num_labels={config.num_labels} and problem_type={config.problem_type!r} "
                "does not choose one of several classes: pass a single-label classifier"
            )
        self.model = model
        self.accepted = set(inspect.signature(model.forward).parameters) - {"labels"}
        names = [str(config.id2label[number]) for number in range(config.num_labels)]
        invented = names == [f"LABEL_{number}" for number in range(config.num_labels)]
        self.class_names = None if invented else names

    @property
    def fingerprint(self) -> str:
        return fingerprint(dict(self.model.state_dict()), type(self.model).__name__)

    @abstractmethod
    def forward(self, inputs: Any) -> Float[Tensor, "*batch K"]: ...

    def logits(self, inputs: Any) -> Float[Tensor, "*batch K"]:
        """What the model says of all that its tokenizer gave."""
        if not isinstance(inputs, dict):
            raise TypeError(
                f"{type(self.model).__name__} needs a dict of tensors with input_ids and attention_mask, got a "
                f"{type(inputs).__name__}: without the mask it would read the padding, too"
            )
        return self.model(**{key: value for key, value in inputs.items() if key in self.accepted}).logits.float()


class SequenceClassifier(Classifier):
    """A `...ForSequenceClassification`; inputs are what its tokenizer gives: a dict with input_ids and attention_mask.

    Image and audio classifiers answer in the same way, by their own inputs (pixel_values).
    """

    def forward(self, inputs: Any) -> Float[Tensor, "B K"]:
        return self.logits(inputs)


class TokenClassifier(Classifier):
    """A `...ForTokenClassification` that answers for words: for each the logits of its first piece.

    Inputs are what `word_pieces` gives: input_ids, attention_mask and `word_starts` `[B, T]`, the place of each word's
    first piece. Later pieces and special tokens are read, not answered for. Without `word_starts` every piece is
    answered for, `[B, pieces, K]`, and the batch must give weight 0 to those that do not count.
    """

    def forward(self, inputs: Any) -> Float[Tensor, "B T K"]:
        logits = self.logits(inputs)
        if WORD_STARTS not in inputs:
            return logits
        places = inputs[WORD_STARTS].long().unsqueeze(-1).expand(-1, -1, logits.shape[-1])
        return torch.gather(logits, 1, places)


KINDS: dict[str, type[Classifier]] = {  # how the names of classes end
    "ForTokenClassification": TokenClassifier,
    "ForSequenceClassification": SequenceClassifier,
    "ForImageClassification": SequenceClassifier,
    "ForAudioClassification": SequenceClassifier,
}


def transformer_kind(model: nn.Module) -> type[Classifier] | None:
    """What kind of classifier this transformer, or a class it is made of, is by its name; None: of no kind we know."""
    names = [base.__name__ for base in type(model).__mro__]
    return next((kind for end, kind in KINDS.items() if any(name.endswith(end) for name in names)), None)


def adapt_transformer(model: nn.Module) -> Classifier:
    """A transformer as what its class says it is."""
    kind = transformer_kind(model)
    if kind is None:
        raise TypeError(
            f"{type(model).__name__} is none of ...{', ...'.join(KINDS)}: pass one of these, or say what it is: "
            "solera.teachers.adapters.SequenceClassifier(model)"
        )
    return kind(model)
