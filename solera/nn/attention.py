"""The blocks of a transformer: attention with kept keys and values, and pre-norm layers of encoder and decoder."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

KeysValues = tuple[Tensor, Tensor]  # [B, H, S, D] each


def sinusoids(start: int | Tensor, like: Float[Tensor, "B T W"]) -> Float[Tensor, "T W"]:
    """Positions start … start + T − 1 as sines and cosines of rising wavelengths (Vaswani et al., 2017)."""
    half = like.shape[-1] // 2
    rates = torch.exp(torch.arange(half, device=like.device) * (-math.log(10_000.0) / max(1, half - 1)))
    angles = (start + torch.arange(like.shape[1], device=like.device)).unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], -1).to(like.dtype)


class Attention(nn.Module):
    """Several heads of softmax(QKᵀ/√D)·V; keys and values can be had apart, so that they need be computed only once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads or width % 2:
            raise ValueError(f"width={width} must be even and a multiple of heads={heads}")
        self.heads = heads
        self.query, self.pairs = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        for layer in (self.query, self.pairs, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def _split(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Float[Tensor, "B S W"]) -> KeysValues:
        """What this layer reads in a memory."""
        keys, values = self.pairs(memory).chunk(2, -1)
        return self._split(keys), self._split(values)

    def forward(
        self,
        x: Float[Tensor, "B T W"],
        known: KeysValues,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "B T W"]:
        read = scaled_dot_product_attention(self._split(self.query(x)), *known, attn_mask=mask, is_causal=causal)
        return self.output(read.transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """Two linear layers with ReLU between them."""

    def __init__(self, width: int, inner: int) -> None:
        layers = nn.Linear(width, inner), nn.Linear(inner, width)
        super().__init__(layers[0], nn.ReLU(), layers[1])
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, each on normalised inputs and added to them."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm_forward, self.feed_forward = nn.LayerNorm(width), FeedForward(width, inner)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B S W"], mask: Bool[Tensor, "B 1 1 S"] | None) -> Float[Tensor, "B S W"]:
        read = self.norm(x)
        x = x + self.dropout(self.attention(read, self.attention.keys_values(read), mask))
        return x + self.dropout(self.feed_forward(self.norm_forward(x)))


class Encoder(nn.Module):
    """Layers over a whole sequence; the last output is normalised."""

    def __init__(self, width: int, layers: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width, heads, inner, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "B S W"], mask: Shaped[Tensor, "B S"] | None = None) -> Float[Tensor, "B S W"]:
        """`mask` is true where a place is no padding."""
        seen = None if mask is None else mask.bool()[:, None, None]
        for layer in self.layers:
            x = layer(x, seen)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to what the encoder said, and a feed-forward layer."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm_cross, self.cross = nn.LayerNorm(width), Attention(width, heads)
        self.norm_forward, self.feed_forward = nn.LayerNorm(width), FeedForward(width, inner)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T W"],
        memory: KeysValues,
        mask: Bool[Tensor, "B 1 1 S"] | None,
        before: KeysValues | None = None,
    ) -> tuple[Float[Tensor, "B T W"], KeysValues]:
        """Its output, and the keys and values of all tokens so far; with those of the ones `before`, x is the next."""
        read = self.norm(x)
        known = self.attention.keys_values(read)
        if before is not None:
            known = torch.cat([before[0], known[0]], -2), torch.cat([before[1], known[1]], -2)
        x = x + self.dropout(self.attention(read, known, causal=before is None))
        x = x + self.dropout(self.cross(self.norm_cross(x), memory, mask))
        return x + self.dropout(self.feed_forward(self.norm_forward(x))), known


State = dict[str, Any]  # of a decoder: what it reads in the encoder's output, the tokens so far, their number
