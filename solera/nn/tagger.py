"""A tagger of words: looks words up, then sees some neighbours of each, layer by layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from solera.data.batch import UNLABELLED, Batch
from solera.data.tags import Tags
from solera.nn.crf import CRF
from solera.nn.words import WordFeatures

PIECES = 3  # of a maxout
# ln P of a tag that its CRF rules out: a member that rules out what another allows is far from it, not infinitely far
LEAST = -30.0


class Maxout(nn.Module):
    """The largest of three linear maps, for each output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, PIECES * outputs)

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return self.linear(inputs).unflatten(-1, (PIECES, -1)).amax(-2)


class Window(nn.Module):
    """x + norm(maxout(left neighbour, itself, right neighbour)); padding is seen as zeros and stays so."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.maxout, self.norm, self.dropout = Maxout(3 * width, width), nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, tokens: Float[Tensor, "B T W"], there: Float[Tensor, "B T 1"]) -> Float[Tensor, "B T W"]:
        around = pad(tokens, (0, 0, 1, 1))
        seen = torch.cat([around[:, :-2], tokens, around[:, 2:]], -1)
        return (tokens + self.dropout(self.norm(self.maxout(seen)))) * there


class Tagger(nn.Module):
    """Tags for each token of a sentence, from `WordFeatures`: a convolution of `layers` windows with maxout.

    It answers with logits `[B, T, K]`. With `crf`, a `CRF` stands on top and the logits are its log-marginals, so that
    independent tags are what everybody gets; `log_likelihood` is that of whole sequences.
    """

    def __init__(
        self,
        words: WordFeatures | Mapping[str, Any],
        tags: Tags | Mapping[str, Any] | Sequence[str],
        crf: bool = False,
        *,
        width: int = 96,
        layers: int = 4,
        embedding: int = 48,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.words = words if isinstance(words, WordFeatures) else WordFeatures.empty(words)
        self.tags = Tags.read(tags)
        self.options = {"width": width, "layers": layers, "embedding": embedding, "dropout": dropout}
        self.tables = nn.ModuleList(nn.Embedding(size, embedding) for size in self.words.sizes)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.3)  # type: ignore[arg-type]
        known = embedding * len(self.tables) + self.words.vectors.shape[1]
        self.dropout = nn.Dropout(dropout)
        self.mixed, self.norm = Maxout(known, width), nn.LayerNorm(width)
        self.windows = nn.ModuleList(Window(width, dropout) for _ in range(layers))
        self.output = nn.Linear(width, len(self.tags))
        self.crf = CRF(len(self.tags), ends=True, names=self.tags.names) if crf else None
        self._asked: tuple[Tensor, Tensor] | None = None  # the last inputs, and their emissions: for `label_loss`

    @property
    def settings(self) -> dict[str, Any]:
        """What makes such a network again."""
        tags = {"tags": list(self.tags.names), "crf": self.crf is not None}
        return {"words": self.words.settings, **tags, **self.options}

    @property
    def classes(self) -> list[str]:
        """The names of its outputs."""
        return list(self.tags.names)

    @property
    def context(self) -> int:
        """How many tokens on each side can change what it says about one."""
        return len(self.windows)

    def there(self, inputs: Int[Tensor, "B T columns"]) -> Bool[Tensor, "B T"]:
        """Where a token is no padding."""
        return inputs[..., 0] > 0

    def emissions(self, inputs: Int[Tensor, "B T columns"]) -> Float[Tensor, "B T K"]:
        """A score for each tag of each token."""
        there = self.there(inputs).unsqueeze(-1).to(self.output.weight.dtype)
        seen = [table(inputs[..., column]) for column, table in enumerate(self.tables)]
        if self.words.vectors.shape[1]:
            seen.append(self.words.vectors[inputs[..., -1].long()].to(seen[0].dtype))
        tokens = self.norm(self.mixed(self.dropout(torch.cat(seen, -1)))) * there
        for window in self.windows:
            tokens = window(tokens, there)
        return self.output(tokens)

    def forward(self, inputs: Int[Tensor, "B T columns"]) -> Float[Tensor, "B T K"]:
        emissions = self.emissions(inputs)
        if self.crf is None:
            return emissions
        if not torch.compiler.is_exporting():
            self._asked = inputs, emissions
        return self.crf(emissions, self.there(inputs)).clamp(min=LEAST)

    def log_likelihood(self, inputs: Int[Tensor, "B T columns"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B"]:
        """ln P(y) of whole sequences, by the CRF; where a tag is not known, ln P(those that are)."""
        if self.crf is None:
            raise ValueError("this tagger's tags are independent: only Tagger(words, tags, crf=True) has a likelihood")
        asked, self._asked = self._asked, None
        emissions = asked[1] if asked is not None and asked[0] is inputs else self.emissions(inputs)
        there, known = self.there(inputs), target != UNLABELLED
        if bool((known | ~there).all()):
            return self.crf.log_prob(emissions, target, there)
        allowed = nn.functional.one_hot(target.clamp(min=0), emissions.shape[-1]).bool() | ~known.unsqueeze(-1)
        return self.crf.allowed_log_prob(emissions, allowed, there)

    def label_loss(self, batch: Batch) -> Float[Tensor, "B T"] | None:
        """−ln P(y) of each whole sequence, in even parts for its labelled tokens; None without a CRF."""
        if self.crf is None or batch.target is None:
            return None
        known = batch.target != UNLABELLED
        known = known if batch.weight is None else known & (batch.weight > 0)
        whole = self.log_likelihood(batch.inputs, batch.target.masked_fill(~known, UNLABELLED))
        return -(whole / known.sum(-1).clamp(min=1)).unsqueeze(-1) * known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asked": None}  # a copy has not been asked anything
