"""Encoder and decoder: sequences to sequences, one token after another."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from solera.nn.attention import DecoderLayer, Encoder, State, sinusoids


class EncoderDecoder(nn.Module):
    """A decoder of tokens on any encoder: pre-norm layers, the embedding tied to the output.

    Inputs are a mapping with whatever `encode` reads and `decoder_input_ids`, the start token and the target but for
    its end; the output are logits of the token after each, `[B, T, K]`. To decode, `begin(inputs)` gives a state with
    the encoder's keys and values, and `step(state, tokens)` logits `[B, K]` and the state that knows these tokens.
    """

    def __init__(
        self, encoder: nn.Module, vocabulary: int, width: int, layers: int, heads: int, inner: int, dropout: float
    ) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = encoder
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, inner, dropout) for _ in range(layers))
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.output.weight = self.embedding.weight

    @property
    def _layers(self) -> list[DecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]

    @abstractmethod
    def encode(self, inputs: Mapping[str, Tensor]) -> tuple[Float[Tensor, "B S W"], Shaped[Tensor, "B S"] | None]:
        """What the encoder says, and where that is no padding."""

    def embed(self, tokens: Int[Tensor, "B T"], start: int | Tensor = 0) -> Float[Tensor, "B T W"]:
        """Tokens and their positions, the first of which is `start`."""
        vectors = self.embedding(tokens) * math.sqrt(self.width)
        return self.dropout(vectors + sinusoids(start, vectors))

    def forward(self, inputs: Mapping[str, Tensor]) -> Float[Tensor, "B T K"]:
        memory, mask = self.encode(inputs)
        seen = None if mask is None else mask.bool()[:, None, None]
        x = self.embed(inputs["decoder_input_ids"])
        for layer in self._layers:
            x, _ = layer(x, layer.cross.keys_values(memory), seen)
        return self.output(self.norm(x))

    def begin(self, inputs: Mapping[str, Tensor]) -> State:
        """Before the first token."""
        memory, mask = self.encode(inputs)
        seen = None if mask is None else mask.bool()[:, None, None]
        return {"memory": [layer.cross.keys_values(memory) for layer in self._layers], "mask": seen, "position": 0}

    def step(self, state: State, tokens: Int[Tensor, " B"]) -> tuple[Float[Tensor, "B K"], State]:
        """What comes after these tokens, one for each row of the state."""
        x, cache = self.embed(tokens.unsqueeze(-1), state["position"]), []
        before = state.get("cache") or [None] * len(self.decoder)
        for layer, memory, own in zip(self._layers, state["memory"], before, strict=True):
            x, known = layer(x, memory, state["mask"], own)
            cache.append(known)
        return self.output(self.norm(x[:, 0])), {**state, "cache": cache, "position": state["position"] + 1}


class Translator(EncoderDecoder):
    """Text to text with one joint vocabulary: source and target share their embedding.

    Inputs: `input_ids` and, where they are padded, `attention_mask` of the source; `decoder_input_ids`.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 192,
        encoder: int = 3,
        decoder: int = 1,
        heads: int = 4,
        inner: int | None = None,
        dropout: float = 0.1,
    ) -> None:
        inner = 2 * width if inner is None else inner
        super().__init__(
            Encoder(width, encoder, heads, inner, dropout), vocabulary, width, decoder, heads, inner, dropout
        )
        self.settings: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": width,
            "encoder": encoder,
            "decoder": decoder,
            "heads": heads,
            "inner": inner,
            "dropout": dropout,
        }

    def encode(self, inputs: Mapping[str, Tensor]) -> tuple[Float[Tensor, "B S W"], Shaped[Tensor, "B S"] | None]:
        mask = inputs.get("attention_mask")
        return self.encoder(self.embed(inputs["input_ids"]), mask), mask
