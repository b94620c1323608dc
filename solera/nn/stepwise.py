"""A network that writes one token after another: its first state, and its steps, with or without kept keys and values.

`begin(inputs)` reads the source, `step(state, tokens)` takes the last token of each row and gives the raw output for
the next one, `[B, ..., K]`. Networks that have these two methods answer for themselves; Hugging Face's are asked
through their own caches; any other that takes `decoder_input_ids` is asked about the whole prefix at every step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from solera.nn.call import call

PREFIX = "decoder_input_ids"


@runtime_checkable
class Stepwise(Protocol):
    """What a decoder asks."""

    def begin(self, inputs: Mapping[str, Tensor]) -> Any:
        """The state before the first token."""
        ...

    def step(self, state: Any, tokens: Int[Tensor, " B"]) -> tuple[Float[Tensor, "B ..."], Any]:
        """The raw output for the next token, and the state that knows these."""
        ...


class _Recomputed:
    """The whole prefix at every step."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def begin(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        return {"inputs": {key: value for key, value in inputs.items() if key != PREFIX}}

    def step(self, state: dict[str, Any], tokens: Tensor) -> tuple[Tensor, dict[str, Any]]:
        last = tokens.unsqueeze(-1)
        prefix = torch.cat([state["prefix"], last], -1) if "prefix" in state else last
        return call(self.network, {**state["inputs"], PREFIX: prefix})[:, -1], {**state, "prefix": prefix}


@dataclass
class _Cached:
    """A Hugging Face model's cache, whose rows are exchanged in place, and what else belongs to its rows."""

    cache: Any
    mask: Tensor
    encoded: Tensor | None = None

    def reorder(self, rows: Tensor) -> "_Cached":
        self.cache.reorder_cache(rows)
        return _Cached(self.cache, self.mask[rows], None if self.encoded is None else self.encoded[rows])


def _mask_of(inputs: Mapping[str, Tensor]) -> Tensor:
    return inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))


class _EncoderDecoder:
    """A Hugging Face seq2seq model (Marian, T5, BART)."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def begin(self, inputs: Mapping[str, Tensor]) -> _Cached:
        from transformers import DynamicCache, EncoderDecoderCache

        mask = _mask_of(inputs)
        encoded = self.model.get_encoder()(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
        return _Cached(EncoderDecoderCache(DynamicCache(), DynamicCache()), mask, encoded)

    def step(self, state: _Cached, tokens: Tensor) -> tuple[Tensor, _Cached]:
        said = self.model(
            encoder_outputs=(state.encoded,),
            attention_mask=state.mask,
            decoder_input_ids=tokens.unsqueeze(-1),
            past_key_values=state.cache,
            use_cache=True,
        )
        return said.logits[:, -1], _Cached(said.past_key_values, state.mask, state.encoded)


class _Causal:
    """A Hugging Face causal model (Llama, GPT-2), which reads the source as the beginning of its own text."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def begin(self, inputs: Mapping[str, Tensor]) -> _Cached:
        mask = _mask_of(inputs)
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        said = self.model(input_ids=inputs["input_ids"], attention_mask=mask, position_ids=places, use_cache=True)
        return _Cached(said.past_key_values, mask)

    def step(self, state: _Cached, tokens: Tensor) -> tuple[Tensor, _Cached]:
        mask = torch.cat([state.mask, state.mask.new_ones(len(tokens), 1)], -1)
        said = self.model(
            input_ids=tokens.unsqueeze(-1),
            attention_mask=mask,
            position_ids=mask.sum(-1, keepdim=True) - 1,
            past_key_values=state.cache,
            use_cache=True,
        )
        return said.logits[:, -1], _Cached(said.past_key_values, mask)


def is_causal(network: nn.Module) -> bool:
    """Whether this is a Hugging Face model without an encoder, which continues its input."""
    config = getattr(network, "config", None)
    return hasattr(network, "generate") and not getattr(config, "is_encoder_decoder", True)


def stepwise(network: nn.Module) -> Stepwise:
    """The network as a decoder asks it."""
    if isinstance(network, Stepwise):
        return network
    if is_causal(network):
        return _Causal(network)
    if hasattr(network, "generate") and hasattr(network, "get_encoder"):
        return _EncoderDecoder(network)
    return _Recomputed(network)
