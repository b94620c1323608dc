"""Hugging Face classifiers."""

import inspect
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from solera.core.disk import fingerprint
from solera.teachers.adapters.base import Adapter


class SequenceClassifier(Adapter):
    """A `...ForSequenceClassification`; inputs are what its tokenizer gives: a dict with input_ids and attention_mask.

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
        self.classes = None if invented else names

    @property
    def fingerprint(self) -> str:
        return fingerprint(dict(self.model.state_dict()), type(self.model).__name__)

    def forward(self, inputs: Any) -> Float[Tensor, "*batch K"]:
        if not isinstance(inputs, dict):
            raise TypeError(
                f"{type(self.model).__name__} needs a dict of tensors with input_ids and attention_mask, got a "
                f"{type(inputs).__name__}: without the mask it would read the padding, too"
            )
        return self.model(**{key: value for key, value in inputs.items() if key in self.accepted}).logits.float()
