"""What every adapter is."""

from abc import ABC, abstractmethod

from torch import nn


class Adapter(nn.Module, ABC):
    """A model of another kind as a torch module: inputs in, float32 `[*batch, ...]` out, as its family has it."""

    class_names: list[str] | None = None  # the names of the columns, in their order, where the model knows them

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A name that changes when the model does."""
