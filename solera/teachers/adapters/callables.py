"""Any function of the inputs."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.data import tensors_in
from solera.data.names import Names, as_names
from solera.teachers.adapters.base import Adapter
from solera.teachers.adapters.object_fingerprint import object_fingerprint
from solera.teachers.adapters.probabilities import log_of_probabilities


class Function(Adapter):
    """A callable that takes a batch's inputs and gives `[*batch, K]`, as a tensor or an array.

    `probabilities` says what it gives: probabilities, or logits (log-probabilities are logits too). A torch module that
    ends in a softmax is `Function(model, probabilities=True)`.

    The fingerprint covers the function's code and the values that it takes from around it. `version` replaces it: for a
    function that cannot be read like that (it holds an open connection), or that answers from elsewhere (a server).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        probabilities: bool,
        class_names: Names | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__()
        self.function, self.probabilities, self.version = function, probabilities, version
        self.class_names = None if class_names is None else as_names(class_names)

    @property
    def fingerprint(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        return object_fingerprint(self.function)

    def forward(self, inputs: Any) -> Float[Tensor, "*batch K"]:
        answer = torch.as_tensor(self.function(inputs)).to(tensors_in(inputs)[0].device)
        if not self.probabilities:
            return answer.float()
        return log_of_probabilities(answer.double(), f"the answers of {_name(self.function)}").float()


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
