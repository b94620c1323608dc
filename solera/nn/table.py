"""Rows of a table, words and missing values among them, as what a network learns from."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.data.table import MISSING, UNKNOWN, moments


class Table(nn.Module):
    """Rows as `solera.data.table` encodes them → standardised numbers, which are missing, and words one-hot.

    `categories[d]` is how many words column d knows, 0 for a column of numbers: (x − mean)/scale, and 0, the mean,
    where x is missing. Each column in `missing` also has a feature that is 1 where it is missing, else 0. A word is 1
    in its own feature and 0 in the column's others; a missing or unknown one is 0 in all of them.
    """

    mean: Tensor
    scale: Tensor
    numbers: Tensor
    missing: Tensor
    column: Tensor
    code: Tensor

    def __init__(self, categories: Sequence[int], missing: Sequence[int] = ()) -> None:
        super().__init__()
        numbers = [place for place, size in enumerate(categories) if size == 0]
        words = [(place, size) for place, size in enumerate(categories) if size != 0]
        if wrong := [size for _, size in words if size < 0]:
            raise ValueError(f"a column knows {wrong[0]} words: pass how many, 0 for numbers")
        if strange := sorted(set(missing) - set(numbers)):
            raise ValueError(f"missing names column {strange[0]}, which is none of numbers: pass some of {numbers}")
        self.settings = {"categories": list(categories), "missing": list(missing)}
        self.outputs = len(numbers) + len(missing) + sum(size for _, size in words)
        self.register_buffer("mean", torch.zeros(len(numbers)))
        self.register_buffer("scale", torch.ones(len(numbers)))
        sizes = [size for _, size in words]
        column, code = torch.zeros(sum(sizes), dtype=torch.long), torch.zeros(sum(sizes))  # of every feature of a word
        if code.device.type != "meta":  # a sketch has no numbers, and torch needs a second to find that out
            for (place, size), columns, codes in zip(
                words, *(part.split(sizes) for part in (column, code)), strict=True
            ):
                columns.fill_(place)
                codes.copy_(torch.arange(size))
        places = {"numbers": numbers, "missing": list(missing)}
        tensors = {name: torch.tensor(some, dtype=torch.long) for name, some in places.items()}
        for name, tensor in {**tensors, "column": column, "code": code}.items():  # they follow from the settings
            self.register_buffer(name, tensor, persistent=False)

    def learn(self, rows: Float[Tensor, "N D"]) -> None:
        """Takes mean and scale of every column of numbers from the rows where it is not missing."""
        mean, deviation = moments(rows.index_select(-1, self.numbers))
        spread = deviation.to(self.scale)
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(spread > 0, spread, torch.ones_like(spread)))

    def forward(self, rows: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch F"]:
        parts: list[Tensor] = []
        if len(self.mean):
            values = rows.index_select(-1, self.numbers)
            filled = torch.where(values == MISSING, self.mean, values)
            parts.append((filled - self.mean) / self.scale)
        if len(self.missing):
            parts.append((rows.index_select(-1, self.missing) == MISSING).to(self.mean.dtype))
        if len(self.column):
            parts.append((rows.index_select(-1, self.column) == self.code).to(self.mean.dtype))
        return torch.cat(parts, -1)

    def made_up(self, examples: int, random: torch.Generator) -> Float[Tensor, "N D"]:
        """Rows such as it might be given: numbers by mean and scale, some missing, words at random."""
        sizes = torch.tensor(self.settings["categories"])
        normal = torch.randn(examples, len(sizes), generator=random)
        empty = torch.rand(examples, len(sizes), generator=random) < 0.1
        rows = (torch.rand(examples, len(sizes), generator=random) * sizes).floor()
        numbers = self.numbers.cpu()
        rows[:, numbers] = normal[:, numbers] * self.scale.cpu() + self.mean.cpu()
        return torch.where(empty, torch.where(sizes > 0, UNKNOWN, MISSING), rows)
