"""Greedy and beam search against transformers' on one small translation model, with key–value caches: CPU time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from benchmarks.ratios import compare as compare_time
from solera.decoding import beam, greedy
from solera.distributions import Categorical

ROWS, TOKENS, LONGEST, PAD, END = 16, 16, 24, 1, 2
WIDTH, HEADS, INNER, CLASSES = 192, 4, 384, 4000


@dataclass
class State:
    """What the encoder said, and the cache."""

    encoded: Tensor
    cache: Any

    def reorder(self, rows: Tensor) -> "State":
        self.cache.reorder_cache(rows)
        return State(self.encoded[rows], self.cache)


def model(bias: float) -> MarianMTModel:
    """Three encoder layers, one decoder layer; `bias` towards the end of sequence makes hypotheses shorter."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=CLASSES, d_model=WIDTH, encoder_layers=3, decoder_layers=1, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER, max_position_embeddings=64,
        pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=PAD, forced_eos_token_id=None, init_std=0.1,
    )  # fmt: skip
    network = MarianMTModel(config).eval()
    network.final_logits_bias[0, END] = bias
    return network


@torch.no_grad()
def compare(bias: float, beams: int) -> None:
    network = model(bias)
    source = torch.randint(4, CLASSES, (ROWS, TOKENS))

    def step(state: State, tokens: Tensor) -> tuple[Categorical, State]:
        encoded = BaseModelOutput(last_hidden_state=state.encoded)
        out = network(
            encoder_outputs=encoded, decoder_input_ids=tokens.unsqueeze(-1), past_key_values=state.cache, use_cache=True
        )
        return Categorical(out.logits[:, -1]), State(state.encoded, out.past_key_values)

    def ours() -> Any:
        encoded = network.get_encoder()(input_ids=source).last_hidden_state
        state = State(encoded, EncoderDecoderCache(DynamicCache(), DynamicCache()))
        start = torch.full((ROWS,), PAD)
        if beams == 1:
            return greedy(step, state, start, END, LONGEST)
        return beam(step, state, start, END, LONGEST, beams, early=True)

    def theirs() -> Any:
        mask = torch.ones_like(source)
        return network.generate(source, attention_mask=mask, num_beams=beams, max_new_tokens=LONGEST, do_sample=False)

    length = ours().mask.sum(-1).double().mean().item()
    how = "greedy" if beams == 1 else f"beam {beams}"
    compare_time(f"{how}, {length:.0f} tokens ÷ transformers' generate", ours, theirs, at_most=1.0, rounds=9)


def main() -> None:
    torch.set_num_threads(1)
    for beams in (1, 5):
        for bias in (0.0, 6.0):
            compare(bias, beams)
